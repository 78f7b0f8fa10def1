"""Schedules of a moldable queue for makespan and weighted completion at once.

1. For some ends T, prices of processor time are sought (`priced_bound`) on a coarse ladder of
   allotments: the weighted completion of schedules that end by T is at least what they prove, and
   each job has its cheapest allotment and start.
2. In the order of these starts, and of starts moved a little at random, jobs are put into a profile
   of free processors where they cost least (`insertion`), with ends up to T times a slack: what
   does not fit exactly goes there. Or the same order is listed, each job on about its cheapest
   allotment (`kernel.pool.pool_list`). What brought more for its work is done more often.
3. Local search: from the schedules found so far, a few jobs that run near each other are taken out
   and put back, by annealing on the weighted completion with the makespan held at T. In turn with
   it, a schedule is taken for a list in which each job gets its place before any later one, on what
   is wanted or a little less, and its order and allotments are annealed. A trial ends where the
   jobs that it moves cost more at the prices than they may. Once each end has been searched, work
   goes on where the gap is least, and at the end of the balanced point.
4. The two shelves take part; and what `references` name is sought to be beaten in both criteria.
5. All schedules that no other is better than in both criteria are kept (`archive`).

Notes
-----
Work is counted in jobs for which a place was sought; `QUICK` that are priced count as one, and
lists by the time that they take. Queues of more than `LARGE` jobs get prices of a few steps, and
lists alone: a place in a profile takes time that grows with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from math import inf

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.base import Budget
from coalloc.policies.moldable.bicriteria.archive import Archive, ParetoPoint
from coalloc.policies.moldable.bicriteria.building import CALL, Builder, Prices
from coalloc.policies.moldable.bicriteria.pareto import factor
from coalloc.policies.moldable.laying import PoolLister
from coalloc.policies.moldable.priced_bound import Ascent
from coalloc.policies.moldable.queue import MoldableQueue, thinned
from coalloc.policies.moldable.two_shelf import two_shelf, two_shelf_schedule

ENDS = (1.13, 1.06, 1.02, 1.2, 1.3, 1.42, 1.09, 1.16, 1.04, 1.25)
"""Ends T that are sought, by the bound on the makespan; any end comes last."""
FEWEST, EACH = 6, 100
"""Least number of `ENDS`, and placed jobs per job of the queue for which there is one more."""
SLACKS, SLACKEST = (1.03, 1.0, 1.06), 1.1
"""Factors of T up to which schedules built at its prices may end: first these, then at random."""
NOISES = (0.02, 0.05)
"""Range in which starts are moved at random, in T."""
TAIL, TAILS, OFTEN = 0.8, (0.5, 1.0), 0.6
"""Share of T by which long jobs are ordered to end, first this one, then drawn; how often it is."""
DEARER = (1.0, 1.0, 1.0, 1.3, 1.7)
"""Factors of the prices that are paid: dearer time makes for less work, and a shorter schedule."""
SLOTS = 50
"""Steps of the time axis that has prices."""
PRICING, FEWEST_STEPS, MOST_STEPS = 0.25, 4, 100
"""Share of the work that goes into steps of prices; least and most steps for an end."""
THIN = 16
"""Allotments of a job that steps of prices look at; more bring better bounds, at the end."""
QUICK = 4
"""Jobs priced in a step that count as one that is placed."""
LARGE = 4000
"""Jobs beyond which there are prices of a few steps, and lists alone."""
POOL = 0.25
"""Share of the work after which no more starts are moved."""
CLOSEST = 2
"""Ends of the least gap, on which the search goes on once it has been at each."""
HOT, COLD, MANY, CHUNK = 2e-4, 1e-5, 8, 300
"""Of annealing a schedule: first and last temperature, jobs taken out at most, rounds."""
SHARES = ((1.0, 1.0), (0.8, 1.0), (0.8, 1.3), (0.6, 1.3), (0.5, 2.0))
"""Least and largest share of the wanted allotment on which a job in a list starts."""
TURNS = ((1.0, 1.0), (0.9, 1.0), (0.8, 1.0))
"""The same where each job of a list gets its place in turn; nothing is stretched then."""
TRIALS, WARM, COOL = 0.06, 2e-4, 1e-5
"""Of annealing a list: share of the work, first and last temperature."""
BELOW = 0.998
"""Factor of a makespan that is to be beaten, at which lists are held."""
FEW, STARTS, START = 12, 0.4, 0.015
"""Jobs up to which lists begin with random orders; shares of the work, for all and for one."""
HOTTEST, LATE_HOT, COLDEST = 0.1, 0.05, 1e-6
"""Their first temperature, in weighted completions, and by the cost of a makespan's delay; last."""
WAITING = 0.5
"""Share of these in which processors may wait for a job though a later one fits."""


class BicriteriaEngine:
    """Seeks a front until its work is done, or it is told to stop.

    The queue is not empty; `cmax` is a bound on the makespan, seconds. The search ends after `work`
    jobs placed or priced, and something is found before that. `needed` are ends that the caller
    asks for, seconds, which are sought first; `references`, pairs of makespan and weighted
    completion, shall be beaten in both. `archive` has the schedules found; the prices of the
    `ascents` bound the weighted completion; `stopped` says that the caller ended it.
    """

    def __init__(
        self,
        queue: MoldableQueue,
        cmax: float,
        work: int,
        budget: Budget,
        on_better: Callable[[], None] | None = None,
        needed: tuple[float, ...] = (),
        references: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.queue, self.cmax, self.limit, self.budget = queue, cmax, work, budget
        self.needed, self.references = needed, references
        self.archive: Archive[ParetoPoint] = Archive()
        self.ascents: list[Ascent] = []
        self.prices: list[Prices] = []
        self.builder = Builder(queue, budget.seed)
        self.lister = PoolLister(queue)
        self._thin = thinned(queue, THIN) if queue.size <= LARGE else queue
        self.stopped = False
        self._rng = np.random.default_rng(budget.seed)
        share = PRICING * QUICK * work / (queue.size * (len(needed) + FEWEST + 2))
        self._steps = int(min(max(share, FEWEST_STEPS), MOST_STEPS))
        self._tried, self._brought = np.zeros(len(SHARES) + 1), np.zeros(len(SHARES) + 1)
        self._on_better = on_better
        self._priced = 0

    @property
    def work(self) -> int:
        """Jobs placed or priced so far."""
        return int(self.builder.work) + self._priced

    def run(self) -> None:
        """Fill the archive."""
        smallest = self.queue.first[:-1]
        self._list(np.argsort(-self.queue.times[smallest], kind="stable"), smallest)
        parts = two_shelf(self.queue)
        self._list(parts.order, parts.rows)
        self._keep(shelved(self.queue))
        if self.queue.size <= FEW:
            self._list_few()
        many = int(self.limit / (EACH * self.queue.size))
        ends = ENDS[: max(many, FEWEST) if self.queue.size <= LARGE else 1]
        for cap in (*self.needed, *(end * self.cmax for end in ends)):
            self._price(cap)
            if self._is_over():
                return
        if self.queue.size <= LARGE:
            widest = self.archive.points[-1].cmax
            self._price(inf, max(1.5 * self.cmax, 1.05 * widest))
            self._shake()
            self._search()

    def _list_few(self) -> None:
        """Lists of a few jobs, for the makespan, the weighted completion, and both."""
        until = STARTS * self.limit
        first, last = self.queue.first[:-1], self.queue.first[1:]
        for cap, late in cycle(((self.cmax, 100.0), (10.0 * self.cmax, 0.0), (self.cmax, 1.0))):
            if self.work >= until or self._is_over():
                return
            order = self._rng.permutation(self.queue.size)
            rows = self._rng.integers(first, last)
            is_waiting = bool(self._rng.random() < WAITING)
            hot = max(HOTTEST, LATE_HOT * late)
            shares = TURNS[0] if is_waiting else SHARES[self._rng.integers(len(SHARES))]
            self._anneal(
                order, rows, cap, late, (hot, COLDEST), shares, share=START, waits=is_waiting
            )

    def _anneal(
        self,
        order: Ints,
        rows: Ints,
        cap: float,
        late: float,
        heats: tuple[float, float],
        shares: tuple[float, float],
        *,
        share: float = TRIALS,
        waits: bool = False,
        prices: Prices | None = None,
    ) -> None:
        spent = self.builder.turn_work if waits else self.builder.list_work
        trials = max(int(share * self.limit / spent), 10)
        if self.builder.anneal(
            order, rows, cap, shares, trials, heats, late, waits=waits, prices=prices
        ):
            self._keep(self.builder.point())

    def _is_over(self) -> bool:
        self.stopped = self.stopped or self.budget.stop()
        return self.stopped or self.work >= self.limit

    def _price(self, cap: float, horizon: float = inf) -> None:
        """Prices for one end, and the schedules built at them."""
        ascent = Ascent(self._thin, horizon=min(cap, horizon), cap=cap, slots=SLOTS)
        steps = 2 * self._steps
        if self.ascents and ascent.best < inf:
            near = min(self.ascents, key=lambda known: abs(known.grid[-1] - ascent.grid[-1]))
            ascent.begin_like(near.grid, near.best_prices)
            steps = self._steps
        ascent.run(min(steps, MOST_STEPS), self.budget.stop)
        self._priced += self.queue.size * ascent.steps // QUICK
        self.ascents.append(ascent)
        if self.queue.size > LARGE:
            for rows, start in ascent.recent:
                self._list(np.argsort(start, kind="stable"), rows)
            return
        prices = Prices(self.queue, ascent)
        self.prices.append(prices)
        self._list(prices.order, prices.cheapest)
        for slack in SLACKS if self.queue.size <= LARGE else ():
            self._insert(prices, prices.order, slack)
            order = self._order(prices, prices.ideal[prices.cheapest], TAIL)
            self._insert(prices, order, slack)
            for place in range(len(SHARES)):
                self._flex(prices, order, slack, place)

    def _list(self, order: Ints, rows: Ints) -> None:
        cmax, total = self.lister.run(order, rows)
        self._priced += self.queue.size
        self._keep(
            ParetoPoint(cmax=cmax, total=total, rows=rows.copy(), start=self.lister.start.copy())
        )

    def _order(self, prices: Prices, start: Floats, tail: float) -> Ints:
        """Jobs by their starts, or, if that is sooner, by how late they start to end by `tail`."""
        last = tail * min(prices.cap, 2.0 * self.cmax) - self.queue.times[prices.cheapest]
        return np.argsort(np.minimum(start, last), kind="stable").astype(np.int64)

    def _insert(self, prices: Prices, order: Ints, slack: float, share: float = 1.0) -> None:
        self.builder.insert(prices, order, slack * prices.cap, share)
        self.builder.settle()
        self._count(len(SHARES))

    def _keep(self, point: ParetoPoint) -> bool:
        is_new = self.archive.add(point)
        if is_new and self._on_better is not None:
            self._on_better()
        return is_new

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
                slack = self._rng.uniform(1.0, SLACKEST)
                order = self._order(prices, start, tail)
                method = self._method()
                if method == len(SHARES):
                    self._insert(prices, order, slack, share)
                else:
                    self._flex(prices, order, slack, method)

    def _method(self) -> int:
        """One of `SHARES` for a list, or insertion: what brought more for its work, more often."""
        cost = np.full(len(SHARES) + 1, CALL + self.builder.list_work)
        cost[-1] = CALL + self.queue.size
        rate = (self._brought + 1.0) / (self._tried + 1.0) / cost
        return int(self._rng.choice(rate.size, p=rate / rate.sum()))

    def _flex(self, prices: Prices, order: Ints, slack: float, place: int) -> None:
        """A list whose allotments give way."""
        cap = slack * min(prices.cap, 2.0 * self.cmax)
        if self.builder.list(order, prices.cheapest, cap, *SHARES[place]):
            self._count(place)

    def _count(self, method: int) -> None:
        """Keep the schedule at hand, if it is needed, and count that."""
        self._tried[method] += 1
        self._brought[method] += self._keep(self.builder.point())

    def _search(self) -> None:
        """Local search for each end, then for the best in turn, each time from cooler on."""
        hot, ends = HOT, [*self.prices[:FEWEST], self.prices[-1]]
        while True:
            for prices in ends:
                self._improve(prices, hot)
                cap = min(prices.cap, self.archive.points[-1].cmax)
                self._relist(prices, self.archive.within(1.06 * cap) or self.archive.points[0], cap)
                if self._is_over():
                    return
            for cmax, total in self.references:
                if not self._is_beaten(cmax, total):
                    point = self.archive.within(cmax) or self.archive.points[0]
                    near = min(self.prices, key=lambda known: abs(known.cap - cmax))
                    self._relist(near, point, BELOW * cmax)
            hot, ends = max(0.7 * hot, 2.0 * COLD), self._best_ends()

    def _best_ends(self) -> list[Prices]:
        """Ends at which the least gap is proved of a point, and that of the balanced point."""
        points, balanced = self.archive.points, self.archive.balanced().cmax
        gaps = [
            min(factor(one.cmax, one.total, ascent.cap, ascent.best) for one in points)
            for ascent in self.ascents
        ]
        near = np.argmin([abs(prices.cap - balanced) for prices in self.prices])
        chosen = {*np.argsort(gaps, kind="stable")[:CLOSEST].tolist(), int(near)}
        return [self.prices[n] for n in sorted(chosen)]

    def _is_beaten(self, cmax: float, total: float) -> bool:
        """Whether a point is better in both criteria, or as short where nothing can be shorter."""
        most = cmax if cmax <= self.cmax * (1.0 + 1e-9) else cmax * (1.0 - 1e-9)
        point = self.archive.within(most)
        return point is not None and point.total < total

    def _relist(self, prices: Prices, point: ParetoPoint, cap: float) -> None:
        """Anneal the list that a schedule is, held at an end."""
        order = np.argsort(point.start, kind="stable")
        shares = TURNS[self._rng.integers(len(TURNS))]
        self._anneal(order, point.rows, cap, 2.0, (WARM, COOL), shares, waits=True, prices=prices)

    def _improve(self, prices: Prices, hot: float) -> None:
        cap = min(prices.cap, self.archive.points[-1].cmax)
        point = self.archive.within(1.06 * cap) or self.archive.points[0]
        self.builder.take(point)
        self.builder.improve(
            prices, min(max(cap, 0.98 * point.cmax), point.cmax), CHUNK, hot, COLD, MANY
        )
        self._keep(self.builder.point())


def shelved(queue: MoldableQueue) -> ParetoPoint:
    """The two-shelf schedule."""
    laid = two_shelf_schedule(queue)
    total = float(queue.weight @ (laid.start + queue.times[laid.rows]))
    return ParetoPoint(cmax=laid.makespan, total=total, rows=laid.rows, start=laid.start)
