"""Solving the node-class program, so that its answer keeps the links exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pulp

from coalloc.policies.allocation.placing import Allocation, overloaded
from coalloc.policies.mip.allocating import ClassModel
from coalloc.policies.mip.runner import End, Limits, Outcome, run


def solve_model(
    model: ClassModel,
    objective: list[tuple[Any, float]],
    limits: Limits,
    start: Allocation | None = None,
    on_allocation: Callable[[Allocation], None] | None = None,
    rank: Callable[[int], float] | None = None,
) -> tuple[Outcome, Allocation | None]:
    """Minimise an objective over a built model; the answer keeps the links exactly.

    Returns
    -------
    outcome, allocation
        Of the last run of the solver; None if it found no allocation.
    """
    model.problem.setObjective(pulp.LpAffineExpression(objective))
    first = model.start(start) if start is not None else None
    scene, threshold = model.scene, model.threshold

    def offer(outcome: Outcome) -> None:
        found = model.allocation(outcome, rank)
        if on_allocation is not None and not overloaded(scene, found, threshold):
            on_allocation(found)

    nodes = 0
    while True:
        outcome = run(model.problem, limits.less(nodes), first, offer)
        nodes += outcome.nodes
        outcome = replace(outcome, nodes=nodes)
        if outcome.values is None:
            return outcome, None
        found = model.allocation(outcome, rank)
        over = overloaded(scene, found, threshold)
        if not over:
            return outcome, found
        for k in over:
            model.cut(found, k)
        if outcome.end is not End.OPTIMAL:
            return replace(outcome, values=None), None
