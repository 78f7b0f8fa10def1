"""``coalloc plan --cost``: what each rule of the site costs the plan, in one measure.

The daemon's queue is planned as it is, and again without shares, limits, guarantees, and the guard
against starvation, by the same policy. Both plans of a rule pass the checker. They are measured
alike: by the sum of weight times completion, with the weights of the queue without shares, over the
jobs that both place. The rule costs the difference; since no plan of the queue without the rule is
below its bound, it costs no more than its plan is above that bound.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coalloc.cli.command import CommandError, connect, print_json
from coalloc.cli.output import figure, show_table
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot

HEADERS = ("RULE", "WITH", "WITHOUT", "COST", "BOUND", "AT MOST", "JOBS", "HELD")
NUMBERS = frozenset(HEADERS) - {"RULE"}
GUARD = "guard"
NO_GUARD: Mapping[str, Any] = {"wait_limit": None, "guard_after": 0}
ROUNDING = 1e-9
TIME_S = 10.0
"""For each plan, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCost:
    """Cost of one rule.

    Attributes
    ----------
    with_rule, without : float
        Weighted completion of the jobs that both plans place, weight times seconds.
    bound : float or None
        No plan without the rule is below it; None: not known for the same jobs.
    jobs : int
        That both plans place.
    held : int
        That only the plan without the rule places.
    """

    rule: str
    with_rule: float
    without: float
    bound: float | None
    jobs: int
    held: int

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


def show_costs(args: Any) -> int:
    """Ask for the queue, plan it with and without each rule, and print what they cost."""
    from coalloc.model.snapshot_json import read_snapshot

    with connect(args) as client:
        answer, policy = client.rules(), client.status().policy
    given = read_snapshot(answer.snapshot)
    lifted = {rule: read_snapshot(body) for rule, body in answer.lifted.items()}
    rows = costs(given, lifted, policy)
    if args.json:
        print_json({"policy": policy, "costs": [_plain(row) for row in rows]})
        return 0
    show_table(HEADERS, map(_cells, rows), right=NUMBERS)
    return 0


def costs(given: Snapshot, lifted: Mapping[str, Snapshot], policy: str) -> list[RuleCost]:
    """The cost of each rule that is lifted, and of the guard.

    Raises
    ------
    CommandError
        A plan did not pass the checker.
    """
    plain = {job.id: job.weight for job in lifted.get("shares", given).queue}
    kept = _planned(given, policy, {})
    rows = [
        _cost(rule, kept, _planned(without, policy, {}), without, plain)
        for rule, without in lifted.items()
    ]
    rows.append(_cost(GUARD, kept, _planned(given, policy, NO_GUARD), given, plain))
    return rows


def _planned(snapshot: Snapshot, policy: str, options: Mapping[str, Any]) -> Plan:
    """A plan that passed the checker, as a round makes it."""
    from coalloc.policies.base import Budget
    from coalloc.policies.check import check
    from coalloc.policies.options import read_options
    from coalloc.policies.registry import lookup

    row = lookup(policy)
    known = {name: value for name, value in options.items() if name in row.options}
    deadline = time.monotonic() + TIME_S
    budget = Budget(stop=lambda: time.monotonic() >= deadline, live=True)
    plan = row.solve(snapshot, read_options(known, row.options), budget)
    violations = check(snapshot, plan).violations
    if violations:
        raise CommandError(f"the plan of {policy} does not pass the checker: {violations[0]}")
    return plan


def _cost(
    rule: str, kept: Plan, free: Plan, without: Snapshot, weights: Mapping[str, float]
) -> RuleCost:
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


def _plain(row: RuleCost) -> dict[str, Any]:
    return {
        "rule": row.rule,
        "with": row.with_rule,
        "without": row.without,
        "cost": row.cost,
        "bound": row.bound,
        "at_most": row.at_most,
        "jobs": row.jobs,
        "held": row.held,
    }


def _cells(row: RuleCost) -> tuple[str, ...]:
    values = (row.with_rule, row.without, row.cost, row.bound, row.at_most)
    return (row.rule, *(figure(value) for value in values), str(row.jobs), str(row.held))
