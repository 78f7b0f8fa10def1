"""A queue on one node as a project: what it has, and licences, are amounts that all share."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np

from coalloc.policies.base import Budget
from coalloc.policies.counted.planning import CountedQueue
from coalloc.policies.kernel.counted.fits import amount, run_time
from coalloc.policies.kernel.counted.project import Project, breed
from coalloc.policies.kernel.instance.graph import graph_of
from coalloc.policies.kernel.xorshift import seeded

INDIVIDUALS = 400
ANEW = 60
"""Children in vain for each individual before another population."""
CHUNK = 50
"""Children between two looks at the limits."""


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


def improved(
    project: Project, budget: Budget, work: int, patience: int | None
) -> Iterator[tuple[list[int] | None, int]]:
    """Orders that are better than those before, or None, with the work of each chunk.

    `work` has been done. The search ends after so many items in vain for each one of the project.
    """
    n, random, vain = len(project.length), seeded(budget.seed), 0
    while patience is None or vain < patience:
        children = CHUNK
        if budget.work is not None:
            children = min(children, -(-(budget.work - work) // (3 * n)))
        before = project.least[0]
        breed(project, random, children, ANEW * INDIVIDUALS)
        better = project.least[0] < before
        vain = 0 if better else vain + 3 * children
        work += 3 * n * children
        yield project.best.tolist() if better else None, 3 * n * children
