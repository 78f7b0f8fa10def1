"""Policies that lay a queue once, without a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.kernel.instance.decoding import Planner, Schedule

Lay = Callable[[Planner, Mapping[str, Any]], tuple[Schedule, Mapping[str, Any]]]
"""From a planner whose queue is not empty, and options, to a schedule and what stats say of it."""


def one_pass(name: str, lay: Lay) -> SolveFunction:
    """The policy of this name; it has no use for a budget but its seed, which plans repeat."""

    def solve(
        problem: Snapshot,
        options: Mapping[str, Any],
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> Plan:
        planner = Planner(problem, options, budget.origin)
        if not planner.items:
            return planner.plan(planner.decode([], "event"), name, budget.seed)
        schedule, stats = lay(planner, options)
        return planner.plan(schedule, name, budget.seed, stats)

    return solve
