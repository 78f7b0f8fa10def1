"""A plan with its divisible jobs: placements, objective, bounds, status and front.

Notes
-----
*Bounds.* With the idle time beside running work only, no job ends before

- one chunk has ended on the node where that is soonest;
- all its chunks fit: by T a lane that is idle from a on takes (T - a) * power / chunk_s of them,
  and one that stays idle only whole ones.

No plan ends before the area of all its jobs is there: by T a lane gives (T - a) * power. A rigid or
moldable job of n processes and base time t takes at least n * t * (sigma + (1 - sigma) * p), with
the weakest power p of any node, since it takes n nodes of at least the power m of the weakest for
t * (sigma / m + 1 - sigma); a workflow's task at least its work, a divisible job its chunks.

Makespan is at least the largest of these; weighted completion at least the sum of what each
divisible job alone needs, beside what is known of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nextafter

import numpy as np

from coalloc.model.cost import base_time, within_limit
from coalloc.model.jobs import DivisibleJob, Job, RigidJob, WorkflowJob
from coalloc.model.plan import FrontPoint, Placement, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import TableSpeedup
from coalloc.model.values import replace
from coalloc.policies.base import OnIncumbent, at_most
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.divisible.filling import Filled, Gaps, divisible, fill
from coalloc.policies.divisible.idle import Idle
from coalloc.policies.halving import halved

MAKESPAN, WEIGHTED = "makespan", "weighted_completion"
Rank = tuple[int, float]
"""Jobs without a start, then the objective; smaller is better."""
OPTIMAL = 5e-10
"""A value within this share of its bound is proved; half of what the checker allows."""


class Completing:
    """Completes the plans of one call of a policy, and passes on those that are better still.

    What is as good or better without divisible jobs may be worse with them: by a chunk, or by what
    it takes from the only nodes that will do. So the policy tells every simple order that it tries,
    and the best with them is kept. `listener` is that of the caller.
    """

    def __init__(self, snapshot: Snapshot, listener: OnIncumbent | None) -> None:
        self.snapshot = snapshot
        self._listener = listener
        self._best: Plan | None = None
        self._without: Rank = (0, inf)
        self._divisible = {job.id for job in divisible(snapshot)}

    def tell(self, plan: Plan) -> None:
        """Take an incumbent of the policy, or another plan that it knows."""
        least = self._least(plan)
        if self._best is not None and least >= _rank(self._best):
            return
        whole = complete(self.snapshot, plan)
        if self._best is None or _rank(whole) < _rank(self._best):
            self._best, self._without = whole, least
            if self._listener is not None:
                self._listener(whole)

    def _least(self, plan: Plan) -> Rank:
        """The rank of a plan without its divisible jobs, which it does not pass with them."""
        others = {entry.job for entry in plan.deferred} - self._divisible
        return len(others), plan.objective.value

    def last(self, plan: Plan) -> Plan:
        """The policy's own answer, or a better one that was told before, with what it proved."""
        whole = complete(self.snapshot, plan)
        best = self._best
        if best is None or whole.front or _rank(whole) <= _rank(best):
            return whole
        if self._without < self._least(plan):  # the policy does not go by its objective
            return whole
        bound = whole.objective.bound
        status = whole.status
        if status is Status.OPTIMAL:
            status = Status.HEURISTIC if bound is None else Status.FEASIBLE
        if bound is not None:
            bound = min(bound, best.objective.value)
        objective = replace(best.objective, bound=bound)
        return replace(best, status=status, objective=objective, stats=whole.stats)


def _rank(plan: Plan) -> Rank:
    return plan.objective.deferred, plan.objective.value


def complete(snapshot: Snapshot, plan: Plan) -> Plan:
    """Fill the idle time of a plan with the divisible jobs of its queue; others stay.

    The plan has a start, or a reason, for every other job. Where every divisible job is held, it is
    returned itself.
    """
    waiting = {job.id for job in divisible(snapshot) if not job.held}
    placed = {placement.job for placement in plan.placements}
    if not waiting or not waiting.isdisjoint(placed):
        return plan
    if plan.front and plan.chosen is not None:
        return _with_front(snapshot, plan)
    filled = fill(snapshot, plan, plan.placements)
    return _valued(snapshot, _answered(plan, filled), plan)


def _answered(plan: Plan, filled: Filled) -> Plan:
    """The plan with pieces, and one answer for each divisible job."""
    mine = {piece.job for piece in filled.pieces} | {entry.job for entry in filled.deferred}
    deferred = tuple(entry for entry in plan.deferred if entry.job not in mine)
    return replace(
        plan,
        placements=(*plan.placements, *filled.pieces),
        deferred=(*deferred, *filled.deferred),
    )


def _valued(snapshot: Snapshot, plan: Plan, before: Plan) -> Plan:
    value = values(snapshot, plan.placements)[plan.objective.name]
    bound = before.objective.bound
    if bound is not None and not before.certificates and not before.front:
        # A bound beside certificates is one that they prove, of the other jobs.
        more = divisible_bounds(snapshot, plan)
        if plan.objective.name == MAKESPAN:
            bound = max(bound, more.makespan)
        elif plan.objective.name == WEIGHTED:
            bound += more.weighted_completion
    status = before.status
    if status is Status.INFEASIBLE and plan.placements:
        status = Status.HEURISTIC
    if status is Status.OPTIMAL and (bound is None or value > bound * (1.0 + OPTIMAL)):
        status = Status.HEURISTIC if bound is None else Status.FEASIBLE
    jobs = len({entry.job for entry in plan.deferred})
    objective = replace(plan.objective, value=value, bound=at_most(bound, value), deferred=jobs)
    return replace(plan, objective=objective, status=status)


def values(snapshot: Snapshot, placements: Sequence[Placement]) -> dict[str, float]:
    """Measure placements; a job of several counts once, at the last.

    ``makespan`` and ``total_execution`` are seconds, ``weighted_completion`` weighted seconds.
    """
    ends: dict[str, float] = {}
    for placement in placements:
        ends[placement.job] = max(ends.get(placement.job, -inf), placement.end)
    now = snapshot.time
    return {
        MAKESPAN: max(ends.values(), default=now) - now,
        WEIGHTED: sum(
            job.weight * (ends[job.id] - now) for job in snapshot.queue if job.id in ends
        ),
        "total_execution": sum(p.end - p.start for p in placements),
    }


def _with_front(snapshot: Snapshot, plan: Plan) -> Plan:
    """Fill every point of the front; those that are dominated then are left out."""
    assert plan.chosen is not None
    filled = [fill(snapshot, plan, point.placements) for point in plan.front]
    points = [
        _point(snapshot, plan, point, one) for point, one in zip(plan.front, filled, strict=True)
    ]
    front = _undominated(points)
    was = points[plan.chosen]
    chosen = next(
        point
        for point in front
        if point.cmax <= was.cmax and point.weighted_completion <= was.weighted_completion
    )
    at = points.index(chosen)
    whole = _answered(replace(plan, placements=plan.front[at].placements), filled[at])
    gaps = [point.pareto_gap for point in front if point.pareto_gap is not None]
    return replace(
        _valued(snapshot, whole, plan),
        front=tuple(front),
        chosen=front.index(chosen),
        pareto_gap=min(gaps, default=None),
    )


def _point(snapshot: Snapshot, plan: Plan, point: FrontPoint, filled: Filled) -> FrontPoint:
    """The point with its pieces; what was proved of the other jobs holds for all.

    With C, S before and C', S' now, a gap g says that max(C / T, S / LB(T)) = 1 + g for some T; so
    max(C' / T, S' / LB(T)) is at most (1 + g) * max(C' / C, S' / S).
    """
    placements = (*point.placements, *filled.pieces)
    now = values(snapshot, placements)
    cmax, total = now[MAKESPAN], now[WEIGHTED]
    bound, gap = point.weighted_completion_bound, point.pareto_gap
    if cmax > point.cmax:
        known = [
            float(item["value"])
            for item in plan.certificates
            if item.get("cap") is None or float(item["cap"]) >= cmax
        ]
        bound = max(known, default=None)
    if gap is not None:
        least = min(point.cmax, point.weighted_completion)
        growth = max(cmax / point.cmax, total / point.weighted_completion) if least > 0.0 else inf
        gap = (1.0 + gap) * max(growth, 1.0) - 1.0 if growth < inf else None
    return replace(
        point,
        cmax=cmax,
        weighted_completion=total,
        cmax_bound=at_most(point.cmax_bound, cmax),
        weighted_completion_bound=at_most(bound, total),
        pareto_gap=gap,
        placements=placements,
    )


def _undominated(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """By rising cmax, those whose weighted completion is the least so far."""
    kept: list[FrontPoint] = []
    for point in sorted(points, key=lambda point: (point.cmax, point.weighted_completion)):
        if not kept or point.weighted_completion < kept[-1].weighted_completion:
            kept.append(point)
    return kept


ROUNDING = 1e-11
"""Share of a bound that is given up."""
TINY = 1e-9
"""Chunk of a job that fits wherever anything does, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisibleBounds:
    """Seconds from the snapshot's time, and what to add to a bound on weighted completion."""

    makespan: float
    weighted_completion: float


def divisible_bounds(snapshot: Snapshot, plan: Plan) -> DivisibleBounds:
    """Bound what any plan reaches that has a start for the same jobs."""
    left = {entry.job for entry in plan.deferred}
    jobs = [job for job in divisible(snapshot) if job.id not in left]
    if not jobs or needs_counting(snapshot):  # a process is no lane
        return DivisibleBounds(makespan=0.0, weighted_completion=0.0)
    step = plan.options.get("power_step") or 0.0
    idle = Idle(snapshot, (), step)
    now = snapshot.time
    kept = 1.0 - ROUNDING
    alone = [kept * max(_alone(idle, job) - now, 0.0) for job in jobs]
    others = [job for job in snapshot.queue if job.id not in left]
    return DivisibleBounds(
        makespan=max([kept * (_area(snapshot, others, step) - now), *alone]),
        weighted_completion=sum(job.weight * end for job, end in zip(jobs, alone, strict=True)),
    )


def _alone(idle: Idle, job: DivisibleJob) -> float:
    """No plan ends this job earlier, seconds."""
    rows = idle.gaps(job, max(job.earliest, idle.snapshot.time))
    if not rows:
        return idle.snapshot.time
    gaps = Gaps(idle, rows, job)
    cut = {gap.group for gap in rows if gap.end < inf}
    is_cut = np.array([gap.group in cut for gap in rows], dtype=np.bool_)

    def room(until: float) -> float:
        return float(np.where(is_cut, gaps.filled(until), gaps.rounds(until)) @ gaps.lanes)

    return max(float((gaps.start + gaps.chunk).min()), _reached(room, job.chunks, gaps))


def _area(snapshot: Snapshot, jobs: Sequence[Job], power_step: float) -> float:
    """No plan of all these jobs ends earlier, seconds."""
    idle = Idle(replace(snapshot, reservations=()), (), power_step)
    tiny = DivisibleJob(id="", work=1.0, chunk_s=TINY)
    rows = idle.gaps(tiny, snapshot.time)
    if not rows:
        return snapshot.time
    gaps = Gaps(idle, rows, replace(tiny, chunk_s=1.0))
    weakest = min(group.power for group in idle.groups)
    areas = sum(_least_area(job, weakest) for job in jobs)
    return _reached(lambda until: float(gaps.filled(until) @ gaps.lanes), areas, gaps)


def _least_area(job: Job, weakest: float) -> float:
    """Seconds on one full-speed node that the job takes at least, however it is placed.

    A process that runs into the time limit has taken this of the weakest node at least.
    """
    limited = within_limit(job, inf) * weakest
    if isinstance(job, DivisibleJob):
        return job.chunks * min(job.chunk_s, limited)
    if isinstance(job, WorkflowJob):
        return sum(min(task.work, task.min_procs * limited) for task in job.tasks)
    if isinstance(job, RigidJob):
        procs = job.procs
    elif isinstance(job.speedup, TableSpeedup):
        procs = min(n for n in job.speedup.procs if n >= job.min_procs)
    else:
        procs = job.min_procs
    seconds = base_time(job, procs) * (job.sigma + (1.0 - job.sigma) * weakest)
    return procs * min(seconds, limited)


def _reached(room: Callable[[float], float], amount: float, gaps: Gaps) -> float:
    """The last instant known at which less than this amount has fit, seconds."""
    low = float(gaps.start.min())
    high = nextafter(low + max(amount, 1.0), inf)
    while room(high) < amount:
        low, high = high, high + 2.0 * (high - float(gaps.start.min()))
        if high == inf or room(inf) < amount:
            return low
    return halved(low, high, lambda until: room(until) < amount)[0]
