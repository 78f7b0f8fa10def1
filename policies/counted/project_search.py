"""The search of a project: orders are bred, in turns with the exact search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import numpy as np

from coalloc.policies.base import Budget
from coalloc.policies.counted.exact import ExactProject
from coalloc.policies.counted.planning import CountedQueue
from coalloc.policies.kernel.counted.fits import amount, run_time
from coalloc.policies.kernel.counted.project import Project, breed
from coalloc.policies.kernel.instance.graph import graph_of
from coalloc.policies.kernel.xorshift import seeded
from coalloc.policies.mip.cp_sat import UnfitError, next_call

INDIVIDUALS = 400
ANEW = 60
"""Children in vain for each individual before another population."""
CHUNK = 50
"""Children between two looks at the limits."""
PLACED = 60
"""Items placed in the time of one of the exact search's work."""
EXACT = "exact search"
Step = tuple[str, list[int] | None, int]
"""What was done, the order of something better or None, and the work."""


def project_of(queue: CountedQueue) -> Project | None:
    """The project; None where amounts alone do not say what fits, or change with time."""
    b, items = queue.board, queue.items
    steady = (b.nodes, b.clusters, b.reservations) == (1, 1, 0) and not queue.tables.held
    if not steady or any(len(item.modes) > 1 or item.parts for item in items):
        return None
    n, forms = len(items), b.item_form
    if n < 2 or np.any(b.arrival > 0.0) or np.any(b.low[forms] > 1):
        return None
    sizes = [*b.size[: b.resources], *b.size[b.resources :: b.resources][: b.licences]]
    take = np.array(
        [
            [amount(b, s, 0, b.procs[m], r) for r in range(b.resources)]
            + [b.form_pool[s * b.licences + j] for j in range(b.licences)]
            for s, m in zip(forms, b.mode_first, strict=False)
        ]
    )
    scarce = take.sum(axis=0) > sizes
    scarce[0] |= not scarce.any()
    take, size = np.ascontiguousarray(take[:, scarce]), np.array(sizes)[scarce]
    if np.any(take > size):
        return None
    length = np.array([run_time(b, i, b.mode_first[i], b.power[0], 0) for i in range(n)])
    counts = ((INDIVIDUALS, n), 2, n, n, n, n)
    lists, told, best, *orders = (np.zeros(shape, np.int64) for shape in counts)
    sums = ((INDIVIDUALS, 2), n, n, 2 * n + 1, (2 * n + 1, len(size)))
    worth, *times = (np.zeros(shape) for shape in sums)
    given = (length, take, size, b.parent_first, b.parent, b.child_first, b.child)
    made: tuple[Any, ...] = (lists, worth, told, best, np.array([inf]), *orders, *times)
    return Project(*given, graph_of(items).bottom(length), *made)


class ProjectSearch:
    """Steps that improve a project, of which something ends at `reached`.

    `bound` is a valid one of the last end; `unproved` says why there is no exact search. The search
    ends after so many items in vain for each one of the project as `patience` says.
    """

    def __init__(
        self,
        project: Project,
        options: Mapping[str, Any],
        budget: Budget,
        bound: float | None,
        reached: float,
    ) -> None:
        self.project, self.budget, self.bound, self.unproved = project, budget, bound, ""
        self.patience, self.exact_work = options.get("patience"), options.get("exact_work") or 0
        self.exact: ExactProject | None = None
        project.least[0] = reached
        try:
            if self.exact_work:
                self.exact = ExactProject(project, bound or 0.0, budget.seed)
        except UnfitError as error:
            self.unproved = f"none: {error}"

    def steps(self, work: int) -> Iterator[Step]:
        """Breed and prove, after so much work; the caller ends this when the bound is met."""
        project, random = self.project, seeded(self.budget.seed)
        n, bred, vain = len(project.length), 0, 0
        while True:
            left = None if self.budget.work is None else max(self.budget.work - work, 1)
            tired = self.patience is not None and vain >= self.patience
            before = project.least[0]
            if self.exact is not None and (tired or self.exact.work * PLACED <= bred):
                step = self._prove(self.exact, left, alone=tired)
            elif tired:
                return
            else:
                children = CHUNK if left is None else min(CHUNK, -(-left // (3 * n)))
                breed(project, random, children, ANEW * INDIVIDUALS)
                better = project.least[0] < before
                step = "bred", project.best.tolist() if better else None, 3 * n * children
                bred += step[2]
                vain = 0 if better else vain + 3 * children
            work += step[2]
            yield step

    def _prove(self, exact: ExactProject, left: int | None, *, alone: bool) -> Step:
        """A call of the exact search, `alone` to its end."""
        before, rest = exact.work, self.exact_work - exact.work
        some = rest if alone else min(next_call(before), rest)
        if left is not None:  # half of it is for breeding
            some = max(min(some, left // (PLACED if alone else 2 * PLACED)), 1)
        if some < before:  # it would not come further than those before
            self.exact = None
            return EXACT, None, 0
        order = exact.run(self.project.least[0], some, self.budget.stop)
        self.bound = max(self.bound or 0.0, exact.bound)
        if exact.ended or exact.work >= self.exact_work:
            self.exact = None
        return EXACT, order, (exact.work - before) * PLACED
