"""Linear programs, solved by HiGHS.

One thread: the same program gives the same bound.
"""

from __future__ import annotations

from functools import cached_property

import highspy
import numpy as np

from coalloc.policies.array_types import Floats, Ints


class LinearProgram:
    """``min cost x`` with ``lower <= x <= upper``, and rows that are added block by block."""

    def __init__(self, cost: Floats, lower: Floats, upper: Floats | float) -> None:
        self.cost, self.lower = cost, lower
        self.upper = np.broadcast_to(np.asarray(upper, dtype=np.float64), cost.shape)
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._limits: list[tuple[Floats, Floats]] = []
        self._closed = 0

    def add(self, row: Ints, col: Ints, value: Floats | float) -> None:
        """Put cells into the open block, whose rows count from 0; one value serves them all.

        A cell is named once.
        """
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), row.shape)
        self._entries.append((row.astype(np.int64) + self._closed, col.astype(np.int64), values))

    def close(self, size: int, low: Floats | float, high: Floats | float) -> None:
        """End the block: how many rows it has, and their limits."""
        self._limits.append((np.broadcast_to(low, (size,)), np.broadcast_to(high, (size,))))
        self._closed += size

    def cut(self, col: Ints, value: Floats, high: float) -> None:
        """Add a row to what is solved next, which begins with the last solution."""
        self._solver.addRow(-highspy.kHighsInf, high, col.size, col.astype(np.int32), value)

    def solve(self) -> tuple[float, Floats] | None:
        """Return the least cost and an x that has it; None where HiGHS does not say optimal."""
        solver = self._solver
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        columns = np.array(solver.getSolution().col_value)
        return float(solver.getInfo().objective_function_value), columns

    @cached_property
    def _solver(self) -> highspy.Highs:
        """The solver that has the program."""
        row, col, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        low, high = (np.concatenate(part) for part in zip(*self._limits, strict=True))
        order = np.lexsort((row, col))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.cost.size, self._closed
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.cost, self.lower, self.upper
        lp.row_lower_, lp.row_upper_ = low, high
        counts = np.bincount(col, minlength=self.cost.size)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        lp.a_matrix_.index_ = row[order].astype(np.int32)
        lp.a_matrix_.value_ = value[order]
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.passModel(lp)
        return solver
