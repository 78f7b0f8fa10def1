"""A plan with its divisible jobs: placements, objective, bounds, status and front."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from coalloc.model.plan import FrontPoint, Placement, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import OnIncumbent, at_most
from coalloc.policies.divisible.bounds import divisible_bounds
from coalloc.policies.divisible.filling import Filled, divisible, fill

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
