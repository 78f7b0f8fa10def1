"""Schedules of a moldable queue, built at prices of processor time."""

from __future__ import annotations

import numpy as np

from coalloc.policies.array_types import Ints
from coalloc.policies.kernel.annealing_loop import (
    BEST,
    COOLING,
    LIMIT,
    WARMTH,
    Annealing,
    make_annealing,
    warm_up,
)
from coalloc.policies.kernel.pool.list_annealing import Decoding, ListSearch, Turns, anneal_list
from coalloc.policies.kernel.pool.pool_insertion import Costs, Placed, insert_all, settle
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, list_on_pool, lists_for
from coalloc.policies.kernel.pool.pool_profile import PoolProfile
from coalloc.policies.kernel.pool.pool_reinsertion import (
    MOST,
    TAKEN,
    Goal,
    Moved,
    Reinsertion,
    reinsert,
)
from coalloc.policies.kernel.pool.pricing import Priced, price_rows
from coalloc.policies.moldable.bicriteria.archive import ParetoPoint
from coalloc.policies.moldable.priced_bound import Ascent
from coalloc.policies.moldable.queue import MoldableQueue

CALL = 16
"""Jobs that count for a call."""
DOUBT = 1e-4
"""Share of the weighted completion by which the prices may be wrong of a trial."""
FREE = Costs(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(1), np.zeros(2), 1e300)
"""No price at any time."""


class Prices:
    """Least cost of each allotment, and its place, at the best prices of an ascent.

    `ideal` are starts in seconds, `order` are the jobs by the start of their `cheapest` allotment.
    `cap` is the end of the schedules that the prices were sought for, seconds; `costs` is the same
    for kernels.
    """

    def __init__(self, queue: MoldableQueue, ascent: Ascent) -> None:
        priced = Priced.on(ascent.grid, ascent.best_prices)
        self.cap = ascent.cap
        self.least, self.ideal = np.empty(queue.procs.size), np.empty(queue.procs.size)
        price_rows(queue.jobs, priced, self.cap, self.least, self.ideal)
        job = np.repeat(np.arange(queue.size), np.diff(queue.first))
        ranked = np.lexsort((self.least, job))
        self.cheapest = ranked[queue.first[:-1]]
        self.order = np.argsort(self.ideal[self.cheapest], kind="stable")
        width = float(ascent.grid[1] - ascent.grid[0])
        self.costs = Costs(self.least, self.ideal, ranked, priced.price, priced.total, width)


class Builder:
    """Working memory for the schedules of one queue.

    The schedule at hand is `rows`, allotments, with `start` and `end`, seconds. `work` are the
    placements tried so far; for it, a list counts as many as `list_work`, the square of the queue,
    by which limits were chosen, and a trial that gives places in turn as many as `turn_work`, by
    the time that it takes.
    """

    def __init__(self, queue: MoldableQueue, seed: int = 0) -> None:
        n, rows = queue.size, 2 * queue.size + queue.starts.size + 4
        self.queue = queue
        self.rows, self.start, self.end = self._now = _unplaced(n)
        self.work: float = 0
        self.list_work = max(n * n, 100) / 1600.0
        self.turn_work = self.list_work / 15.0 + 0.04
        self._best = _unplaced(n)
        self._profile = PoolProfile(
            np.zeros(rows), np.zeros(rows, dtype=np.int64), np.zeros(1, dtype=np.int64)
        )
        self._moved, self._turns = Moved.empty(), Turns.empty(rows, n)
        self._lists = lists_for(n, queue.capacity)
        self._annealing = make_annealing(seed)

    def point(self) -> ParetoPoint:
        """The schedule at hand."""
        return ParetoPoint(
            cmax=float(self.end.max()),
            total=float(self.queue.weight @ self.end),
            rows=self.rows.copy(),
            start=self.start.copy(),
        )

    def insert(self, prices: Prices, order: Ints, cap: float, share: float = 1.0) -> None:
        """Put all jobs in this order where they cost least, ends by `cap` before later ones."""
        self._clear()
        self.work += CALL + self.queue.size
        insert_all(self.queue.jobs, prices.costs, order, share, cap, self._profile, self._now)

    def list(
        self, order: Ints, wanted: Ints, cap: float, squeeze: float = 1.0, stretch: float = 1.0
    ) -> bool:
        """List all jobs in this order on about these allotments; see `list_on_pool`."""
        queue, rule = self.queue, ListRule(squeeze, stretch, cap, np.inf)
        self.work += CALL + self.list_work
        listing, there = Listing(order, wanted), queue.processors
        cmax, _ = list_on_pool(queue.jobs, there, listing, rule, self._lists, self._now)
        return bool(cmax < np.inf)

    def anneal(
        self,
        order: Ints,
        wanted: Ints,
        cap: float,
        shares: tuple[float, float],
        trials: int,
        heats: tuple[float, float],
        late: float = 2.0,
        *,
        waits: bool = False,
        prices: Prices | None = None,
    ) -> bool:
        """Change a list a little, so many times; the best schedule is then at hand.

        The shares are squeeze and stretch, the heats the temperatures at the begin and end, as
        shares of the weighted completion. Where it `waits`, each job gets its place before any
        later one, though processors wait for it; nothing is stretched then, and a trial that is too
        dear at the `prices` is given up.
        """
        queue, best = self.queue, Listing(order.copy(), wanted.copy())
        self.list(order, wanted, cap, *shares)
        scale = float(queue.weight @ self.end)
        self.work += trials * (self.turn_work if waits else self.list_work)
        search = ListSearch(
            queue.jobs,
            queue.processors,
            ListRule(*shares, cap, np.inf),
            Decoding(
                late * scale,
                waits,
                least_for(queue, shares[0]),
                np.inf if prices is None else DOUBT * scale,
            ),
            FREE if prices is None else prices.costs,
            Listing(order.copy(), wanted.copy()),
            best,
            self._lists,
            self._profile,
            self._turns,
            self._best,
            self._now,
        )
        self._turns.forget()
        state = self._begin(*heats, scale, trials)
        state.value[WARMTH] *= state.value[COOLING]  # the list as it is was the first trial
        anneal_list(search, state, trials - 1, True)
        if waits:
            self._turns.forget()
            self._begin(*heats, scale, trials)
            anneal_list(search._replace(listing=best), state, 0, True)
            self.settle()
            return True
        return self.list(best.order, best.wanted, cap, *shares)

    def settle(self) -> None:
        """Start every job as early as it can, by rising starts; none starts later than before."""
        self._clear()
        order = np.argsort(self.start, kind="stable")
        settle(self.queue.jobs, order, self._profile, self._now)

    def take(self, point: ParetoPoint) -> None:
        """Go on from this schedule."""
        self.rows[:], self.start[:] = point.rows, point.start
        self.settle()

    def improve(
        self, prices: Prices, cap: float, rounds: int, hot: float, cold: float, many: int
    ) -> None:
        """Take a few jobs out and put them back, many times; the best schedule is then at hand.

        `cap`: what the makespan should not pass, seconds.
        `hot`, `cold`: temperatures at the begin and end, as shares of the weighted completion.
        `many`: jobs at once, at most.
        """
        scale = float(self.queue.weight @ self.end)
        search = Reinsertion(
            self.queue.jobs,
            prices.costs,
            Goal(cap, scale),
            min(many, MOST),
            self._profile,
            self._moved,
            self._now,
            self._best,
        )
        state = self._begin(hot, cold, scale, rounds)
        reinsert(search, state, rounds, True)
        self.work += int(state.count[TAKEN])
        self.rows[:], self.start[:] = self._best.row, self._best.start
        self.settle()

    def _begin(self, hot: float, cold: float, scale: float, trials: int) -> Annealing:
        """An annealing that knows nothing yet; its draws go on from the one before."""
        state = self._annealing
        state.value[[BEST, LIMIT]], state.count[:] = np.inf, 0
        warm_up(state, hot, cold, scale, trials)
        return state

    def _clear(self) -> None:
        """Nothing is placed."""
        queue, profile = self.queue, self._profile
        size = queue.starts.size
        profile.edge[:size], profile.free[:size] = queue.starts, queue.capacity
        profile.rows[0] = size


def least_for(queue: MoldableQueue, squeeze: float) -> Ints:
    """For each allotment, the least of the same job that has such a share of its processors."""
    job = np.repeat(np.arange(queue.size), np.diff(queue.first)) * (queue.procs.max() + 1)
    least: Ints = np.searchsorted(job + queue.procs, job + np.ceil(squeeze * queue.procs))
    return least


def _unplaced(jobs: int) -> Placed:
    return Placed(np.zeros(jobs, dtype=np.int64), np.zeros(jobs), np.zeros(jobs))
