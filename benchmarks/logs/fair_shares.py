"""Usage of projects by day against their shares, over logs whose users are put into projects.

    python -m benchmarks fair_shares --log FILE --slots 100 [--jobs 1500]

The log is submitted faster than its machine can work, so that every project has jobs waiting most
of the time. Users go, from the one with most work on, to the project with least work for its share.
A day counts as backlogged when at each of its starts and ends every project has a job waiting.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from coalloc.adapters.formats.platforms import Platform
from coalloc.core.base.projects import DAY_S
from coalloc.model.platform import Cluster, Node
from coalloc.model.settings import PriorityConfig, ProjectConfig
from coalloc.model.values import replace
from coalloc.simulation.replay import replay
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Workload, read_workload

SHARES = {"red": 5.0, "green": 3.0, "blue": 2.0}


def faster(workload: Workload, slots: int, load: float) -> Workload:
    """The same jobs, submitted so that they ask for `load` times the machine."""
    work = float((workload.procs * workload.run).sum())
    span = max(float(workload.submit[-1] - workload.submit[0]), 1.0)
    ratio = work / (slots * load) / span
    jobs = tuple(
        replace(
            logged,
            job=replace(
                logged.job,
                submitted=logged.job.submitted * ratio,
                earliest=logged.job.submitted * ratio,
            ),
        )
        for logged in workload.jobs
    )
    return replace(workload, jobs=jobs)


def users_of(workload: Workload) -> dict[str, tuple[str, ...]]:
    """Users of each project."""
    work: dict[str, float] = {}
    for logged in workload.jobs:
        user = logged.user or "replay"
        work[user] = work.get(user, 0.0) + logged.job.procs * logged.run_s
    out: dict[str, list[str]] = {name: [] for name in SHARES}
    done = dict.fromkeys(SHARES, 0.0)
    for user in sorted(work, key=lambda name: -work[name]):
        name = min(SHARES, key=lambda project: done[project] / SHARES[project])
        out[name].append(user)
        done[name] += work[user]
    return {name: tuple(users) for name, users in out.items()}


Day = tuple[int, bool, list[float]]
"""Its number, whether it is backlogged, and the projects' parts of its use."""


def by_day(trace: Trace, members: dict[str, tuple[str, ...]]) -> list[Day]:
    """The days of a replay."""
    project = {user: n for n, users in enumerate(members.values()) for user in users}
    of = np.array([project[logged.user or "replay"] for logged in trace.workload.jobs])
    submit, start, end = trace.workload.submit, trace.start, trace.end
    out = []
    for day in range(int(np.nanmax(end) // DAY_S) + 1):
        first, last = day * DAY_S, (day + 1) * DAY_S
        inside = np.clip(end, first, last) - np.clip(start, first, last)
        used = [float(np.nansum((inside * trace.procs)[of == n])) for n in range(len(members))]
        times = np.concatenate((start, end, submit, [first, last - 1.0]))
        times = times[(times >= first) & (times < last)]
        waits = (
            (submit[of == n][:, None] < times) & (start[of == n][:, None] > times)
            for n in range(len(members))
        )
        total = sum(used)
        parts = [value / total if total else 0.0 for value in used]
        out.append((day, all(bool(one.any(0).all()) for one in waits), parts))
    return out


def main() -> None:
    """Print a line for each day, and the largest distances from the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--load", type=float, default=3.0)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--no-shares", action="store_true")
    parser.add_argument("--step", type=float, default=900.0)
    parser.add_argument("--ahead", type=float, default=3600.0)
    args = parser.parse_args()
    workload = faster(read_workload([args.log], limit=args.jobs), args.slots, args.load)
    members = users_of(workload)
    half = args.slots // args.per_node // 2
    clusters = tuple(
        Cluster(
            name=name,
            nodes=tuple(Node(name=f"{name}{n}", slots=args.per_node) for n in range(half)),
        )
        for name in ("a", "b")
    )
    priority = PriorityConfig(
        shares=0.0 if args.no_shares else 16.0, step_s=args.step, ahead_s=args.ahead
    )
    projects = {
        name: ProjectConfig(share=SHARES[name], users=users) for name, users in members.items()
    }
    sharing = {"projects": projects, "priority": priority}
    platform = Platform(name="halves", clusters=clusters)
    trace = replay(workload, platform, args.policy, path="general", sharing=sharing)
    goal = np.array(list(SHARES.values())) / sum(SHARES.values())
    off = []
    for day, backlogged, parts in by_day(trace, members):
        far = float(np.abs(np.array(parts) - goal).max()) * 100.0
        shown = " ".join(f"{100.0 * part:5.1f}" for part in parts)
        print(f"day {day:3} {'backlogged' if backlogged else '          '} {shown}  off {far:4.1f}")
        off += [far] if backlogged else []
    waited = float(np.nanmean(trace.start - workload.submit))
    print(
        f"{args.log.name.partition('.')[0]}: {len(off)} backlogged days, off by "
        f"{max(off, default=0.0):.2f} points at most, {float(np.mean(off or [0.0])):.2f} in the "
        f"mean; mean wait {waited:.0f} s; {trace.stats['elapsed_s']:.0f} s of computing"
    )


if __name__ == "__main__":
    main()
