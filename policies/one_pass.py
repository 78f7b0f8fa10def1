"""Policies as functions of a planner: those that lay a queue once, and those that search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.kernel.instance.decoding import Planner, Schedule

View = TypeVar("View")
Lay = Callable[[Planner, Budget], tuple[Schedule, Mapping[str, Any]]]
"""From a planner whose queue is not empty to a schedule and what stats say of it."""


def on_view(
    view: Callable[[Snapshot, Mapping[str, Any], Budget], View],
    plan: Callable[[View, Budget, OnIncumbent | None], Plan],
) -> SolveFunction:
    """The policy that plans with a view of a snapshot; its options are the view's."""

    def solve(
        problem: Snapshot,
        options: Mapping[str, Any],
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> Plan:
        return plan(view(problem, options, budget), budget, on_incumbent)

    return solve


def on_planner(plan: Callable[[Planner, Budget, OnIncumbent | None], Plan]) -> SolveFunction:
    """The policy that plans with the planner of a snapshot."""
    return on_view(
        lambda snapshot, options, budget: Planner(
            snapshot, options, budget.origin, budget.node_entries
        ),
        plan,
    )


def one_pass(name: str, lay: Lay) -> SolveFunction:
    """The policy of this name, without a search: it tells no incumbents."""

    def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
        if not planner.items:
            return empty_plan(planner, name, budget)
        schedule, stats = lay(planner, budget)
        return planner.plan(schedule, name, budget.seed, stats)

    return on_planner(plan)


def empty_plan(
    planner: Planner, name: str, budget: Budget, stats: Mapping[str, Any] | None = None
) -> Plan:
    """The plan where there is nothing to place."""
    return planner.plan(planner.decode([], "event"), name, budget.seed, stats)
