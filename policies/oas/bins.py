"""Searches for better plans of rigid jobs that each lie in one *bin*: see `kernel.search.bins`.

Bins are the clusters where no job can be split, or all slots where links do not matter. All nodes
of a bin are alike, jobs may start at once, and what is there only ends.

Notes
-----
It looks for a plan that ends one step before the best one, step by step down to the bound. A cycle
goes from warm to cold, is longer than the one before, and begins where that has ended. The first
temperatures take turns: few wide jobs need warmer ones than many small ones. At first each job lets
others pass where it does not fit, and only there. A longer cycle is a population annealing
(Hukushima, Iba 2003, doi:10.1063/1.1632130): before each round replicas of high cost give way to
copies of those of low cost, by Boltzmann's weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

import numpy as np

from coalloc.policies.bounds.measure import measure_of
from coalloc.policies.kernel.annealing_loop import (
    BEST,
    CURRENT,
    LIMIT,
    TRIALS,
    make_annealing,
    warm_up,
)
from coalloc.policies.kernel.record import copy_of, room_for
from coalloc.policies.kernel.search.bins import (
    ALL,
    COST,
    HERE,
    LISTED,
    PRICE,
    BinDesk,
    BinOrders,
    Bins,
    BinSearch,
    anneal,
)
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.state import SHORTEST, Outcome
from coalloc.policies.oas.walk import SETTLED

MOVES = 2_000
"""Between two looks at the clock."""
FIRST_CYCLE, LONGER = 20_000, 1.5
"""Moves of the first cycle, and how much longer each one is."""
REPLICAS, ENOUGH, ROUNDS = 4, 100_000, 40
"""Of a cycle: how many at most, the moves that each has at least, and its turns."""
WARM, COLD = (0.001, 0.003, 0.001, 0.01), 0.0001
"""First temperatures of the cycles in turn, and the last, by all slots times the best end."""
IDLE_PRICE = 3.0
"""Of a slot that is idle at the start, by one that is busy beyond the end that is looked for."""
FREE, SHORTER = 3, 4
"""Each such cycle has no price, so that plans that must be idle early are found; how much shorter
it is."""
STEPS = 16
"""Where times have no common measure: steps from the best value to the bound; twice as many after
each cycle that found nothing."""
FASTER = 10
"""Moves of a search by bins for one of the other annealing."""


def bins_of(lister: Lister) -> list[list[int]] | None:
    """The classes of each bin; None where more matters than the number of slots in each."""
    problem, rows, items = lister.problem, lister.rows, lister.items
    if items.size < max(problem.item_group.size, 2) or problem.closed.size:
        return None
    if rows.dips.any() or (problem.item_apart[items] >= 0).any():
        return None
    if (problem.need != 1).any() or (np.diff(problem.mode_first) != 1).any():
        return None
    if (rows.ready[items] > rows.time[0]).any() or rows.missing[items].any():
        return None
    links, cluster = problem.link_gbps, problem.class_cluster
    bins = [np.flatnonzero(cluster == k).tolist() for k in range(links.size)]
    splits = problem.item_splits[items]
    free = splits & (problem.item_gbps[items] <= 0.0)
    if free.all():
        bins = [list(range(cluster.size))]
    elif free.any() or (splits.any() and links.any()):
        return None
    powers = [set(problem.class_power[classes].tolist()) for classes in bins]
    everything = problem.class_power.size
    if any(len(power) > 1 for power in powers) or (problem.group_size < everything).any():
        return None
    return [classes for classes in bins if classes]


class BinAnnealing:
    """The search of one lister; `work` counts jobs placed, `trials` moves.

    A settled one begins with the plan of the round before, and is less patient until it finds one.
    `order` and `homes` have the items by start, and the cluster of each, of what was found last.
    """

    def __init__(
        self,
        lister: Lister,
        bins: list[list[int]],
        best: Outcome,
        *,
        seed: int,
        settled: bool = False,
    ) -> None:
        problem, rows = lister.problem, lister.rows
        self.lister, self.bins, self.settled = lister, bins, settled
        procs = problem.mode_procs[problem.mode_first[lister.items]]
        self.items = items = lister.items[np.argsort(procs, kind="stable")]
        self.measure, self.now = measure_of(lister.planner), float(rows.time[0])
        mode = problem.mode_first[items]
        power = np.array([problem.class_power[classes[0]] for classes in bins])
        seconds = problem.mode_scaled[mode][:, None] / power + problem.mode_fixed[mode][:, None]
        seconds = np.minimum(seconds, problem.item_limit[items][:, None])
        free = np.stack([rows.free[:, classes].sum(axis=1) for classes in bins], axis=1)
        procs, slots = problem.mode_procs[mode], free[-1]
        seconds = np.where(procs[:, None] <= slots, np.maximum(seconds, SHORTEST), inf)
        ends, held = (rows.time[1:] - self.now)[::-1], np.diff(free, axis=0)[::-1]
        there = [np.flatnonzero(held[:, k]) for k in range(len(bins))]
        n = items.size
        self.case = Bins(
            procs=procs,
            fitting=np.searchsorted(procs, np.arange(int(slots.max()) + 1), side="right"),
            seconds=seconds,
            slots=slots,
            now=free[0].copy(),
            first=np.cumsum([0, *(steps.size for steps in there)]),
            end=np.concatenate([ends[steps] for steps in there]),
            held=np.concatenate([held[steps, k] for k, steps in enumerate(there)]),
            aim=np.zeros(3),
        )
        orders = self._as_in(best)
        self.best = copy_of(orders)
        self.best.yields[:] = 0
        self.desk = room_for(BinDesk, N=n, F=n + 1, W=-(-n // 64), K=len(bins), R=n + ends.size)
        self.replicas = [BinSearch(self.case, orders, self.best, self.desk)]
        self.state = make_annealing(seed)
        self.left, self.cycle, self.length = 0, 0, FIRST_CYCLE
        self.failed = self.since = 0

    @property
    def work(self) -> int:
        """Jobs placed so far."""
        return int(self.desk.counters[LISTED])

    @property
    def trials(self) -> int:
        """Moves so far."""
        return int(self.state.count[TRIALS])

    def tired(self, patience: int | None) -> bool:
        """Whether so many moves per item, each of all items, have found nothing."""
        if patience is None:
            return False
        if self.settled and self.since == 0:
            patience = -(-patience // SETTLED)
        return self.work - self.since > patience * FASTER * self.items.size**2

    def run(self, best: float, bound: float, work: int) -> bool:
        """Look for a makespan below `best`, seconds from now; whether one was found."""
        if self.left <= 0:
            self.turns = self._cycle(best)
            next(self.turns)
            self.case.aim[0] = inf
        if self.case.aim[0] >= best:
            self._aim(best, bound)
        until = self.work + work
        while self.work < until and self.left > 0 and self.state.value[BEST] > 0.0:
            moves = max(min(MOVES, self.left, (until - self.work) // self.items.size), 1)
            anneal(self.replicas[-1], self.state, moves, False)
            self.left -= moves
            if self.left == 0:
                next(self.turns, None)
        if self.state.value[BEST] > 0.0:
            return False
        self._list(_copied(self.replicas[-1])._replace(orders=self.best))
        self.since, self.failed = self.work, 0
        return True

    def _cycle(self, best: float) -> Iterator[None]:
        """Go from warm to cold; at each yield the last replica makes the moves that are `left`."""
        is_free = self.cycle % FREE == FREE - 1
        self.case.aim[PRICE] = 0.0 if is_free else IDLE_PRICE
        moves = self.length // SHORTER if is_free else self.length
        if not is_free:
            self.length = int(self.length * LONGER)
        count = min(max(moves // ENOUGH, 1), REPLICAS)
        heat = np.geomspace(WARM[self.cycle % len(WARM)], COLD, ROUNDS + 1)
        heat *= self.case.slots.sum() * best
        self.cycle += 1
        self.failed += 1
        colder = 1.0 / heat[-1]
        for warm, cool in pairwise(heat.tolist()):
            costs = np.array([replica.desk.known[COST].sum() for replica in self.replicas])
            sums = np.exp((costs.min() - costs) * colder).cumsum()
            chosen = np.searchsorted(sums / sums[-1], (np.arange(count) + 0.5) / count)
            self.replicas, colder = [_copied(self.replicas[n]) for n in chosen], 1 / cool - 1 / warm
            for _ in range(count):
                self.replicas.append(self.replicas.pop(0))
                self.state.value[CURRENT] = self.replicas[-1].desk.known[COST].sum()
                self.left = moves // (count * ROUNDS)
                warm_up(self.state, warm, cool, 1.0, self.left)
                yield

    def _aim(self, best: float, bound: float) -> None:
        """Choose an end, and go on from there."""
        step = self.measure or max((best - bound) / STEPS * 0.5**self.failed, 1e-6 * best)
        end = max(best - step, min(bound, best))
        self.case.aim[:PRICE] = end, 1e-9 * end
        self.state.value[BEST] = inf
        for search in self.replicas:
            self.state.value[CURRENT] = self._list(search)

    def _list(self, search: BinSearch) -> float:
        """List all bins by the choices of a search."""
        self.state.value[LIMIT] = inf
        self.desk.counters[HERE] = ALL
        return anneal(search, self.state, 0, True)

    @property
    def found(self) -> tuple[list[int], list[int]]:
        """Items by start, and the cluster of each, of what was listed last."""
        order = np.argsort(self.desk.start, kind="stable").tolist()
        cluster = self.lister.problem.class_cluster
        home = [-1] * len(order)
        for k, classes in enumerate(self.bins):
            for n in self.best.order[k, : self.best.jobs[k]].tolist():
                home[n] = int(cluster[classes[0]])
        return [int(self.items[n]) for n in order], [home[n] for n in order]

    def _as_in(self, best: Outcome) -> BinOrders:
        """Orders by the starts of a plan."""
        n, count = self.items.size, len(self.bins)
        orders = BinOrders(
            order=np.zeros((count, n), dtype=np.int64),
            jobs=np.zeros(count, dtype=np.int64),
            yields=np.repeat([[1], [0]], n, axis=1),
        )
        of_class = {c: k for k, classes in enumerate(self.bins) for c in classes}
        for n in np.lexsort((self.items, best.start[self.items])).tolist():
            k = of_class[int(best.use_class[best.use_first[self.items[n]]])]
            orders.order[k, orders.jobs[k]] = n
            orders.jobs[k] += 1
        return orders


def _copied(search: BinSearch) -> BinSearch:
    """A replica with orders of its own, and what is known of them."""
    desk = search.desk._replace(known=search.desk.known.copy())
    return search._replace(orders=copy_of(search.orders), desk=desk)
