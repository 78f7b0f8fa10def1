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
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.oas.exact import ExactSearch, why_not
from coalloc.policies.oas.fill import CHUNK as FILL_CHUNK
from coalloc.policies.oas.fill import Filling, applies
from coalloc.policies.oas.orders import THEN, Orders, begin, find_bound, objective_of, try_orders
from coalloc.policies.oas.walk import FIRST_CYCLE, Walk

REPORT_AFTER = 20_000
"""Items placed, at least, between two incumbents of the annealing."""
EXACT_ITEMS = 40
"""The exact search has proved little that is larger."""
EXACT_CHUNK = 100_000
"""Work of its first call; each call has three times what all before it had."""


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
        self._walk(walk, FIRST_CYCLE)
        if not incumbent.spent and not (incumbent.met and not self.turns):
            find_bound(self.planner, incumbent, "full")
        exact, filling = self._exact(), self._filling(walk)
        while not incumbent.spent:
            if incumbent.met and not self.turns:
                incumbent.proved = True
                return
            tired = walk.tired(self.patience)
            if exact is not None and (tired or exact.work <= self.walked):
                if self._prove(exact, tired):
                    return
                if exact.failed or exact.work >= self.exact_work:
                    exact = None
            if filling is not None and walk.phase == MAKESPAN:
                self._fill(filling, walk)
                if incumbent.met:
                    filling = None
                    continue
            if tired and exact is None:
                return
            if not tired:
                self._walk(walk, None)
        incumbent.proved = incumbent.met and not self.turns

    def _filling(self, walk: Walk) -> Filling | None:
        """The search for a plan without waste, where it applies."""
        incumbent = self.incumbent
        if self.objective == WEIGHTED or incumbent.best is None or incumbent.best.unplaced:
            return None
        if not applies(walk.lister):
            return None
        filling = Filling(walk.lister, incumbent.budget.seed)
        filling.bound = 0.0 if incumbent.bound is None else incumbent.bound.value
        self._know(filling)
        return filling

    def _know(self, filling: Filling) -> None:
        """Take over its bound."""
        incumbent = self.incumbent
        parts = {} if incumbent.bound is None else incumbent.bound.parts
        value = filling.bound
        incumbent.raise_bound(Bound(value=value, parts={**parts, "filling": value}))

    def _fill(self, filling: Filling, walk: Walk) -> None:
        """Some work of the search for a plan without waste."""
        incumbent = self.incumbent
        assert incumbent.best is not None
        before = filling.work
        if (
            filling.run(incumbent.best.makespan, incumbent.chunk(FILL_CHUNK))
            and filling.order is not None
        ):
            walk.start_from(filling.order)
            if walk.improved:
                walk.take("filling")
                walk.flush()
        incumbent.work += filling.work - before
        self._know(filling)

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
        if len(self.planner.items) > min(EXACT_ITEMS, self.window) or not self.planner.items:
            return None
        if why_not(self.planner) is not None:
            return None
        seed = incumbent.budget.seed
        return ExactSearch(self.planner, self.objective, incumbent.best, seed=seed)

    def _prove(self, exact: ExactSearch, alone: bool) -> bool:
        """A call of the exact search, `alone` to its end; True once it has proved the best plan."""
        incumbent = self.incumbent
        assert incumbent.best is not None
        exact.offer(incumbent.best, 0.0 if incumbent.bound is None else incumbent.bound.value)
        before, left = exact.work, self.exact_work - exact.work
        some = left if alone else min(max(3 * exact.work, EXACT_CHUNK), left)
        ended = exact.run(incumbent.chunk(some), incumbent.budget.stop)
        incumbent.work += exact.work - before
        if exact.best is not None and incumbent.offer(exact.best, "exact search"):
            incumbent.report()
        incumbent.raise_bound(Bound(value=exact.bound, parts={"exact search": exact.bound}))
        incumbent.proved = ended
        return ended
