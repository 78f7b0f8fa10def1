"""One way to solve a PuLP model: HiGHS in this process.

How a search ended is told by the solver's own state and the solution's, never by PuLP's ``status``,
which reads *Optimal* after a time limit, too. A search that was stopped keeps its best solution, if
it has one whose whole numbers are whole; values of a relaxation are thrown away.

Notes
-----
A policy has no clock. A limit of time comes in two ways: `SolverLimits.stop`, which the caller
injects and which is polled while the solver works, and `SolverLimits.seconds`, which the solver
measures itself. The caller's kill is the hard limit.

One thread: HiGHS instances of different thread counts do not live in one process, and one thread
repeats its search exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import highspy
import pulp

from coalloc.policies.base import never

WHOLE = 1e-4
"""Tolerance of whole numbers in a solution."""

_ASKED = highspy.cb.HighsCallbackType.kCallbackMipInterrupt
_IMPROVED = highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution
_BY_CLOCK = (highspy.HighsModelStatus.kInterrupt, highspy.HighsModelStatus.kTimeLimit)
_ENDS_GOOD = (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)

Values = Callable[[Any], float]
"""Value of a PuLP variable or expression in a solution."""


class End(StrEnum):
    """End of a search."""

    OPTIMAL = "optimal"
    STOPPED = "stopped"
    """By the clock; `SolverOutcome.values` tells whether there is a solution."""
    SPENT = "spent"
    """By its limit of nodes or of solutions, likewise."""
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverLimits:
    """Limits of a solver's search."""

    seconds: float | None = None
    """The solver's own limit."""
    nodes: int | None = None
    """Limit of nodes of the branch-and-bound tree."""
    first: bool = False
    """End at the first solution."""
    stop: Callable[[], bool] = never
    """Polled; true ends the search."""

    def less(self, nodes: int) -> SolverLimits:
        """Budget that is left after so many nodes."""
        return self if self.nodes is None else replace(self, nodes=max(self.nodes - nodes, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOutcome:
    """Result of a solver."""

    end: End
    values: Mapping[str, float] | None
    """The best solution."""
    bound: float | None
    """Proven lower bound of the objective (all models minimise)."""
    nodes: int
    """Nodes of the tree that were searched."""

    def value(self, variable: Any) -> float:
        """Value of a variable in the solution, whole where it must be."""
        assert self.values is not None
        found = self.values[variable.name]
        return float(round(found)) if variable.cat == pulp.LpInteger else found


def run(
    model: Any,
    limits: SolverLimits,
    on_solution: Callable[[SolverOutcome], None] | None = None,
) -> SolverOutcome:
    """Solve a model.

    `model` (pulp.LpProblem): to be minimised.
    `on_solution`: receives each better solution while HiGHS works.
    """
    if limits.stop():
        return SolverOutcome(end=End.STOPPED, values=None, bound=None, nodes=0)
    if limits.nodes == 0:
        return SolverOutcome(end=End.SPENT, values=None, bound=None, nodes=0)
    model.solve(_Highs(limits, on_solution))
    told = model.solverModel.getInfo()
    by_clock = model.solverModel.getModelStatus() in _BY_CLOCK
    has_one = told.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    whole = any(v.cat == pulp.LpInteger for v in model.variables())
    bound = told.mip_dual_bound if whole else told.objective_function_value
    nodes = max(int(told.mip_node_count), 0)
    return _outcome(model, has_one, float(bound), nodes, End.STOPPED if by_clock else End.SPENT)


class _Highs(pulp.HiGHS):  # type: ignore[misc]
    """PuLP's HiGHS with callbacks that know the model."""

    def __init__(
        self, limits: SolverLimits, on_solution: Callable[[SolverOutcome], None] | None
    ) -> None:
        more = {"mip_max_improving_sols": 1} if limits.first else {}
        if limits.nodes is not None:
            more["mip_max_nodes"] = limits.nodes
        super().__init__(
            msg=False,
            threads=1,
            gapRel=0.0,
            gapAbs=0.0,
            timeLimit=limits.seconds,
            callbackTuple=(self._called, None),
            callbacksToActivate=[_ASKED, _IMPROVED],
            **more,
        )
        self._stop, self._on_solution = limits.stop, on_solution
        self._variables: list[Any] = []

    def callSolver(self, lp: Any) -> None:  # noqa: N802
        self._variables = lp.variables()
        lp.solverModel.run()

    def findSolutionValues(self, lp: Any) -> tuple[int, int]:  # noqa: N802
        try:
            status, state = super().findSolutionValues(lp)
        except KeyError:  # kSolutionLimit: PuLP 3.3 does not know it
            status, state = pulp.LpStatusNotSolved, pulp.LpSolutionIntegerFeasible
        return status, state

    def _called(self, kind: Any, message: str, told: Any, answer: Any, own: Any) -> None:
        if kind == _ASKED:
            answer.user_interrupt = self._stop()
        elif self._on_solution is not None:
            found = list(told.mip_solution)
            values = {v.name: found[v.index] for v in self._variables}
            outcome = SolverOutcome(
                end=End.STOPPED,
                values=values,
                bound=float(told.mip_dual_bound),
                nodes=int(told.mip_node_count),
            )
            self._on_solution(outcome)


def _outcome(
    model: Any, has_one: bool, bound: float | None, nodes: int, unproved: End
) -> SolverOutcome:
    """Result in the model; `unproved` is how the search ended if it has proved nothing."""
    state = model.sol_status
    if state == pulp.LpSolutionInfeasible:
        return SolverOutcome(end=End.INFEASIBLE, values=None, bound=None, nodes=nodes)
    values = None
    if has_one and state in _ENDS_GOOD and _is_whole(model):
        values = {v.name: float(v.varValue or 0.0) for v in model.variables()}
    end = End.OPTIMAL if values and state == pulp.LpSolutionOptimal else unproved
    if bound is not None and not abs(bound) < 1e30:
        bound = None
    return SolverOutcome(end=end, values=values, bound=bound, nodes=nodes)


def _is_whole(model: Any) -> bool:
    return all(
        v.varValue is not None and abs(v.varValue - round(v.varValue)) <= WHOLE
        for v in model.variables()
        if v.cat == pulp.LpInteger
    )
