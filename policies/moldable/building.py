"""Schedules of a moldable queue, built at prices of processor time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.moldable.archive import Point
from coalloc.policies.moldable.insertion import MOST, improve, insert_all, settle
from coalloc.policies.moldable.priced_bound import Ascent
from coalloc.policies.moldable.pricing import price_rows
from coalloc.policies.moldable.queue import MoldableQueue

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Prices:
    """What each allotment costs at least, and where, at the best prices of an ascent.

    Attributes
    ----------
    least, ideal : arrays, A
        Cost, and start in seconds.
    cheapest : array of int, N
        Each job's cheapest allotment.
    order : array of int, N
        Jobs by the start of that.
    cap : float
        End of the schedules that the prices were sought for, seconds.
    """

    def __init__(self, queue: MoldableQueue, ascent: Ascent) -> None:
        prices, grid = ascent.best_prices, ascent.grid
        self.price = prices
        self.total = np.concatenate(([0.0], np.cumsum(prices * np.diff(grid))))
        self.width = float(grid[1] - grid[0])
        self.cap = ascent.cap
        self.least, self.ideal = np.empty(queue.procs.size), np.empty(queue.procs.size)
        lowest = np.minimum.accumulate(prices)
        price_rows(
            queue.first,
            queue.procs,
            queue.times,
            queue.weight,
            queue.release,
            grid,
            prices,
            self.total,
            lowest,
            self.cap,
            self.least,
            self.ideal,
        )
        self.cheapest = _argmin(queue.first, self.least)
        self.order = np.argsort(self.ideal[self.cheapest], kind="stable")


class Builder:
    """Working memory for the schedules of one queue.

    Attributes
    ----------
    rows, start, end : arrays, N
        The schedule at hand: allotments, seconds.
    work : int
        Placements tried so far.
    """

    def __init__(self, queue: MoldableQueue, seed: int = 0) -> None:
        n, rows = queue.size, 2 * queue.size + queue.starts.size + 4
        self.queue = queue
        self.rows = np.zeros(n, dtype=np.int64)
        self.start, self.end = np.zeros(n), np.zeros(n)
        self.work = 0
        self._edge, self._free = np.zeros(rows), np.zeros(rows, dtype=np.int64)
        self._size = np.zeros(1, dtype=np.int64)
        self._answer, self._measures, self._best = np.zeros(2), np.zeros(2), np.zeros(1)
        self._best_rows, self._best_start = np.zeros(n, dtype=np.int64), np.zeros(n)
        self._taken = np.zeros((2, MOST), dtype=np.int64)
        self._were = np.zeros((3, MOST))
        self._random = np.array([(seed * 0x9E3779B97F4A7C1 + 0x2545F4914F6CDD1D) & (2**62 - 1)])

    def point(self) -> Point:
        """The schedule at hand."""
        return Point(
            cmax=float(self.end.max()),
            total=float(self.queue.weight @ self.end),
            rows=self.rows.copy(),
            start=self.start.copy(),
        )

    def insert(self, prices: Prices, order: Ints, cap: float, share: float = 1.0) -> None:
        """Put all jobs in this order where they cost least, ends by `cap` before later ones."""
        queue = self.queue
        self._clear()
        self.work += queue.size
        insert_all(
            queue.first,
            queue.procs,
            queue.times,
            queue.weight,
            queue.release,
            prices.least,
            prices.ideal,
            prices.cheapest,
            prices.price,
            prices.total,
            prices.width,
            order,
            share,
            cap,
            self._edge,
            self._free,
            self._size,
            self._answer,
            self.rows,
            self.start,
            self.end,
        )

    def settle(self) -> None:
        """Start every job as early as it can, by rising starts; none starts later than before."""
        queue = self.queue
        self._clear()
        settle(
            queue.procs,
            queue.times,
            queue.release,
            np.argsort(self.start, kind="stable"),
            self.rows,
            self._edge,
            self._free,
            self._size,
            self.start,
            self.end,
        )

    def take(self, point: Point) -> None:
        """Go on from this schedule."""
        self.rows[:], self.start[:] = point.rows, point.start
        self.settle()

    def improve(
        self, prices: Prices, cap: float, rounds: int, hot: float, cold: float, many: int
    ) -> None:
        """Take a few jobs out and put them back, many times; the best schedule is then at hand.

        Parameters
        ----------
        cap : float
            What the makespan should not pass, seconds.
        hot, cold : float
            Temperatures at the begin and end, as shares of the weighted completion.
        many : int
            Jobs at once, at most.
        """
        queue = self.queue
        scale = float(queue.weight @ self.end)
        self.work += improve(
            queue.first,
            queue.procs,
            queue.times,
            queue.weight,
            queue.release,
            prices.least,
            prices.ideal,
            prices.cheapest,
            prices.price,
            prices.total,
            prices.width,
            cap,
            scale,
            rounds,
            hot * scale,
            cold * scale,
            min(many, MOST),
            self._random,
            self._edge,
            self._free,
            self._size,
            self._answer,
            self.rows,
            self.start,
            self.end,
            self._taken,
            self._were,
            self._best_rows,
            self._best_start,
            self._measures,
            self._best,
        )
        self.rows[:], self.start[:] = self._best_rows, self._best_start
        self.settle()

    def _clear(self) -> None:
        size = self.queue.starts.size
        self._edge[:size], self._free[:size] = self.queue.starts, self.queue.capacity
        self._size[0] = size


def _argmin(first: Ints, values: Floats) -> Ints:
    """Index of the least value of each job, the first of equal ones."""
    least = np.minimum.reduceat(values, first[:-1])
    hits = np.flatnonzero(values == np.repeat(least, np.diff(first)))
    job = np.searchsorted(first, hits, side="right") - 1
    return hits[np.searchsorted(job, np.arange(first.size - 1))].astype(np.int64)
