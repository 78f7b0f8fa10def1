"""The one default: EASY at once, then whatever does better.

The first incumbent is EASY, the order operators know. Then conservative backfilling and the other
orders, each starting what fits, are decoded while the budget lasts. The best by (jobs without a
start, makespan, weighted completion) is the plan, so it is never worse than EASY in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, Solve
from coalloc.policies.kernel.decoding import Planner
from coalloc.policies.simple import sort_items

TRIALS = (
    ("conservative", "insert"),
    ("fpfs", "event"),
    ("lpt", "event"),
    ("bjf", "event"),
    ("spt", "event"),
    ("sjf", "event"),
)


def solve(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Plan with the best of the simple policies."""
    planner = Planner(problem, options)
    best = planner.decode(sort_items(planner, "easy"), "easy")
    order, work, tried = "easy", best.work, 1

    def report() -> Plan:
        return planner.plan(
            best, "auto", budget.seed, {"work": work, "order": order, "tried": tried}
        )

    if on_incumbent is not None:
        on_incumbent(report())
    for name, decoder in TRIALS if planner.items else ():
        if budget.stop() or (budget.work is not None and work >= budget.work):
            break
        schedule = planner.decode(sort_items(planner, name), decoder)
        work += schedule.work
        tried += 1
        if schedule.rank < best.rank:
            best, order = schedule, name
            if on_incumbent is not None:
                on_incumbent(report())
    return report()


SOLVERS: Mapping[str, Solve] = {"auto": solve}
