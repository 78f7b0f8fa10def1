"""From processes per class to placements, and to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum
from typing import Any

from coalloc.model.plan import Deferred, Objective, Placement, Plan, Status
from coalloc.policies.allocation.scene import CandidateJob, Scene, exact, load
from coalloc.policies.holds import fitting

Uses = Mapping[int, int]
"""Processes of one job per class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Jobs that start now together."""

    jobs: tuple[int, ...] = ()
    """Indices into the scene's candidates."""
    uses: tuple[Uses, ...] = ()
    """Processes of each of them per class."""

    def with_job(self, job: int, uses: Uses) -> Allocation:
        """The same with one more job."""
        return replace(self, jobs=(*self.jobs, job), uses=(*self.uses, uses))


def in_order(allocation: Allocation, jobs: Sequence[int]) -> Allocation:
    """The same allocation with its jobs in another order."""
    uses = dict(zip(allocation.jobs, allocation.uses, strict=True))
    return Allocation(jobs=tuple(jobs), uses=tuple(uses[job] for job in jobs))


def link_totals(scene: Scene, allocation: Allocation) -> list[Fraction]:
    """Load on each link, running work included, Gbit/s."""
    totals = list(scene.loaded)
    for job, uses in zip(allocation.jobs, allocation.uses, strict=True):
        for k, inside in scene.per_cluster(uses).items():
            totals[k] += load(scene.candidates[job], inside)
    return totals


def link_ratio(scene: Scene, job: CandidateJob, uses: Uses, totals: Sequence[Fraction]) -> Fraction:
    """Equation (7) as printed: the largest load / capacity over the links that the job loads."""
    worst = Fraction(0)
    for k, inside in scene.per_cluster(uses).items():
        capacity = scene.capacity[k]
        if capacity is not None and load(job, inside) > 0:
            worst = max(worst, totals[k] / capacity)
    return worst


def link_seconds(scene: Scene, allocation: Allocation) -> float:
    """The communication part of equation (8) with (7) as printed, seconds."""
    totals = link_totals(scene, allocation)
    return fsum(
        scene.candidates[j].fixed * float(link_ratio(scene, scene.candidates[j], uses, totals))
        for j, uses in zip(allocation.jobs, allocation.uses, strict=True)
    )


def slowdown(scene: Scene, job: CandidateJob, uses: Uses, totals: Sequence[Fraction]) -> float:
    """Equation (7), clamped at 1."""
    worst = max(Fraction(1), link_ratio(scene, job, uses, totals))
    sc = float(worst)
    # within the tolerance of the links a load is at the capacity
    return 1.0 if worst <= 1 + exact(1e-9) else sc


def lengths(scene: Scene, allocation: Allocation) -> list[tuple[float, float]]:
    """Seconds and SC of each job of an allocation."""
    totals = link_totals(scene, allocation)
    most = scene.threshold
    out = []
    for number, uses in zip(allocation.jobs, allocation.uses, strict=True):
        job = scene.candidates[number]
        weakest = min(scene.classes[c].power for c in uses)
        sc = min(slowdown(scene, job, uses, totals), most)
        out.append((job.seconds(weakest, sc), sc))
    return out


def total_execution(scene: Scene, allocation: Allocation) -> float:
    """Equation (8): the sum of the run times, seconds."""
    return fsum(seconds for seconds, _ in lengths(scene, allocation))


def least_execution(scene: Scene, allocation: Allocation) -> float:
    """The sum of the run times if each job had the platform to itself, seconds: a lower bound."""
    jobs = [scene.candidates[number] for number in allocation.jobs]
    return fsum(job.seconds(max(scene.levels(job))) for job in jobs)


def overloaded(scene: Scene, allocation: Allocation, threshold: float) -> list[int]:
    """Clusters whose link carries more than it may; exact."""
    totals = link_totals(scene, allocation)
    out = []
    for k, total in enumerate(totals):
        limit = scene.limit(k, threshold)
        if limit is not None and total > scene.loaded[k] and total - scene.loaded[k] > limit:
            out.append(k)
    return out


def is_allowed(scene: Scene, allocation: Allocation, threshold: float | None = None) -> bool:
    """Whether an allocation keeps every rule: slots, memory, links, reservations, one cluster."""
    if overloaded(scene, allocation, scene.threshold if threshold is None else threshold):
        return False
    taken = [0] * len(scene.classes)
    filled = [0.0] * len(scene.classes)
    for number, uses, (seconds, _) in zip(
        allocation.jobs, allocation.uses, lengths(scene, allocation), strict=True
    ):
        job = scene.candidates[number]
        if sum(uses.values()) != job.procs or not (job.splits or len(scene.per_cluster(uses)) == 1):
            return False
        for c, count in uses.items():
            taken[c] += count
            filled[c] += count * job.memory_mb
            if count > job.room.get(c, 0) or not scene.admits(job, c, seconds):
                return False
    return all(
        used <= one.capacity and mb <= one.memory_mb * len(one.nodes)
        for used, mb, one in zip(taken, filled, scene.classes, strict=True)
    )


def place(scene: Scene, allocation: Allocation) -> tuple[Placement, ...]:
    """Give real nodes to an allocation, class by class in snapshot order."""
    free = [dict.fromkeys(one.nodes, one.slots) for one in scene.classes]
    now = scene.snapshot.time
    out = []
    for number, uses, (seconds, sc) in zip(
        allocation.jobs, allocation.uses, lengths(scene, allocation), strict=True
    ):
        job = scene.candidates[number]
        chosen: dict[int, int] = {}
        for c, count in uses.items():
            one = scene.classes[c]
            _fill(free[c], count, fitting(one.slots, one.memory_mb, job.memory_mb), chosen)
        out.append(
            Placement(
                job=job.id,
                start=now,
                end=now + seconds,
                nodes={scene.intake.nodes[n].name: chosen[n] for n in sorted(chosen)},
                sc=sc,
            )
        )
    return tuple(out)


def _fill(free: dict[int, int], count: int, each: int, chosen: dict[int, int]) -> None:
    """Take slots node by node; nodes that are used up leave `free`."""
    for n in list(free):
        take = min(free[n], each, count)
        if take > 0:
            chosen[n] = chosen.get(n, 0) + take
            free[n] -= take
            count -= take
        if free[n] == 0:
            del free[n]
        if count == 0:
            return


def make_plan(
    scene: Scene,
    allocation: Allocation,
    deferred: Sequence[Deferred],
    *,
    policy: str,
    status: Status,
    stats: Mapping[str, Any],
    bound: float | None = None,
) -> Plan:
    """Write a plan whose objective is the total execution time.

    The bound is of these jobs, in seconds. With the status *optimal* it is the plan's value, which
    has the rounding of starts and ends far from time 0.
    """
    placements = place(scene, allocation)
    value = fsum(p.end - p.start for p in placements)
    if bound is not None:
        bound = value if status is Status.OPTIMAL else min(bound, value)
    everything = (*scene.waiting, *deferred)
    return Plan(
        policy=policy,
        options=dict(scene.options),
        status=Status.INFEASIBLE if scene.intake.nothing_can_run else status,
        objective=Objective(
            name="total_execution",
            value=value,
            bound=bound,
            deferred=len({entry.job for entry in everything}),
        ),
        placements=placements,
        deferred=everything,
        stats=dict(stats),
    )
