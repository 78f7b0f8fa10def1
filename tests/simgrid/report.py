"""The tables of docs/history/validation.md.

By hand::

    python -m tests.simgrid.report held|saturated|conservative [--seeds N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.papers.mbpc.study import case_1

from coalloc.model.cost import link_loads
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.simulation.reproduce.solving import solve
from tests.simgrid.cases import is_split, planned, random_snapshot
from tests.simgrid.plans import Replayed, replay
from tests.simgrid.program import MEASURED_TCP, build, missing

PLAIN = ("oas", "mbpc", "easy", "auto")
THRESHOLDS = (1.5, 2.0, 4.0)
PATIENCE = 1000
"""Of `oas` where its makespans are compared."""
LATE = 1e-4
"""Of the run time. The latency that carries the weights of flows is less for a job of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan and where it is carried out."""

    snapshot: Snapshot
    plan: Plan


def held(program: Path, seeds: int) -> Iterator[Sequence[str]]:
    """How far ends in the replay lie from the plan, where no link saturates."""
    yield ("Policy", "Links", "Jobs", "Split", "Ends by rate", "Ends equally", "Ends with LV08")
    for policy in PLAIN:
        for tight in (False, True):
            cases = [_random(seed, tight, policy, None) for seed in range(seeds)]
            placements = [(case, placement) for case in cases for placement in case.plan.placements]
            split = sum(is_split(case.snapshot, placement) for case, placement in placements)
            worst = [
                max(map(_deviation, _replayed(program, cases, **arguments)))
                for arguments in (
                    {"traffic": "steady"},
                    {"share": "flow"},
                    {"share": "flow", "network": MEASURED_TCP},
                )
            ]
            links = "tight" if tight else "loose"
            yield (policy, links, str(len(placements)), str(split), *map(_percent, worst))


def saturated(program: Path, seeds: int) -> Iterator[Sequence[str]]:
    """What comes about of the slowdown by links that a plan accepts."""
    yield ("Policy", "Threshold", "Jobs with SC > 1", "Planned Te / Te(1)", *_WAYS)
    rows: list[tuple[str, float, list[Case]]] = [
        (policy, threshold, [_random(seed, True, policy, threshold) for seed in range(seeds)])
        for policy in ("oas", "mbpc")
        for threshold in THRESHOLDS
    ]
    for abw in (0.2, 0.3, 0.35):
        snapshot = case_1(abw)
        options = {"solver_seconds": 20.0, "saturation_threshold": 4.0}
        plan = solve(snapshot, "mbpc", options).plan
        rows.append((f"mbpc, case 1, {abw:g} Gbit/s", 4.0, [Case(snapshot=snapshot, plan=plan)]))
    for name, threshold, cases in rows:
        seen = {
            way: [job for job in _replayed(program, cases, **arguments) if job.planned.sc > 1.0]
            for way, arguments in _WAYS.items()
        }
        jobs = next(iter(seen.values()))
        ratio = f"{fmean(job.longest / job.shortest for job in jobs):.3f}" if jobs else "-"
        cells = [_share(jobs) for jobs in seen.values()]
        yield (name, f"{threshold:g}", str(len(jobs)), ratio, *cells)


_WAYS: Mapping[str, Mapping[str, Any]] = {
    "steady": {"traffic": "steady"},
    "1 round": {"rounds": 1},
    "20 rounds": {"rounds": 20},
    "100 rounds": {"rounds": 100},
    "20 rounds, equally": {"rounds": 20, "share": "flow"},
    "steady, equally": {"traffic": "steady", "share": "flow"},
}


def conservative(program: Path, seeds: int) -> Iterator[Sequence[str]]:
    """What the rule of peaks costs: makespans of plans that heed links less, by the first's."""
    yield ("Links in the plan", "Planned", "Steady", "Phases", "Later than planned", "Carried")
    snapshots = [random_snapshot(seed, tight=True) for seed in range(seeds)]
    tried = [Case(snapshot=snapshot, plan=_best(snapshot, 1.0)) for snapshot in snapshots]
    heeding = [case for case in tried if len(case.plan.placements) == len(case.snapshot.queue)]
    rows = {"SC = 1": heeding}
    for threshold in THRESHOLDS:
        rows[f"SC <= {threshold:g}"] = [
            Case(snapshot=case.snapshot, plan=_best(case.snapshot, threshold)) for case in heeding
        ]
    rows["ignored"] = [_blind(case.snapshot) for case in heeding]
    reference = [_planned_makespan(case) for case in heeding]
    for name, cases in rows.items():
        phases = _replayed(program, cases)
        late = sum(job.ended > job.planned.end + 0.01 * job.longest for job in phases)
        yield (
            name,
            _relative(map(_planned_makespan, cases), reference),
            _relative((_makespan(program, case, traffic="steady") for case in cases), reference),
            _relative((_makespan(program, case) for case in cases), reference),
            f"{late} of {len(phases)}",
            _percent(_carried(cases)),
        )


def _random(seed: int, tight: bool, policy: str, threshold: float | None) -> Case:
    snapshot = random_snapshot(seed, tight=tight)
    return Case(snapshot=snapshot, plan=planned(snapshot, policy, threshold))


def _blind(snapshot: Snapshot) -> Case:
    """Planned as if no link had a limit, carried out where they have."""
    free = tuple(replace(cluster, link_gbps=inf) for cluster in snapshot.clusters)
    return Case(snapshot=snapshot, plan=_best(replace(snapshot, clusters=free), 1.0))


def _best(snapshot: Snapshot, threshold: float) -> Plan:
    return planned(snapshot, "oas", threshold, patience=PATIENCE)


def _replayed(program: Path, cases: Iterable[Case], **arguments: Any) -> list[Replayed]:
    return [job for c in cases for job in replay(program, c.snapshot, c.plan, **arguments)]


def _deviation(job: Replayed) -> float:
    return abs(job.ended - job.planned.end) / (job.planned.end - job.planned.start)


def _share(jobs: Sequence[Replayed]) -> str:
    """Mean share of the planned slowdown that came about, and who passed the plan."""
    if not jobs:
        return "-"
    beyond = [job.seconds / job.longest - 1.0 for job in jobs]
    over = [excess for excess in beyond if excess > LATE]
    text = _percent(fmean(job.slowdown for job in jobs))
    return f"{text}; {len(over)} beyond, by {_percent(max(over))}" if over else text


def _planned_makespan(case: Case) -> float:
    return max(placement.end for placement in case.plan.placements) - case.snapshot.time


def _makespan(program: Path, case: Case, **arguments: Any) -> float:
    return max(job.ended for job in _replayed(program, [case], **arguments)) - case.snapshot.time


def _relative(values: Iterable[float], reference: Sequence[float]) -> str:
    return f"{fmean(v / r for v, r in zip(values, reference, strict=True)):.3f}"


def _carried(cases: Iterable[Case]) -> float:
    """Gigabits that jobs send over links for each that is booked: peak load times run time."""
    booked = carried = 0.0
    for case in cases:
        home = {node.name: cluster.name for cluster, node in case.snapshot.nodes()}
        jobs = {job.id: job for job in case.snapshot.queue}
        for placement in case.plan.placements:
            job = jobs[placement.job]
            assert isinstance(job, RigidJob)
            inside: dict[str, int] = {}
            for node, count in placement.nodes.items():
                inside[home[node]] = inside.get(home[node], 0) + count
            load = sum(link_loads(job.proc_gbps, inside).values())
            booked += load * (placement.end - placement.start)
            carried += load * (1.0 - job.sigma) * job.base_time
    return carried / booked


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %" if share >= 1e-5 else "< 0.001 %"


TABLES = {"held": held, "saturated": saturated, "conservative": conservative}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    absent = missing()
    if absent:
        parser.exit(1, f"{absent}\n")
    with tempfile.TemporaryDirectory() as folder:
        for row in TABLES[args.table](build(Path(folder)), args.seeds):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
