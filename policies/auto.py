"""The one default: EASY at once, then whatever does better.

The first incumbent is EASY, the order operators know. Then conservative backfilling and the other
orders, each starting what fits, are decoded while the budget lasts; then, for queues of rigid,
moldable and other jobs alike, the search of `oas` over orders and allotments goes on, until it
proves its plan, finds nothing better for a while (option ``patience``), or is told to stop. The
best by (jobs without a start, the objective, the other one of makespan and weighted completion) is
the plan, so it is never worse than EASY in this order.

Jobs that were passed over too often are booked first in all of these (option ``guard_after``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, Solve
from coalloc.policies.kernel.decoding import Planner
from coalloc.policies.oas.search import Search

FIRST = (("easy", "easy"),)
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
    """Plan with the best of the simple policies and of the search."""
    search = Search(Planner(problem, options), "auto", budget, on_incumbent)
    search.run(FIRST, TRIALS)
    return search.plan()


SOLVERS: Mapping[str, Solve] = {"auto": solve}
