"""Schedules of a moldable queue, built at prices of processor time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.moldable.archive import Point
from coalloc.policies.moldable.flexible_list import anneal_lists, list_flexibly
from coalloc.policies.moldable.insertion import MOST, improve, insert_all, settle
from coalloc.policies.moldable.priced_bound import Ascent
from coalloc.policies.moldable.pricing import price_rows
from coalloc.policies.moldable.queue import MoldableQueue

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


CALL = 16
"""Jobs that count for a call."""


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
    work : float
        Placements tried so far.
    list_work : float
        What a list counts for: it takes time that grows with the square of the queue.
    """

    def __init__(self, queue: MoldableQueue, seed: int = 0) -> None:
        n, rows = queue.size, 2 * queue.size + queue.starts.size + 4
        self.queue = queue
        self.rows = np.zeros(n, dtype=np.int64)
        self.start, self.end = np.zeros(n), np.zeros(n)
        self.work: float = 0
        self.list_work = max(n * n, 100) / 1600.0
        self._edge, self._free = np.zeros(rows), np.zeros(rows, dtype=np.int64)
        self._size = np.zeros(1, dtype=np.int64)
        self._answer, self._measures, self._best = np.zeros(2), np.zeros(2), np.zeros(1)
        self._best_rows, self._best_start = np.zeros(n, dtype=np.int64), np.zeros(n)
        self._lists = np.zeros((6, n), dtype=np.int64)
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
        self.work += CALL + queue.size
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

    def list(
        self, order: Ints, wanted: Ints, cap: float, squeeze: float = 1.0, stretch: float = 1.0
    ) -> bool:
        """List all jobs in this order on about these allotments; see `list_flexibly`."""
        queue = self.queue
        self.work += CALL + self.list_work
        return bool(
            list_flexibly(
                queue.first,
                queue.procs,
                queue.times,
                queue.release,
                queue.starts,
                queue.capacity,
                order,
                wanted,
                squeeze,
                stretch,
                cap,
                self._lists[0],
                self._lists[1],
                self.rows,
                self.start,
                self.end,
            )
        )

    def anneal(
        self,
        order: Ints,
        wanted: Ints,
        cap: float,
        shares: tuple[float, float],
        trials: int,
        heats: tuple[float, float],
        late: float = 2.0,
    ) -> bool:
        """Change a list a little, so many times; the best schedule is then at hand.

        Parameters
        ----------
        shares : pair of float
            Squeeze and stretch.
        heats : pair of float
            Temperatures at the begin and end, as shares of the weighted completion.
        """
        queue = self.queue
        waiting, running, best_order, best_wanted, now, likes = self._lists
        now[:], likes[:] = order, wanted
        self.list(now, likes, cap, *shares)
        scale = float(queue.weight @ self.end)
        self.work += trials * self.list_work
        anneal_lists(
            queue.first,
            queue.procs,
            queue.times,
            queue.weight,
            queue.release,
            queue.starts,
            queue.capacity,
            now,
            likes,
            shares[0],
            shares[1],
            cap,
            late * scale,
            trials,
            heats[0] * scale,
            heats[1] * scale,
            self._random,
            waiting,
            running,
            self.rows,
            self.start,
            self.end,
            best_order,
            best_wanted,
        )
        return self.list(best_order, best_wanted, cap, *shares)

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
