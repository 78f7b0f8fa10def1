"""One way to solve a PuLP model: HiGHS in this process; and rows in whole numbers for it.

PuLP makes HiGHS' model. How a search ended is told by the solver's own state, never by PuLP's
``status``, which reads *Optimal* after a time limit, too. A search that was stopped keeps its best
solution, if it has one whose whole numbers are whole; values of a relaxation are thrown away.

Notes
-----
*Time.* A policy has no clock. A limit of time comes in two ways: `SolverLimits.stop`, which the
caller injects and which is polled while the solver works, and `SolverLimits.seconds`, which the
solver measures itself. The caller's kill is the hard limit.

One thread: HiGHS instances of different thread counts do not live in one process, and one thread
repeats its search exactly.

*Rows.* A link that is exactly full is the rule where capacities are tight, and a solver's tolerance
is larger than the distance between full and over-full. So loads and capacity are scaled to whole
numbers, by their common denominator where this keeps them small. Where it does not, both are
rounded down, which never forbids what is allowed; what passes wrongly is found by exact arithmetic
afterwards and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import floor, gcd, lcm
from typing import Any

import highspy
import pulp

from coalloc.policies.base import never

WHOLE = 1e-4
"""Tolerance of whole numbers in a solution."""

_ASKED = highspy.cb.HighsCallbackType.kCallbackMipInterrupt
_IMPROVED = highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution
_BY_CLOCK = (highspy.HighsModelStatus.kInterrupt, highspy.HighsModelStatus.kTimeLimit)
_IMPOSSIBLE = (
    highspy.HighsModelStatus.kInfeasible,
    highspy.HighsModelStatus.kUnboundedOrInfeasible,
)

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

    def called(kind: Any, message: str, told: Any, answer: Any, own: Any) -> None:
        if kind == _ASKED:
            answer.user_interrupt = limits.stop()
        elif on_solution is not None:
            outcome = SolverOutcome(
                end=End.STOPPED,
                values=_values(model, told.mip_solution),
                bound=float(told.mip_dual_bound),
                nodes=int(told.mip_node_count),
            )
            on_solution(outcome)

    more = {"mip_max_improving_sols": 1} if limits.first else {}
    if limits.nodes is not None:
        more["mip_max_nodes"] = limits.nodes
    solver = pulp.HiGHS(
        msg=False,
        threads=1,
        gapRel=0.0,
        gapAbs=0.0,
        timeLimit=limits.seconds,
        callbackTuple=(called, None),
        callbacksToActivate=[_ASKED, _IMPROVED],
        **more,
    )
    objective = model.fixObjective()
    solver.createAndConfigureSolver(model)
    solver.buildSolverModel(model)
    model.solverModel.run()
    outcome = _outcome(model)
    model.restoreObjective(*objective)
    return outcome


def _outcome(model: Any) -> SolverOutcome:
    """Result of HiGHS, in whose model the solved one is."""
    highs, whole = model.solverModel, [v for v in model.variables() if v.cat == pulp.LpInteger]
    status, told = highs.getModelStatus(), highs.getInfo()
    nodes = max(int(told.mip_node_count), 0)
    if status in _IMPOSSIBLE:
        return SolverOutcome(end=End.INFEASIBLE, values=None, bound=None, nodes=nodes)
    values = None
    if told.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        values = _values(model, highs.getSolution().col_value)
        if any(abs(values[v.name] - round(values[v.name])) > WHOLE for v in whole):
            values = None
    end = End.STOPPED if status in _BY_CLOCK else End.SPENT
    if values and status == highspy.HighsModelStatus.kOptimal:
        end = End.OPTIMAL
    bound = float(told.mip_dual_bound if whole else told.objective_function_value)
    return SolverOutcome(
        end=end, values=values, bound=bound if abs(bound) < 1e30 else None, nodes=nodes
    )


def _values(model: Any, columns: Iterable[float]) -> dict[str, float]:
    return {v.name: x for v, x in zip(model.variables(), columns, strict=True)}


LARGEST = 1_000_000
"""A solver with a tolerance of 1e-6 tells coefficients up to this apart."""


def whole_row(loads: Sequence[Fraction], limit: Fraction) -> tuple[list[int], int]:
    """Scale `sum of chosen loads <= limit` to whole numbers: coefficients and right side.

    Every choice that the fractions allow is allowed; the converse holds as well if a common
    denominator was small enough.
    """
    scale = scale_of(loads, max([*loads, limit], default=Fraction(0)))
    coefficients = [floor(value * scale) for value in loads]
    right = floor(limit * scale)
    common = gcd(*coefficients)
    if common > 1:
        coefficients = [value // common for value in coefficients]
        right //= common
    return coefficients, right


def scale_of(values: Sequence[Fraction], most: Fraction) -> Fraction:
    """The common denominator, or less where `most` times that is too large to be told apart."""
    scale = Fraction(lcm(*(value.denominator for value in values)))
    return LARGEST / most if most * scale > LARGEST else scale
