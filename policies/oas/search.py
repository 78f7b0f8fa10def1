"""The engine of `oas`: simple orders, annealing, exact search, with the best plan at any time.

Notes
-----
*Work* counts items placed, by whichever decoder, and nodes of the exact search. The search ends

- proved: the value meets the bound, or the exact search has ended;
- by its work limit, or by *patience*: so many moves per item in a row without an improvement;
- when the caller's `stop` says so, which is asked after each chunk of some ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from coalloc.model.plan import Plan, Status
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.bounds import Bound, lower_bound
from coalloc.policies.kernel.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.oas.exact import ExactSearch, why_not
from coalloc.policies.oas.fill import CHUNK as FILL_CHUNK
from coalloc.policies.oas.fill import Filling, applies
from coalloc.policies.oas.seeds import by_rule
from coalloc.policies.oas.walk import FIRST_CYCLE, Walk

Orders = tuple[tuple[str, str], ...]
THEN = "makespan_then_weighted_completion"
PROVED = 1e-9
"""Relative gap at which a plan counts as optimal."""
REPORT_AFTER = 20_000
"""Items placed, at least, between two incumbents of the annealing."""
EXACT_ITEMS = 14
"""The exact search has proved nothing larger in reasonable time."""
EXACT_CHUNK = 50_000


class Search:
    """The best plan of a snapshot so far, and what makes it better.

    Parameters
    ----------
    policy : str
        The name that plans carry.
    options : mapping
        Complete; `objective`, `window`, `patience`, `exact_work`, `saturation_threshold` are read.
    """

    def __init__(
        self,
        planner: Planner,
        policy: str,
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> None:
        self.planner, self.policy, self.budget = planner, policy, budget
        self.on_incumbent = on_incumbent
        options: Mapping[str, Any] = planner.options
        self.objective = options.get("objective", "makespan")
        self.turns = self.objective == THEN
        self.patience = options.get("patience")
        self.exact_work = options.get("exact_work") or 0
        self.window = options.get("window") or len(planner.snapshot.queue)
        self.threshold = options.get("saturation_threshold", 1.0)
        self.best: Schedule | None = None
        self.bound: Bound | None = None
        self.origin = ""
        self.work, self.trials, self.tried = 0, 0, 0
        self.proved = self.stopped = False
        self._reported = -inf
        self.walk: Walk | None = None

    def rank(self, schedule: Schedule) -> tuple[float, ...]:
        """Smaller is better: items without a place, then the objective, then the other one."""
        first, second = schedule.makespan, schedule.weighted_completion
        if self.objective == WEIGHTED:
            first, second = second, first
        return schedule.unplaced, first, second

    def value(self, schedule: Schedule) -> float:
        """The objective that is bounded."""
        return self.rank(schedule)[1]

    def offer(self, schedule: Schedule, origin: str) -> bool:
        """Keep a schedule if it is better; whether it is."""
        if self.best is not None and self.rank(schedule) >= self.rank(self.best):
            return False
        self.best, self.origin = schedule, origin
        return True

    def report(self) -> None:
        """Hand the best plan to the caller."""
        if self.on_incumbent is not None and self.best is not None:
            self._reported = float(self.work)
            self.on_incumbent(self.plan())

    @property
    def met(self) -> bool:
        """Whether the value meets the bound."""
        if self.best is None or self.bound is None or self.best.unplaced:
            return False
        return self.value(self.best) <= self.bound.value * (1.0 + PROVED)

    @property
    def spent(self) -> bool:
        """Whether the work is done or the caller wants the plan."""
        if self.budget.work is not None and self.work >= self.budget.work:
            return True
        self.stopped = self.stopped or self.budget.stop()
        return self.stopped

    def try_orders(self, orders: Orders) -> None:
        """Decode simple orders."""
        for name, decoder in orders:
            if self.best is not None and self.spent:
                return
            schedule = self.planner.decode(by_rule(self.planner, self._all(), name), decoder)
            self.work += len(self.planner.items)
            self.tried += 1
            skips = decoder == "event" and name != "fpfs"
            self.offer(schedule, f"{name}, skipping" if skips else name)

    def _all(self) -> range:
        return range(len(self.planner.items))

    def find_bound(self, effort: str) -> None:
        """Bound the objective; of two, the first."""
        name = WEIGHTED if self.objective == WEIGHTED else "makespan"
        found = lower_bound(self.planner, name, self.budget.stop, effort)
        if self.bound is None or found.value > self.bound.value:
            self.bound = found

    def run(self, first: Orders, more: Orders) -> None:
        """Search until it is proved, spent, or out of patience.

        Parameters
        ----------
        first, more : tuple of (order, decoder)
            The first incumbent is the best of `first`; `more` are tried next.
        """
        self.try_orders(first)
        self.report()
        before = self.best
        self.try_orders(more)
        if self.best is not before:
            self.report()
        self.find_bound("quick")
        if self.met and not self.turns:
            self.proved = True
            return
        if self.spent:
            return
        self._anneal_and_prove()

    def _anneal_and_prove(self) -> None:
        self.walk = walk = Walk(self)
        walk.begin()
        self._walk(walk, FIRST_CYCLE)
        if not self.spent and not (self.met and not self.turns):
            self.find_bound("full")
        exact, filling = self._exact(), self._filling(walk)
        while not self.spent:
            if self.met and not self.turns:
                self.proved = True
                return
            if exact is not None:
                if self._prove(exact):
                    return
                if exact.work >= self.exact_work:
                    exact = None
            if filling is not None and walk.phase == MAKESPAN:
                self._fill(filling, walk)
                if self.met:
                    filling = None
                    continue
            tired = walk.tired(self.patience)
            if tired and exact is None:
                return
            if not tired:
                self._walk(walk, None)
        self.proved = self.met and not self.turns

    def _filling(self, walk: Walk) -> Filling | None:
        """The search for a plan without waste, where it applies."""
        if self.objective == WEIGHTED or self.best is None or self.best.unplaced:
            return None
        if not applies(walk.lister):
            return None
        filling = Filling(walk.lister, self.budget.seed)
        filling.bound = filling.rounded(0.0 if self.bound is None else self.bound.value)
        self._raise_bound(filling.bound, "filling")
        return filling

    def _raise_bound(self, value: float, name: str) -> None:
        if self.bound is None or value > self.bound.value:
            parts = {} if self.bound is None else self.bound.parts
            self.bound = Bound(value=value, parts={**parts, name: value})

    def _fill(self, filling: Filling, walk: Walk) -> None:
        """Some work of the search for a plan without waste."""
        assert self.best is not None
        room = FILL_CHUNK
        if self.budget.work is not None:
            room = max(min(room, self.budget.work - self.work), 1)
        before = filling.work
        if filling.run(self.best.makespan, room) and filling.order is not None:
            walk.start_from(filling.order)
            if walk.improved:
                walk.take("filling")
                walk.flush()
        self.work += filling.work - before
        self._raise_bound(filling.bound, "filling")

    def _walk(self, walk: Walk, share: int | None) -> None:
        """One chunk of annealing, or a share of moves per item; reports what it finds."""
        moves = None if share is None else share * walk.size
        while moves is None or moves > 0:
            done = walk.step(moves)
            if walk.improved:
                walk.take()
            if self.best is not None and self.work >= self._reported + REPORT_AFTER:
                walk.flush()
            if moves is None or self.spent or self.met:
                break
            moves -= done
        if share is not None:
            walk.flush()

    def _exact(self) -> ExactSearch | None:
        """The exact search, where it applies."""
        if self.best is None or self.best.unplaced or not self.exact_work:
            return None
        if len(self.planner.items) > min(EXACT_ITEMS, self.window) or not self.planner.items:
            return None
        if why_not(self.planner, self.objective) is not None:
            return None
        lower = 0.0 if self.bound is None else self.bound.value
        return ExactSearch(self.planner, self.objective, self.best, lower)

    def _prove(self, exact: ExactSearch) -> bool:
        """Some work of the exact search; True once it has proved the best plan."""
        room = EXACT_CHUNK
        if self.budget.work is not None:
            room = max(min(room, self.budget.work - self.work), 1)
        before = exact.work
        ended = exact.run(room)
        self.work += exact.work - before
        if exact.best is not None and self.offer(exact.best, "exact search"):
            self.report()
        if self.bound is None or exact.bound > self.bound.value:
            self.bound = Bound(value=exact.bound, parts={"exact search": exact.bound})
        self.proved = ended
        return ended

    def plan(self) -> Plan:
        """The best plan with its bound and status."""
        assert self.best is not None
        stats: dict[str, Any] = {
            "work": self.work,
            "order": self.origin,
            "tried": self.tried,
            "trials": self.trials,
        }
        if self.turns:
            stats["weighted_completion"] = self.best.weighted_completion
        if self.bound is not None:
            stats["bounds"] = {name: float(value) for name, value in self.bound.parts.items()}
        status = self._status()
        bound = None if self.bound is None else self.bound.value
        weighted = self.objective == WEIGHTED
        value = self.best.weighted_completion if weighted else self.best.makespan
        # Ends are rounded where clocks are large, by .2 us; what is proved of them is not.
        rounding = 1e-6 * max(float(self.planner.weights.sum()) if weighted else 1.0, 1.0)
        if bound is not None and (status is Status.OPTIMAL or 0.0 < bound - value <= rounding):
            bound = value
        return self.planner.plan(
            self.best, self.policy, self.budget.seed, stats, bound=bound, status=status
        )

    def _status(self) -> Status:
        if self.proved and self.best is not None and not self.best.unplaced:
            return Status.OPTIMAL
        if self.bound is None:
            return Status.HEURISTIC
        return Status.TIME_LIMIT if self.stopped else Status.FEASIBLE
