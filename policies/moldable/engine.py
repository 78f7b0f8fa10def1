"""Schedules of a moldable queue for makespan and weighted completion at once.

1. For some ends T, prices of processor time are sought (`priced_bound`) on a coarse ladder of
   allotments: the weighted completion of schedules that end by T is at least what they prove, and
   each job has its cheapest allotment and start.
2. In the order of these starts, and of starts moved a little at random, jobs are put into a profile
   of free processors where they cost least (`insertion`), with ends up to T times a slack: what
   does not fit exactly goes there. The same order is also listed, each job on its cheapest
   allotment.
3. Local search: from the schedules found so far, a few jobs that run near each other are taken out
   and put back, by annealing on the weighted completion with the makespan held at T.
4. The two shelves take part, and, for a handful of jobs, annealing over lists (`handful`).
5. All schedules that no other is better than in both criteria are kept (`archive`).

Notes
-----
Work is counted in jobs for which a place, or a price, was sought. Queues of more than `LARGE` jobs
get prices of a few steps, and lists alone: a place in a profile takes time that grows with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.base import Budget
from coalloc.policies.moldable.archive import Archive, Point
from coalloc.policies.moldable.building import Builder, Prices
from coalloc.policies.moldable.demt_laying import Lister
from coalloc.policies.moldable.handful import MOST, MOVES, RUNS, handful, shelved
from coalloc.policies.moldable.priced_bound import Ascent, transferred
from coalloc.policies.moldable.queue import MoldableQueue
from coalloc.policies.moldable.two_shelf import two_shelf

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ENDS = (1.13, 1.06, 1.02, 1.2, 1.3)
"""T, in bounds on the makespan; then any end."""
SLACKS = (1.03, 1.06, 1.0, 1.015, 1.045, 1.1)
NOISES = (0.02, 0.05)
"""How far starts are moved at random, in T."""
TAIL, TAILS, OFTEN = 0.8, (0.5, 1.0), 0.6
"""By what share of T long jobs are placed as if all had to end; and how often they are."""
DEARER = (1.0, 1.0, 1.0, 1.3, 1.7)
"""Parts of the prices that are paid: dearer time makes for less work, and a shorter schedule."""
SLOTS, COARSE = 50, 14
PRICING, FEWEST_STEPS, MOST_STEPS = 0.6, 3, 150
"""Share of the work that goes into steps of prices, between so many for each end."""
LARGE = 4000
POOL = 0.8
"""Share of the work after which no more starts are moved."""
HOT, COLD, MANY, CHUNK = 2e-4, 1e-5, 8, 300


class Engine:
    """Seeks a front until its work is done, or it is told to stop.

    Parameters
    ----------
    queue : MoldableQueue
        Not empty.
    cmax : float
        A bound on the makespan, seconds.
    work : int
        Jobs placed or priced after which the search ends; something is found before that.
    needed : tuple of float
        Ends that somebody asks for, seconds; they are sought first.

    Attributes
    ----------
    archive : Archive
        The schedules found.
    ascents : list of Ascent
        Whose prices bound the weighted completion.
    stopped : bool
        Whether the caller ended it.
    """

    def __init__(
        self,
        queue: MoldableQueue,
        cmax: float,
        work: int,
        budget: Budget,
        on_better: Callable[[], None] | None = None,
        needed: tuple[float, ...] = (),
    ) -> None:
        self.queue, self.cmax, self.limit, self.budget = queue, cmax, work, budget
        self.needed = needed
        self.archive: Archive[Point] = Archive()
        self.ascents: list[Ascent] = []
        self.prices: list[Prices] = []
        self.builder = Builder(queue, budget.seed)
        self.lister = Lister(queue)
        self.stopped = False
        self._coarse = coarser(queue, COARSE)
        self._rng = np.random.default_rng(budget.seed)
        share = PRICING * work / (queue.size * (len(needed) + len(ENDS) + 2))
        self._steps = int(min(max(share, FEWEST_STEPS), MOST_STEPS))
        self._on_better = on_better
        self._priced = 0

    @property
    def work(self) -> int:
        """Jobs placed or priced so far."""
        return self.builder.work + self._priced

    def run(self) -> None:
        """Fill the archive."""
        smallest = self.queue.first[:-1]
        self._list(np.argsort(-self.queue.times[smallest], kind="stable"), smallest)
        parts = two_shelf(self.queue)
        self._list(parts.order, parts.rows)
        self._keep(shelved(self.queue))
        if self.queue.size <= MOST:
            self._list_many()
        for cap in (*self.needed, *(factor * self.cmax for factor in ENDS)):
            self._price(cap)
            if self._is_over():
                return
        widest = self.archive.points[-1].cmax
        self._price(inf, max(1.5 * self.cmax, 1.05 * widest))
        if self.queue.size <= LARGE:
            self._shake()
            self._search()

    def _list_many(self) -> None:
        """Lists of a handful of jobs, with half of the work at most."""
        each = MOVES * self.queue.size
        runs = min(RUNS, self.limit // (2 * each))
        for point in handful(self.queue, self.budget.seed, self.budget.stop, runs).points:
            self._keep(point)
        self._priced += runs * each

    def _is_over(self) -> bool:
        self.stopped = self.stopped or self.budget.stop()
        return self.stopped or self.work >= self.limit

    def _price(self, cap: float, horizon: float = inf) -> None:
        """Prices for one end, and the schedules built at them."""
        ascent = Ascent(self._coarse, horizon=min(cap, horizon), cap=cap, slots=SLOTS)
        steps = 2 * self._steps
        if self.ascents and ascent.best < inf:
            near = min(self.ascents, key=lambda known: abs(known.grid[-1] - ascent.grid[-1]))
            known = transferred(near.grid, near.best_prices, ascent.grid)
            steps = self._steps
            if ascent.value(known) > ascent.best:
                ascent.begin(known)
        ascent.run(min(steps, MOST_STEPS), self.budget.stop)
        self._priced += self.queue.size * ascent.steps
        prices = Prices(self.queue, ascent)
        self.ascents.append(ascent)
        self.prices.append(prices)
        self._list(prices.order, prices.cheapest)
        for slack in SLACKS if self.queue.size <= LARGE else ():
            self._insert(prices, prices.order, slack)
            order = self._order(prices, prices.ideal[prices.cheapest], TAIL)
            self._insert(prices, order, slack)

    def _list(self, order: Ints, rows: Ints) -> None:
        cmax, total = self.lister.run(order, rows)
        self._priced += self.queue.size
        self._keep(Point(cmax=cmax, total=total, rows=rows.copy(), start=self.lister.start.copy()))

    def _order(self, prices: Prices, start: Floats, tail: float) -> Ints:
        """Jobs by their starts, or, if that is sooner, by how late they start to end by `tail`."""
        last = tail * min(prices.cap, 2.0 * self.cmax) - self.queue.times[prices.cheapest]
        return np.argsort(np.minimum(start, last), kind="stable").astype(np.int64)

    def _insert(self, prices: Prices, order: Ints, slack: float, share: float = 1.0) -> None:
        self.builder.insert(prices, order, slack * prices.cap, share)
        self.builder.settle()
        self._keep(self.builder.point())

    def _keep(self, point: Point) -> None:
        if self.archive.add(point) and self._on_better is not None:
            self._on_better()

    def _shake(self) -> None:
        """Insert in the order of starts that are moved a little, and with long jobs sooner."""
        until = POOL * self.limit
        while self.work < until:
            for prices in self.prices:
                if self._is_over():
                    return
                noise = self._rng.choice(NOISES) * min(prices.cap, 2.0 * self.cmax)
                start = prices.ideal[prices.cheapest] + noise * self._rng.random(self.queue.size)
                tail = self._rng.uniform(*TAILS) if self._rng.random() < OFTEN else inf
                share = self._rng.choice(DEARER)
                slack = self._rng.uniform(min(SLACKS), max(SLACKS))
                self._insert(prices, self._order(prices, start, tail), slack, share)

    def _search(self) -> None:
        """Local search for each end in turn, each time from cooler on."""
        hot = HOT
        while True:
            for prices in self.prices:
                self._improve(prices, hot)
                if self._is_over():
                    return
            hot = max(0.7 * hot, 2.0 * COLD)

    def _improve(self, prices: Prices, hot: float) -> None:
        cap = min(prices.cap, self.archive.points[-1].cmax)
        point = self.archive.within(1.06 * cap) or self.archive.points[0]
        self.builder.take(point)
        self.builder.improve(
            prices, min(max(cap, 0.98 * point.cmax), point.cmax), CHUNK, hot, COLD, MANY
        )
        self._keep(self.builder.point())


def coarser(queue: MoldableQueue, most: int) -> MoldableQueue:
    """The same queue with at most so many allotments of each job, both ends among them."""
    last = np.diff(queue.first) - 1
    steps = np.linspace(0.0, 1.0, most)
    kept = np.unique((queue.first[:-1, None] + np.rint(last[:, None] * steps)).astype(np.int64))
    return replace(
        queue,
        first=np.searchsorted(kept, queue.first).astype(np.int64),
        procs=queue.procs[kept],
        times=queue.times[kept],
        mode=queue.mode[kept],
    )


__all__ = ["Engine", "coarser"]
