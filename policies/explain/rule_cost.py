"""Cost of a rule of the site: two plans of one queue, with the rule and without, in one measure.

Both are measured by the sum of weight times completion, with the weights of the queue without
shares, over the jobs that both place. The rule costs the difference; since no plan of the queue
without the rule is below its bound, it costs no more than its plan is above that bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot

GUARD = "guard"
"""Against starvation: an option of policies, not a rule that snapshots have."""
NO_GUARD: Mapping[str, Any] = {"wait_limit": None, "wait_factor": None, "guard_after": 0}
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCost:
    """Cost of one rule."""

    rule: str
    with_rule: float
    """Weighted completion of the jobs that both plans place, weight times seconds."""
    without: float
    bound: float | None
    """No plan without the rule is below it; None: not known for the same jobs."""
    jobs: int
    """That both plans place."""
    held: int
    """That only the plan without the rule places."""

    @property
    def cost(self) -> float:
        """Of the rule, as these plans have it; below 0 where it helps the others."""
        return self.with_rule - self.without

    @property
    def at_most(self) -> float | None:
        """Range of its cost, whatever plans there are; nothing within rounding is nothing."""
        if self.bound is None:
            return None
        most = self.with_rule - self.bound
        return most if most > ROUNDING * abs(self.with_rule) else 0.0


def plain_weights(given: Snapshot, lifted: Mapping[str, Snapshot]) -> dict[str, float]:
    """Weights of jobs without shares, by which all plans are measured."""
    return {job.id: job.weight for job in lifted.get("shares", given).queue}


def rule_cost(
    rule: str, kept: Plan, free: Plan, without: Snapshot, weights: Mapping[str, float]
) -> RuleCost:
    """Compare two plans.

    `kept`, `free`: with the rule, and without it.
    `without`: that `free` was made for.
    `weights` (mapping of job to weight): see `plain_weights`; others weigh 1.
    """
    now = without.time
    with_ends, free_ends = _ends(kept), _ends(free)
    both = with_ends.keys() & free_ends.keys()

    def measure(ends: Mapping[str, float]) -> float:
        return sum(weights.get(job, 1.0) * (ends[job] - now) for job in both)

    own = {job.id: job.weight for job in without.queue}
    same = both == free_ends.keys() and all(own[job] == weights.get(job, 1.0) for job in both)
    is_weighted = free.objective.name == "weighted_completion"
    return RuleCost(
        rule=rule,
        with_rule=measure(with_ends),
        without=measure(free_ends),
        bound=free.objective.bound if same and is_weighted else None,
        jobs=len(both),
        held=len(free_ends.keys() - with_ends.keys()),
    )


def _ends(plan: Plan) -> dict[str, float]:
    ends: dict[str, float] = {}
    for placement in plan.placements:
        ends[placement.job] = max(ends.get(placement.job, placement.end), placement.end)
    return ends
