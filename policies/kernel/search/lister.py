"""The arrays of `listing` and `annealing`, and their calls from Python."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.kernel.annealing_loop import BEST, LIMIT, Annealing, make_annealing
from coalloc.policies.kernel.instance.arrays import make_outcome
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.record import copy_of, room_for
from coalloc.policies.kernel.search.annealing import LAST, LATEST, Domains, ListingSearch, anneal
from coalloc.policies.kernel.search.listing_state import (
    ListingDesk,
    ListingGenes,
    ListingState,
    Rows,
)
from coalloc.policies.kernel.state import Outcome

ANY, WHOLE = -1, -2
"""Homes: any clusters; any one cluster."""
BLEND = 1.0
"""Weight of the power that is held or left idle in the energy of `listing`."""


class Lister:
    """Lists some items of a planner by genes, around what is booked already.

    `booked` are the places of items that were booked before, still in the planner's profile.
    """

    def __init__(self, planner: Planner, items: Sequence[int], booked: Schedule) -> None:
        self.planner = planner
        self.items = np.array(items, dtype=np.int64)
        self.problem = planner.compiled.problem
        self.booked = booked.outcome
        self.rows = self._rows(booked.outcome)
        self.desk = self._desk()
        self.out = make_outcome(self.problem)
        self._still = begin_annealing(seed=0)
        self._still.value[BEST] = -inf  # nothing is kept
        for name in ("start", "end", "mode", "use_first", "use_count", "use_class", "use_procs"):
            getattr(self.out, name)[:] = getattr(self.booked, name)  # `evaluate` writes the rest
        self.out.missing[:] = 0

    def _rows(self, booked: Outcome) -> Rows:
        planner, problem = self.planner, self.problem
        times, counts, load = planner.availability()
        free = counts.astype(np.int64)
        least = np.minimum.accumulate(free[::-1], axis=0)[::-1]
        most = np.maximum.accumulate(load[::-1], axis=0)[::-1]
        dips = np.any(least < free, axis=1) | np.any(most > load, axis=1)
        jobs = np.unique(planner.numbers[self.items])
        weights = np.array([job.weight for job in planner.snapshot.queue])
        used = booked.use_first + booked.use_count
        slots = (free // problem.class_grain * problem.class_power).sum(axis=1)
        return Rows(
            time=times,
            free=free,
            load=load,
            dips=np.array(dips, dtype=np.int64),
            able=np.array([slots.max(initial=0.0)]),
            weight=planner.weights,
            weight_sum=np.array([weights[jobs].sum() if jobs.size else 0.0]),
            job=planner.numbers,
            area=self._areas(),
            ready=booked.ready.copy(),
            missing=booked.missing.copy(),
            first_use=np.array([used.max() if used.size else 0], dtype=np.int64),
        )

    def _areas(self) -> Floats:
        """The least power times seconds that each item takes."""
        problem = self.problem
        out = np.zeros(problem.item_group.size)
        for item in self.items.tolist():
            a, b = problem.mode_first[item], problem.mode_first[item + 1]
            group = problem.item_group[item]
            size = problem.group_size[group]
            weakest = problem.class_power[problem.group_class[group, size - 1]] if size else 0.0
            work = problem.mode_scaled[a:b] + problem.mode_fixed[a:b] * weakest
            least = np.minimum(work, problem.item_limit[item] * weakest)
            out[item] = (problem.mode_procs[a:b] * least).min()
        return out

    def _desk(self) -> ListingDesk:
        n, k = self.problem.item_group.size, self.problem.link_gbps.size
        classes, listed = self.problem.class_power.size, self.items.size
        jobs, measure = len(self.planner.snapshot.queue), np.array([0.0, BLEND, 0.0])
        return room_for(ListingDesk, N=n, K=k, C=classes, L=listed, jobs=jobs, measure=measure)

    def genes(self, order: Sequence[int] | None = None) -> ListingGenes:
        """Choices that leave everything to the listing, in this order of the listed items."""
        n = self.problem.item_group.size

        def full(value: int) -> Ints:
            return np.full(n, value, dtype=np.int64)

        chosen = self.items if order is None else order
        return ListingGenes(
            order=np.array(chosen, dtype=np.int64),
            mode=full(0),
            level=full(-1),
            home=full(ANY),
            block=full(0),
            sc=np.ones(n),
        )

    def evaluate(
        self, genes: ListingGenes, objective: int, cutoff: float = inf, latest: float = inf
    ) -> float:
        """List by these choices into `out`; the objective, inf if it passes a limit."""
        still = self._still
        still.value[LIMIT], still.value[LATEST] = cutoff, latest
        search = self._search(genes, genes, NO_DOMAINS, objective)
        return anneal(search, still, 0, True)

    def anneal(
        self,
        genes: ListingGenes,
        best: ListingGenes,
        domains: Domains,
        state: Annealing,
        objective: int,
        trials: int,
    ) -> None:
        """So many moves of an annealing; the best choices are left in `best`."""
        anneal(self._search(genes, best, domains, objective), state, trials, False)

    def _search(
        self, genes: ListingGenes, best: ListingGenes, domains: Domains, objective: int
    ) -> ListingSearch:
        listing = ListingState(self.problem, self.rows, genes, self.desk, self.out)
        return ListingSearch(listing, best, domains, objective)

    def last_item(self) -> int:
        """An item that ends last in what `evaluate` listed to its end."""
        return int(self.items[np.argmax(self.out.end[self.items])])

    def outcome(self) -> Outcome:
        """A copy of what `evaluate` wrote."""
        return copy_of(self.out)


def begin_annealing(seed: int) -> Annealing:
    """The state of an annealing that has not begun."""
    state = make_annealing(seed)
    state.value[LATEST], state.count[LAST] = inf, -1
    return state


def domains_of(lister: Lister, sc: Sequence[float] = (1.0,)) -> Domains:
    """Choices of each item.

    `sc` (sequence of float): what the communication of a job may be slowed down by.
    """
    problem = lister.problem
    items, clusters = problem.item_group.size, problem.link_gbps.size
    classes = problem.class_power.size
    levels = np.full((items, 2 + 2 * classes), -1, dtype=np.int64)
    homes = np.full((items, 3 + clusters), ANY, dtype=np.int64)
    levels[:, 0], homes[:, 0] = 1, 1
    most = lister.rows.free.max(axis=0) if lister.rows.free.size else lister.rows.free.sum(axis=0)
    for item in lister.items.tolist():
        group = problem.item_group[item]
        allowed = problem.group_class[group, : problem.group_size[group]]
        procs = problem.mode_procs[problem.mode_first[item]]
        room = np.zeros(clusters, dtype=np.int64)
        pure = np.zeros(clusters, dtype=np.int64)
        held = most[allowed] // problem.need[group, allowed]
        power = problem.class_power[allowed]
        for c, count, last in zip(
            allowed, held, np.append(power[1:] < power[:-1], True), strict=True
        ):
            room[problem.class_cluster[c]] += count
            pure[problem.class_cluster[c]] += count
            if not last or power[0] == power[-1]:
                continue
            for held_there, choice in ((room, c), (pure, c + classes)):
                enough = held_there.sum() if problem.item_splits[item] else held_there.max()
                if enough >= procs:
                    levels[item, 1 + levels[item, 0]] = choice
                    levels[item, 0] += 1
            pure[:] = 0
        whole = np.flatnonzero(room >= procs)
        if whole.size and clusters > 1:
            several = [WHOLE] if problem.item_splits[item] else []
            chosen = [ANY, *several, *whole]
            homes[item, 1 : 1 + len(chosen)] = chosen
            homes[item, 0] = len(chosen)
    return Domains(
        levels=levels,
        homes=homes,
        modes=np.diff(problem.mode_first),
        sc=np.array(sc, dtype=np.float64),
        loads=((problem.item_gbps > 0.0) & problem.item_splits & (len(sc) > 1)).astype(np.int64),
    )


NO_DOMAINS = Domains(
    levels=np.zeros((0, 2), dtype=np.int64),
    homes=np.zeros((0, 3), dtype=np.int64),
    modes=np.zeros(0, dtype=np.int64),
    sc=np.ones(1),
    loads=np.zeros(0, dtype=np.int64),
)
"""Of an annealing that changes nothing."""
