"""A slotted plan as a real machine would carry it out."""

from __future__ import annotations

from collections.abc import Mapping

from coalloc.model.plan import Placement, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.check import occupation_violations
from coalloc.simulation.reproduce.solving import NotAllowedError, loads_of

Loads = Mapping[str, float]


def carried_out(snapshot: Snapshot, plan: Plan) -> float:
    """Makespan of a plan's order and nodes without its slots, seconds.

    Jobs are taken in the order of their planned starts. Each starts on its planned nodes as soon
    as they are free and the links can carry it; none starts later than planned.

    Raises `NotAllowedError` if the result breaks a rule, which would be a defect of this function.
    """
    capacity = {cluster.name: cluster.link_gbps for cluster in snapshot.clusters}
    loads_by_job = loads_of(snapshot, plan)
    done: list[tuple[Placement, Loads]] = []
    for placement in sorted(plan.placements, key=lambda p: (p.start, p.end)):
        loads = loads_by_job[placement.job]
        length = placement.end - placement.start
        ready = max(
            (p.end for p, _ in done if p.nodes.keys() & placement.nodes.keys()),
            default=snapshot.time,
        )
        ends = sorted(p.end for p, _ in done if p.end > ready)
        start = next(
            time for time in (ready, *ends) if _fits(done, loads, capacity, time, time + length)
        )
        done.append((replace(placement, start=start, end=start + length), loads))
    moved = [placement for placement, _ in done]
    faults = occupation_violations(snapshot, moved)
    if faults:
        raise NotAllowedError(f"a plan carried out without its slots: {faults[0]}")
    return max(p.end for p in moved) - snapshot.time


def _fits(
    done: list[tuple[Placement, Loads]], loads: Loads, capacity: Loads, start: float, end: float
) -> bool:
    """Whether the links carry a job all the time; load only rises where some job starts."""
    instants = [start, *(p.start for p, _ in done if start < p.start < end)]
    for name, load in loads.items():
        for time in instants:
            there = sum(w.get(name, 0.0) for p, w in done if p.start <= time < p.end)
            if there + load > capacity[name] * (1.0 + 1e-9):
                return False
    return True
