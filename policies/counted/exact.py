"""The exact search of a project: proves the last end, by CP-SAT where it is installed.

An interval for each item, no more of each amount than there is, children behind their parents.
Times and amounts are rounded down to whole units, so a bound of the model is one of the plans; an
order of starts makes the plan, which is no longer where they are whole.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor

from coalloc.policies.bounds.measure import common_measure
from coalloc.policies.kernel.counted.project import Project
from coalloc.policies.mip.cp_sat import NOT_INSTALLED, cp_model, minimize, next_call

EXACT = "exact search"
PLACED = 60
"""Items placed in the time of one of its work."""
MOST_ITEMS = 60
"""It proves little that is larger."""
FINE = 1 << 20
"""Units of the longest run, where times have no common measure."""
NEAR = 1e-9
"""By so much, of a unit or relative, a time may pass a whole one."""


class ExactProject:
    """The model of a project, and calls of the solver of so much work (`most`) in all.

    `bound` is a valid one of the last end, in seconds; `unfit` says why nothing is searched.
    """

    def __init__(self, project: Project, most: int, bound: float | None, seed: int) -> None:
        self.most, self.bound, self.seed, self.work = most, bound or 0.0, seed, 0
        cp, items = cp_model(), range(len(project.length))
        reason = NOT_INSTALLED if cp is None else f"more than {MOST_ITEMS} jobs"
        self.ended = most == 0 or cp is None or len(items) > MOST_ITEMS
        self.unfit = f"none: {reason}" if self.ended and most else ""
        if self.ended:
            return
        self.unit = common_measure(project.length) or float(project.length.max()) / FINE or 1.0
        runs = [floor(seconds / self.unit + NEAR) for seconds in project.length.tolist()]
        self.model = model = cp.CpModel()
        self.last, *self.start = (model.new_int_var(0, sum(runs), "") for _ in [0, *items])
        spans = [
            model.new_fixed_size_interval_var(start, run, "")
            for start, run in zip(self.start, runs, strict=True)
        ]
        for taken, size in zip(project.take.T.tolist(), project.size.tolist(), strict=True):
            model.add_cumulative(spans, [floor(amount) for amount in taken], floor(size))
        for i, start in enumerate(self.start):
            model.add(self.last >= start + runs[i])
            for j in project.child[project.child_first[i] : project.child_first[i + 1]].tolist():
                model.add(self.start[j] >= start + runs[i])

    def run(
        self, reached: float, left: int, stop: Callable[[], bool], *, alone: bool
    ) -> tuple[list[int] | None, int]:
        """A call: the order of something that ends before `reached`, or None, and items' work.

        So much work of items is left, of which half is for breeding, unless it is `alone`.
        """
        rest, before = self.most - self.work, self.work
        some = rest if alone else min(next_call(before), rest)
        some = max(min(some, left // (PLACED if alone else 2 * PLACED)), 1)
        self.ended = some < before  # it would not come further than those before
        if self.ended:
            return None, 0
        low = ceil(self.bound / self.unit * (1.0 - NEAR))
        high = ceil(reached / self.unit * (1.0 - NEAR)) - 1
        value, bound, proved, cost = minimize(
            self.model, self.last, low, high, work=some, seed=self.seed, stop=stop
        )
        self.work += cost
        self.ended = proved or self.work >= self.most
        self.bound = max(self.bound, min(bound * self.unit, reached))
        starts = [] if value is None else [value(start) for start in self.start]
        return sorted(range(len(starts)), key=starts.__getitem__) or None, cost * PLACED
