"""A front for a handful of jobs: annealing over orders and allotments, each listed.

With a few jobs, an optimum is often a list of some order on some allotments, and a list takes
microseconds. From the two shelves, and from random begins, a job is moved in the order or given the
next allotment; what is better by the criterion of the run is kept, what is worse at a falling rate.
Runs take turns at the makespan, the weighted completion, and both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import exp

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.base import never
from coalloc.policies.moldable.archive import Archive, Point
from coalloc.policies.moldable.demt_laying import Lister
from coalloc.policies.moldable.queue import MoldableQueue
from coalloc.policies.moldable.two_shelf_schedule import two_shelf_schedule

Ints = NDArray[np.int64]

MOST = 12
"""Jobs up to which this is worth its time."""
RUNS, MOVES = 18, 1200
SHARES = (1.0, 0.0, 0.5)
"""Of the makespan in the criterion of a run; the rest is the weighted completion."""
HOT, COOLING = 0.1, 0.995


def handful(
    queue: MoldableQueue, seed: int, stop: Callable[[], bool] = never, runs: int = RUNS
) -> Archive[Point]:
    """Schedules of which none is better than another in both criteria.

    Parameters
    ----------
    queue : MoldableQueue
        Of at least one job.
    runs : int
        Of `MOVES` lists each; with none, the two shelves are all there is.
    """
    search = _Search(queue, np.random.default_rng(seed))
    for run in range(runs):
        if stop():
            break
        search.run(SHARES[run % len(SHARES)], is_seeded=run < len(SHARES))
    return search.archive


def shelved(queue: MoldableQueue) -> Point:
    """The two-shelf schedule."""
    laid = two_shelf_schedule(queue)
    total = float(queue.weight @ (laid.start + queue.times[laid.rows]))
    return Point(cmax=laid.makespan, total=total, rows=laid.rows, start=laid.start)


class _Search:
    def __init__(self, queue: MoldableQueue, rng: np.random.Generator) -> None:
        self.queue, self.rng = queue, rng
        self.lister = Lister(queue)
        self.archive: Archive[Point] = Archive()
        self.shelves = shelved(queue)
        self.archive.add(self.shelves)

    def run(self, share: float, *, is_seeded: bool) -> None:
        """One run from the two shelves, or from anywhere."""
        order, rows = self._shelved() if is_seeded else self._anywhere()
        scale = self._value(order, rows)
        unit = share / max(scale[0], 1e-9), (1.0 - share) / max(scale[1], 1e-9)
        now, heat = 1.0, HOT
        for order_, rows_ in self._moves(order, rows):
            found = self._value(order_, rows_)
            value = unit[0] * found[0] + unit[1] * found[1]
            if value <= now or self.rng.random() < exp((now - value) / heat):
                order[:], rows[:], now = order_, rows_, value
            heat *= COOLING

    def _shelved(self) -> tuple[Ints, Ints]:
        return np.argsort(self.shelves.start, kind="stable"), self.shelves.rows.copy()

    def _anywhere(self) -> tuple[Ints, Ints]:
        first, last = self.queue.first[:-1], self.queue.first[1:]
        return self.rng.permutation(self.queue.size), self.rng.integers(first, last)

    def _value(self, order: Ints, rows: Ints) -> tuple[float, float]:
        """Makespan and weighted completion of a list, which goes into the archive."""
        cmax, total = self.lister.run(order, rows)
        if self.archive.takes(cmax, total):
            start = self.lister.start.copy()
            self.archive.add(Point(cmax=cmax, total=total, rows=rows.copy(), start=start))
        return cmax, total

    def _moves(self, order: Ints, rows: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Neighbours of the order and the allotments as they are then."""
        size, first = self.queue.size, self.queue.first.tolist()
        drawn = self.rng.integers(size, size=(2, MOVES)).tolist()
        for kind, i, place in zip(self.rng.random(MOVES).tolist(), *drawn, strict=True):
            if kind < 0.5 and size > 1:
                moved = order.tolist()
                moved.insert(place, moved.pop(i))
                yield np.array(moved), rows
            else:
                changed = rows.copy()
                row = int(rows[i]) + (1 if kind < 0.75 else -1)
                changed[i] = min(max(row, first[i]), first[i + 1] - 1)
                yield order, changed


__all__ = ["MOST", "MOVES", "RUNS", "handful", "shelved"]
