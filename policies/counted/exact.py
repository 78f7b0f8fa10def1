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
from coalloc.policies.mip.cp_sat import NOT_INSTALLED, UnfitError, cp_model, minimize

MOST_ITEMS = 60
"""It proves little that is larger."""
FINE = 1 << 20
"""Units of the longest run, where times have no common measure."""
NEAR = 1e-9
"""By so much, of a unit or relative, a time may pass a whole one."""


class ExactProject:
    """The model of a project; `bound` is a valid one of its last end, in seconds.

    Raises `UnfitError`, with the reason, where the search does not apply.
    """

    def __init__(self, project: Project, bound: float, seed: int) -> None:
        cp, items = cp_model(), range(len(project.length))
        if cp is None:
            raise UnfitError(NOT_INSTALLED)
        if len(items) > MOST_ITEMS:
            raise UnfitError(f"more than {MOST_ITEMS} jobs")
        self.seed, self.work, self.bound, self.ended = seed, 0, bound, False
        self.unit = common_measure(project.length) or float(project.length.max()) / FINE or 1.0
        runs = [floor(seconds / self.unit + NEAR) for seconds in project.length.tolist()]
        self.model = model = cp.CpModel()
        self.start = [model.new_int_var(0, sum(runs), "") for _ in items]
        self.last = model.new_int_var(0, sum(runs), "")
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

    def run(self, reached: float, work: int, stop: Callable[[], bool]) -> list[int] | None:
        """The order of something that ends before `reached`, if so much work finds one."""
        low = ceil(self.bound / self.unit * (1.0 - NEAR))
        high = ceil(reached / self.unit * (1.0 - NEAR)) - 1
        answer = minimize(self.model, self.last, low, high, work=work, seed=self.seed, stop=stop)
        self.work += answer.work
        self.ended, value = answer.proved, answer.value
        none = answer.proved and value is None
        self.bound = max(self.bound, reached if none else min(answer.bound * self.unit, reached))
        if value is None:
            return None
        starts = [value(start) for start in self.start]
        return sorted(range(len(starts)), key=starts.__getitem__)
