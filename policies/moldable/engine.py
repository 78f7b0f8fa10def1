"""Schedules of a moldable queue for makespan and weighted completion at once.

1. For some ends T, prices of processor time are sought (`priced_bound`): the weighted completion of
   schedules that end by T is at least what they prove, and each job has its cheapest allotment and
   start.
2. In the order of these starts, jobs are put into a profile of free processors where they cost
   least (`insertion`), with ends up to T times a slack: what does not fit exactly goes there.
3. Local search: from the schedules found so far, a few jobs that run near each other are taken out
   and put back, by annealing on the weighted completion with the makespan held at T.
4. All schedules that no other is better than in both criteria are kept (`archive`).

Notes
-----
Work is counted in placements: jobs for which a place was sought, or a price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.base import Budget
from coalloc.policies.moldable.archive import Archive, Point
from coalloc.policies.moldable.building import Builder, Prices
from coalloc.policies.moldable.priced_bound import Ascent, transferred
from coalloc.policies.moldable.queue import MoldableQueue

Ints = NDArray[np.int64]

ENDS = (1.13, 1.06, 1.02, 1.22, 1.4)
"""T, in bounds on the makespan; then any end."""
SLACKS = (1.0, 1.02, 1.04, 1.06, 1.1)
FIRST_STEPS, STEPS, SLOTS = 100, 40, 50
HOT, COLD, MANY = 3e-4, 1e-5, 8


class Engine:
    """Seeks a front until its work is done, or it is told to stop.

    Parameters
    ----------
    queue : MoldableQueue
        Not empty.
    cmax : float
        A bound on the makespan, seconds.
    work : int
        Placements after which the search ends.
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
        self.stopped = False
        self._on_better = on_better
        self._priced = 0

    @property
    def work(self) -> int:
        """Placements tried so far."""
        return self.builder.work + self._priced

    def run(self) -> None:
        """Fill the archive."""
        for cap in (*self.needed, *(factor * self.cmax for factor in ENDS)):
            self._price(cap)
            if self._is_over():
                return
        widest = self.archive.points[-1].cmax
        self._price(inf, max(1.5 * self.cmax, 1.05 * widest))
        self._search()

    def _is_over(self) -> bool:
        self.stopped = self.stopped or self.budget.stop()
        return self.stopped or self.work >= self.limit

    def _price(self, cap: float, horizon: float = inf) -> None:
        """Prices for one end, and the schedules built at them."""
        ascent = Ascent(self.queue, horizon=min(cap, horizon), cap=cap, slots=SLOTS)
        steps = FIRST_STEPS
        if self.ascents and ascent.best < inf:
            near = min(self.ascents, key=lambda known: abs(known.grid[-1] - ascent.grid[-1]))
            prices = transferred(near.grid, near.best_prices, ascent.grid)
            steps = STEPS
            if ascent.value(prices) > ascent.best:
                ascent.begin(prices)
        ascent.run(steps, self.budget.stop)
        self._priced += self.queue.size * ascent.steps
        prices_ = Prices(self.queue, ascent)
        self.ascents.append(ascent)
        self.prices.append(prices_)
        for slack in SLACKS:
            self.builder.insert(prices_, prices_.order, slack * cap)
            self.builder.settle()
            self._keep()

    def _keep(self) -> None:
        if self.archive.add(self.builder.point()) and self._on_better is not None:
            self._on_better()

    def _search(self) -> None:
        """Local search for each end in turn, longer each time."""
        trials = 200
        while True:
            for prices in self.prices:
                if self._is_over():
                    return
                self._improve(prices, trials)
            trials = int(1.5 * trials)

    def _improve(self, prices: Prices, trials: int) -> None:
        cap = min(prices.cap, self.archive.points[-1].cmax)
        point = self.archive.within(1.08 * cap) or self.archive.points[0]
        target = min(max(cap, 0.98 * point.cmax), point.cmax)
        self.builder.take(point)
        for heat in _falling(HOT, COLD, max(1, trials // 200)):
            if self._is_over():
                break
            self.builder.improve(prices, target, min(trials, 200), heat, heat / 2.0, MANY)
            self._keep()


def _falling(hot: float, cold: float, steps: int) -> Iterator[float]:
    for step in range(steps):
        yield hot * (cold / hot) ** (step / steps)
