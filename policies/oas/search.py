"""The engine of `oas`: simple orders, annealing, exact search, with the best plan at any time.

Notes
-----
*Work* counts items placed, by whichever decoder, and the work of the exact search. The search ends

- proved: the value meets the bound, or the exact search has ended;
- by its work limit, or by *patience*: so many moves per item in a row without an improvement;
- when the caller's `stop` says so, which is asked after each chunk of some ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.bounds import Bound
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner
from coalloc.policies.mip.cp_sat import UnfitError, next_call
from coalloc.policies.oas.bins import BinAnnealing, bins_of
from coalloc.policies.oas.exact import ExactSearch
from coalloc.policies.oas.orders import THEN, Orders, begin, find_bound, objective_of, try_orders
from coalloc.policies.oas.walk import FIRST_CYCLE, Walk

REPORT_AFTER = 20_000
"""Items placed, at least, between two incumbents of the annealing."""
EXACT_ITEMS = 40
"""The exact search has proved little that is larger."""
BINS_CHUNK = 1_000_000
"""Jobs placed in bins between two looks at the clock, some 30 ms."""


class OasSearch:
    """Search that improves the best plan of a snapshot, by the planner's complete options.

    Plans carry the name `policy`. `walk` is the annealing, once there is one.
    """

    def __init__(
        self,
        planner: Planner,
        policy: str,
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> None:
        self.planner = planner
        self.incumbent = begin(planner, policy, budget, on_incumbent)
        options: Mapping[str, Any] = planner.options
        self.objective = objective_of(planner)
        self.turns = self.objective == THEN
        self.patience = options.get("patience")
        self.exact_work = options.get("exact_work") or 0
        self.threshold = options.get("saturation_threshold", 1.0)
        self.window = options.get("window") or len(planner.snapshot.queue)
        self.walk: Walk | None = None
        self.walked = 0

    def run(self, first: Orders, more: Orders) -> None:
        """Search until it is proved, spent, or out of patience.

        `first`, `more` (tuple of (order, decoder)): the first incumbent is the best of `first`;
        `more` are tried next.
        """
        incumbent = self.incumbent
        try_orders(self.planner, incumbent, first)
        incumbent.report()
        before = incumbent.best
        try_orders(self.planner, incumbent, more)
        if incumbent.best is not before:
            incumbent.report()
        find_bound(self.planner, incumbent, "quick")
        if incumbent.met and not self.turns:
            incumbent.proved = True
            return
        if incumbent.spent:
            return
        self._anneal_and_prove()

    def _anneal_and_prove(self) -> None:
        incumbent = self.incumbent
        self.walk = walk = Walk(self.planner, incumbent, self.window, self.threshold)
        walk.begin()
        bins = self._bins(walk)
        if bins is None:
            self._walk(walk, FIRST_CYCLE)
        if not incumbent.spent and not (incumbent.met and not self.turns):
            find_bound(self.planner, incumbent, "full")
        exact = self._exact()
        while not incumbent.spent:
            if incumbent.met and not self.turns:
                incumbent.proved = True
                return
            tired = (walk if bins is None else bins).tired(self.patience)
            if self.turns and bins is not None and (tired or incumbent.met):
                bins, tired = None, False
            if exact is not None and (tired or exact.work <= self.walked):
                if self._prove(exact, tired):
                    return
                if exact.failed or exact.work >= self.exact_work:
                    exact = None
            if tired and exact is None:
                return
            if not tired and bins is not None:
                self._fill(bins, walk)
            elif not tired:
                self._walk(walk, None)
        incumbent.proved = incumbent.met and not self.turns

    def _bins(self, walk: Walk) -> BinAnnealing | None:
        """The annealing by bins, where it applies."""
        incumbent = self.incumbent
        if self.objective == WEIGHTED or incumbent.best is None or incumbent.best.unplaced:
            return None
        bins = bins_of(walk.lister)
        if bins is None:
            return None
        best, seed = incumbent.best.outcome, incumbent.budget.seed
        return BinAnnealing(walk.lister, bins, best, seed=seed, settled=walk.settled)

    def _fill(self, bins: BinAnnealing, walk: Walk) -> None:
        """Some work of the annealing by bins."""
        incumbent = self.incumbent
        assert incumbent.best is not None
        before, bound = bins.work, 0.0 if incumbent.bound is None else incumbent.bound.value
        if bins.run(incumbent.best.makespan, bound, incumbent.chunk(BINS_CHUNK)):
            walk.start_from(*bins.found)
            walk.take("bins")
            walk.flush()
        incumbent.trials = bins.trials
        incumbent.work += bins.work - before
        self.walked += bins.work - before

    def _walk(self, walk: Walk, share: int | None) -> None:
        """One chunk of annealing, or a share of moves per item; reports what it finds."""
        incumbent = self.incumbent
        moves = None if share is None else share * walk.size
        while moves is None or moves > 0:
            done = walk.step(moves)
            self.walked += done * walk.size
            if walk.improved:
                walk.take()
            if incumbent.best is not None and incumbent.work >= incumbent.reported + REPORT_AFTER:
                walk.flush()
            if moves is None or incumbent.spent or incumbent.met:
                break
            moves -= done
        if share is not None:
            walk.flush()

    def _exact(self) -> ExactSearch | None:
        """The exact search, where it applies."""
        incumbent = self.incumbent
        if incumbent.best is None or incumbent.best.unplaced or not self.exact_work:
            return None
        most = min(EXACT_ITEMS, self.window)
        if len(self.planner.items) > most:
            incumbent.unproved = f"none: more than {most} jobs"
            return None
        seed = incumbent.budget.seed
        try:
            return ExactSearch(self.planner, self.objective, incumbent.best, seed=seed)
        except UnfitError as error:
            incumbent.unproved = f"none: {error}"
            return None

    def _prove(self, exact: ExactSearch, alone: bool) -> bool:
        """A call of the exact search, `alone` to its end; True once it has proved the best plan."""
        incumbent = self.incumbent
        assert incumbent.best is not None
        exact.offer(incumbent.best, 0.0 if incumbent.bound is None else incumbent.bound.value)
        before, left = exact.work, self.exact_work - exact.work
        some = left if alone else min(next_call(exact.work), left)
        ended = exact.run(incumbent.chunk(some), incumbent.budget.stop)
        incumbent.work += exact.work - before
        if exact.best is not None and incumbent.offer(exact.best, "exact search"):
            incumbent.report()
        incumbent.raise_bound(Bound(value=exact.bound, parts={"exact search": exact.bound}))
        incumbent.proved = ended
        return ended
