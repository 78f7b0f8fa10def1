"""CBS, chunk big small: one job after the other, most of it in one cluster, blind to power.

A job that some cluster can hold alone goes to the first one that does. Otherwise one cluster takes
all it can, if that is at least ``chunk`` of the processes and its link carries it: the first of
those that take most. The others fill in, the emptiest first. Nodes are taken in snapshot order.

Deviations
----------
The paper names the chunk (75 %) and FCFS only; which cluster is tried first, and where the rest
goes, are ours.

References
----------
Jones, Ligon, Pang, Stanzione, "Characterization of bandwidth-aware meta-schedulers for
co-allocating jobs across multiple clusters", Journal of Supercomputing 34(2), 2005.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from coalloc.model.plan import Plan, Status
from coalloc.policies.allocation.choosing import Rest, patient, select, spread
from coalloc.policies.allocation.placing import Uses, make_plan
from coalloc.policies.allocation.scene import CandidateJob, Scene, on_scene
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction


def chunk_and_rest(rest: Rest, job: CandidateJob, chunk: float) -> Uses | None:
    """Choose clusters and nodes for one job."""
    room = patient(rest, job)
    free = [0] * len(rest.links)
    for c, count in room.items():
        free[rest.scene.classes[c].cluster] += count
    for k, count in enumerate(free):
        if count >= job.procs:
            return spread(rest, room, _take(free, {k: job.procs}), float)
    if not job.splits:
        return None
    low = rest.low_sides(job)
    least = ceil(job.procs * chunk - 1e-9)
    for leading in sorted(range(len(free)), key=lambda k: (-free[k], k)):
        inside = _admitted(job.procs, free[leading], low[leading])
        if inside < least:
            continue
        taken = {leading: inside}
        left = job.procs - inside
        for k in sorted(range(len(free)), key=lambda k: (-free[k], k)):
            if k != leading and left > 0:
                taken[k] = _admitted(job.procs, min(free[k], left), low[k])
                left -= taken[k]
        if left == 0:
            return spread(rest, room, _take(free, taken), float)
    return None


def _admitted(procs: int, most: int, low: int) -> int:
    """The largest count up to `most` that a link admits: 0..low and procs - low..procs."""
    return most if most >= procs - low else min(most, low)


def _take(free: list[int], taken: Mapping[int, int]) -> list[int]:
    return [taken.get(k, 0) for k in range(len(free))]


def plan(scene: Scene, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan the jobs that start now."""
    chunk = scene.options.get("chunk", 0.75)
    selection = select(scene, lambda rest, job: chunk_and_rest(rest, job, chunk))
    return make_plan(
        scene,
        selection.allocation,
        selection.deferred,
        policy="cbs",
        status=Status.HEURISTIC,
        stats={"work": len(selection.allocation.jobs), "seed": budget.seed},
    )


SOLVERS: Mapping[str, SolveFunction] = {"cbs": on_scene(plan)}
