"""Linear programs, solved by HiGHS.

One thread: the same program gives the same bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from coalloc.policies.array_types import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearProgram:
    """``min cost x`` with ``lower <= x <= upper`` and ``low <= A x <= high``."""

    cost: Floats
    lower: Floats
    upper: Floats
    low: Floats
    high: Floats
    entries: Sequence[tuple[Ints, Ints, Floats]]
    """Of A, each three arrays of one length; a cell is named once."""


class LpRows:
    """Rows of a program, block by block; `entries` are the cells of each, as in `LinearProgram`."""

    def __init__(self) -> None:
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        self._low: list[Floats] = []
        self._high: list[Floats] = []
        self._closed = 0

    def add(self, row: Ints, col: Ints, value: Floats | float) -> None:
        """Put cells into the open block, whose rows count from 0; one value serves them all."""
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), row.shape)
        self.entries.append((row.astype(np.int64) + self._closed, col.astype(np.int64), values))

    def close(self, size: int, low: Floats | float, high: Floats | float) -> None:
        """End the block: how many rows it has, and their limits."""
        self._low.append(np.broadcast_to(np.asarray(low, dtype=np.float64), (size,)))
        self._high.append(np.broadcast_to(np.asarray(high, dtype=np.float64), (size,)))
        self._closed += size

    def limits(self) -> tuple[Floats, Floats]:
        """Return the lower and upper limits of all rows."""
        return np.concatenate(self._low), np.concatenate(self._high)


def solve(program: LinearProgram) -> tuple[float, Floats] | None:
    """Return the least cost and an x that has it; None where HiGHS does not say optimal."""
    row, col, value = (np.concatenate(part) for part in zip(*program.entries, strict=True))
    order = np.lexsort((row, col))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = program.cost.size, program.low.size
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.low, program.high
    counts = np.bincount(col, minlength=program.cost.size)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    lp.a_matrix_.index_ = row[order].astype(np.int32)
    lp.a_matrix_.value_ = value[order]
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    columns = np.array(solver.getSolution().col_value)
    return float(solver.getInfo().objective_function_value), columns
