"""Two busy Slurm clusters: how long our jobs and local ones wait, beside plain ``sbatch``.

``python -m benchmarks slurm_sites --load .9 --seed 7``, as root, runs two pairs of clusters side by
side for ten minutes. Both get the same jobs at the same times: local users' and ours, which go
through coalloc in one pair and to a random cluster in the other; one that is wider than a cluster
goes there as two unrelated jobs, whose later one counts: a bound that no job that has to meet can
reach. Compare within a run; a minute in which the machine stood still is worth nothing, so load and
longest pause are printed. ``--share .5`` grants our jobs a share of both clusters;
``--administrator 100`` has somebody cancel, hold, extend, drain and restart meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.slurm.administrator import Administrator, summary
from tests.slurm.open_jobs import SPAN_S, drawn, with_long
from tests.slurm.open_runs import Delays, arms, drive, never, told
from tests.slurm.open_stream import Arm, CoallocArm, faults
from tests.testbeds.slurm import missing

KINDS = {"single": "ours, one cluster", "wide": "ours, co-allocated", "local": "locals"}
DRAIN_S = 600.0


def measured(arm: Arm, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of an arm."""
    ours = [job for job in jobs if job["kind"] != "local"]
    wide = [job for job in ours if job["kind"] == "wide"]
    single = [job for job in ours if job["kind"] == "single"]
    started = sum(job["wait_s"] is not None for job in ours)
    fed = arm.fed_at - arm.began
    return {
        "wait_s": {
            kind: waits([job["wait_s"] for job in jobs if job["kind"] == kind]) for kind in KINDS
        },
        "wide_started_meanwhile": sum(
            job["first_at"] is not None and job["first_at"] <= fed for job in wide
        ),
        "wide": len(wide),
        "all_done_s": arm.took_s,
        "held_before_start": ratio(ours, "held_before"),
        "held_before_start_wide": ratio(wide, "held_before"),
        "held_by_slurm": ratio(ours, "held", less=1.0),
        "held_by_slurm_wide": ratio(wide, "held", less=1.0),
        "single_start_s": each_slot_s(single, lambda job: job["held_before"]),
        "single_release_s": each_slot_s(
            single, lambda job: job["held"] - job["held_before"] - job["used"]
        ),
        "given_back_per_start": round(_given_back(arm) / max(1, started), 2),
        "claims_per_job": round(sum(len(job["claims"]) for job in ours) / len(ours), 2),
        "rpcs_a_minute": arm.rpcs_a_minute,
    }


def waits(values: Iterable[float | None]) -> dict[str, Any]:
    """Mean and 95th percentile of those that started, and how many never did."""
    all_of = list(values)
    found = sorted(value for value in all_of if value is not None)
    if not found:
        return {"mean": None, "p95": None, "started": 0, "never": len(all_of)}
    late = found[min(len(found) - 1, int(0.95 * len(found)))]
    mean = round(statistics.mean(found), 2)
    return {"mean": mean, "p95": late, "started": len(found), "never": len(all_of) - len(found)}


def ratio(jobs: Sequence[dict[str, Any]], field: str, less: float = 0.0) -> float:
    """Slot-seconds of a field for each that was used."""
    used = sum(job["used"] for job in jobs)
    return round(sum(job[field] for job in jobs) / used - less, 3) if used else 0.0


def each_slot_s(jobs: Sequence[dict[str, Any]], held: Callable[[dict[str, Any]], float]) -> float:
    """Seconds for which a slot of those that started was held so."""
    started = [job for job in jobs if job["wait_s"] is not None]
    width = sum(job["width"] for job in started)
    return round(sum(map(held, started)) / width, 3) if width else 0.0


def _given_back(arm: Arm) -> int:
    """Starts that were called off: refused, or given back before anything ran."""
    return len(arm.site.lines("job_requeued")) if isinstance(arm, CoallocArm) else 0


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """The figures as lines, arms side by side, and ratios of waits."""
    lines = [f"{'':46}" + "".join(f"{name:>20}" for name in found)]

    def row(name: str, cells: Iterable[str]) -> None:
        lines.append(f"{name:46}" + "".join(f"{cell:>20}" for cell in cells))

    for kind, title in KINDS.items():
        row(
            f"wait of {title}, mean / p95, s",
            (_wait(arm["wait_s"][kind]) for arm in found.values()),
        )
    row(
        "co-allocated started meanwhile",
        (f"{arm['wide_started_meanwhile']} of {arm['wide']}" for arm in found.values()),
    )
    row("all done after, s", (_number(arm["all_done_s"], "{:.0f}") for arm in found.values()))
    for field, title in (
        ("held_before_start", "held before the start, by work"),
        ("held_by_slurm", "held and not used, by Slurm's clock"),
    ):
        cells = (f"{arm[field]:.1%} / {arm[field + '_wide']:.1%}" for arm in found.values())
        row(f"{title}, all / wide", cells)
    cells = (
        f"{arm['single_start_s']:.2f} / {arm['single_release_s']:.2f}" for arm in found.values()
    )
    row("a slot for one cluster: start / release, s", cells)
    row("claims for each of our jobs", (f"{arm['claims_per_job']:.2f}" for arm in found.values()))
    row("given back per start", (f"{arm['given_back_per_start']:.2f}" for arm in found.values()))
    row("RPCs a minute, our user", (_rpcs(arm["rpcs_a_minute"]) for arm in found.values()))
    if {"coalloc", "plain"} <= set(found):
        for kind, title in KINDS.items():
            ours, plain = (found[name]["wait_s"][kind] for name in ("coalloc", "plain"))
            if ours["mean"] and plain["mean"]:
                told = (f"{ours[key] / plain[key]:.2f}" for key in ("mean", "p95"))
                lines.append(f"coalloc / plain, {title}: " + ", p95 ".join(told))
    return lines


def _wait(waits: dict[str, Any]) -> str:
    if waits["mean"] is None:
        return f"{waits['never']} never"
    text = f"{waits['mean']:.1f} / {waits['p95']:.0f}"
    return f"{text}, {waits['never']} never" if waits["never"] else text


def _number(value: float | None, form: str) -> str:
    return "never" if value is None else form.format(value)


def _rpcs(clusters: dict[str, dict[str, float]]) -> str:
    return " / ".join(f"{counts.get('ours', 0.0):.0f}" for counts in clusters.values())


def shared(arm: Arm, delays: Delays) -> list[str]:
    """Lines on what the share cost local jobs, by Slurm's queue and by the daemon."""
    late = sorted(delays.by_job.items(), key=lambda pair: -pair[1])
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in late[:5]) or "none"
    lines = [f"{arm.title}: local jobs first in their queues beside idle slots: {told}"]
    if isinstance(arm, CoallocArm):
        rows = arm.site.ask("nodes")["clusters"]
        lines += [f"share of {row['cluster']}: {json.dumps(row.get('share'))}" for row in rows]
    return lines


def claims(job: dict[str, Any]) -> list[str]:
    """One of our jobs, and each of its claims as Slurm had it; seconds since the beginning."""
    rows = [(job, "name width run_s at wait_s held_before state")]
    words = "cluster number attempt state submitted began ended slots"
    rows += [(claim, words) for claim in job["claims"]]
    lines = [", ".join(f"{key} {row[key]}" for key in keys.split()) for row, keys in rows]
    return [lines[0], *(f"    {line}" for line in lines[1:])]


def administered(args: argparse.Namespace) -> dict[str, Any]:
    """One run with an administrator at work, and what was not obeyed."""
    items = drawn(args.load, seed=args.seed, scale=args.scale, pace=args.pace)
    items = with_long(items, args.seed)
    # Without accounts Slurm does not say who cancelled a job.
    with arms(("coalloc",), policy=args.policy, accounting=True) as (arm,):
        assert isinstance(arm, CoallocArm)
        span_s = max(item.at for item in items)
        admin = Administrator(arm, items, args.administrator, seed=args.seed, span_s=span_s)
        watch = drive([arm], items, args.drain, admin.turn)
        wrong, lines, jobs = admin.judge(), admin.told(), told(arm, items)
        arm.stop()
    print(*lines, f"{len(wrong)} of {len(items)} jobs otherwise than they had to:", sep="\n")
    print(*wrong, f"longest pause {watch.pause_s:.1f} s", sep="\n")
    return {"not_once": {"coalloc": wrong}, "jobs": jobs, **summary(admin)}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """One run of both arms or one."""
    items = drawn(args.load, seed=args.seed, scale=args.scale, pace=args.pace)
    names = ("coalloc", "plain") if args.arm == "both" else (args.arm,)
    given = {"max_share": args.share} if args.share else {}
    with arms(names, policy=args.policy, given=given, as_root=bool(args.share)) as running:
        delays = [Delays(arm) for arm in running] if args.share else []
        watch = drive(running, items, args.drain, lambda: all(each.turn() for each in delays))
        jobs = {arm.title: told(arm, items) for arm in running}
        found = {arm.title: measured(arm, jobs[arm.title]) for arm in running}
        wrong = {arm.title: faults(arm, items) for arm in running}
        share = [
            line for arm, each in zip(running, delays, strict=False) for line in shared(arm, each)
        ]
        for arm in running:
            arm.stop()
    if args.claims and "coalloc" in jobs:
        ours = (job for job in jobs["coalloc"] if job["kind"] != "local")
        print(*(line for job in ours for line in claims(job)), sep="\n")
    print("\n".join(table(found)))
    print("\n".join(share))
    for name in names:
        for job in never(jobs[name]):
            words = f"{job['state']} {job['reason']} {job['detail']}".strip()
            print(
                f"{name}: {job['name']} ({job['kind']}, {job['width']} wide) never started: {words}"
            )
        print(f"{name}: {len(wrong[name])} jobs not exactly once", *wrong[name][:20], sep="\n  ")
    loads = (statistics.mean(watch.loads), max(watch.loads))
    print(
        f"load average {loads[0]:.1f}, at most {loads[1]:.1f}; longest pause {watch.pause_s:.1f} s"
    )
    return {
        "asked": {key: value for key, value in vars(args).items() if key not in {"json", "claims"}},
        "arms": found,
        "not_once": wrong,
        "load_mean": loads[0],
        "load_max": loads[1],
        "pause_s": watch.pause_s,
        "jobs": jobs,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=float, default=0.9, help="offered in all, of the slots")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--arm", choices=("coalloc", "plain", "both"), default="both")
    parser.add_argument(
        "--scale", type=float, default=1.0, help=f"of 100 jobs of ours in {SPAN_S:g} s"
    )
    parser.add_argument("--pace", type=float, default=1.0, help="of run times and of those seconds")
    parser.add_argument("--share", type=float, default=0.0, help="max_share of both clusters")
    parser.add_argument("--administrator", type=int, default=0, help="acts of one")
    parser.add_argument("--policy", default="auto")
    parser.add_argument(
        "--drain", type=float, default=DRAIN_S, help="seconds after the last submission, at most"
    )
    parser.add_argument(
        "--claims", action="store_true", help="show each of our jobs with its claims"
    )
    parser.add_argument("--json", type=Path, help="a file for all figures, job by job")
    args = parser.parse_args()
    if absent := missing():
        print(f"Slurm is not installed, nothing measured: {absent}")
        return 0
    if os.getuid():
        print("error: only root can make accounts", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all daemons are ended
    result = administered(args) if args.administrator else run(args)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1, default=str))
    return 1 if any(result["not_once"].values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
