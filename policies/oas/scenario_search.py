"""`oas` with `scenarios`: the order that does best over samples of what may happen.

1. K scenarios (`scenarios.py`). All simple orders are listed in each; the best is the first
   incumbent (with more than `FEW` items, that is EASY, at once). In a scenario jobs end earlier
   or later than planned, and the event decoder starts then what the order has next, so it is the
   order that is judged (with allotments, levels of power and homes), not the plan's times. Its
   value is the mean of the objective over the scenarios, or the 90th percentile.
2. The search of `oas` on the estimates, with part of the work: the *deterministic best*, which is
   judged as well.
3. Annealing over orders by that value, from the best, until the work is done, the caller stops it,
   or `patience` moves per job, divided by K, bring nothing.

The plan that is returned is the best order listed on the estimates. By its own measure it is never
worse than the deterministic best and the simple orders; its value on the estimates may be.

Notes
-----
*Work* counts items listed in scenarios like those on the estimates. All orders meet the same
scenarios, so that differences between them vary less than their values. A listing ends as soon as
the rest of the scenarios cannot make up for it.

References
----------
The MBPC paper names scheduling under uncertain run times as future work (section 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf
from statistics import fmean
from typing import Any

import numpy as np

from coalloc.model.plan import Plan
from coalloc.model.values import replace
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.incumbent import PROVED, Incumbent
from coalloc.policies.kernel.annealing_loop import (
    CURRENT,
    IMPROVED,
    LIMIT,
    ROUNDING,
    TRIALS,
    Annealing,
    warm_up,
)
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.kernel.search.annealing import LAST, Choosing, try_move, undo_move
from coalloc.policies.kernel.search.lister import Lister, begin_annealing, copy_of, domains_of
from coalloc.policies.kernel.search.listing_state import ListingGenes
from coalloc.policies.kernel.state import MAKESPAN, WEIGHING
from coalloc.policies.oas.orders import THEN, begin, objective_of, try_orders
from coalloc.policies.oas.scenarios import RunTimeScenario, lay_out
from coalloc.policies.oas.search import OasSearch
from coalloc.policies.oas.seeds import as_before, by_rule
from coalloc.policies.oas.window import choose, complete
from coalloc.policies.orders.simple import START_ORDERS

FEW = 64
"""Items up to which even the first incumbent has been judged."""
FIRST_WORK, FIRST_MOVES = 100_000, 50
"""Items placed in the search on the estimates: so many, or so many moves per item if more."""
FIRST_SHARE = 3
"""A limit of work is divided by this for the search on the estimates."""
CYCLE = 30
"""Moves per item in the first cycle of the annealing; each is as long as those before together."""
WARM, COLD = 0.002, 0.00005
"""First and last temperature of a cycle, by the value."""
REPORT_AFTER = 20_000
"""Items placed, at least, between two incumbents."""
PERCENTILE = 0.9

Rank = tuple[float, float]


def percentile(values: list[float]) -> float:
    """The smallest value that nine tenths of the values do not pass."""
    return sorted(values)[ceil(PERCENTILE * len(values) - 1e-9) - 1]


def mean(values: list[float]) -> float:
    """Their mean; inf if one is."""
    return inf if inf in values else fmean(values)


class Judge:
    """Evaluation of orders over scenarios."""

    def __init__(self, scenarios: list[RunTimeScenario], objective: str, measure: str) -> None:
        self.scenarios = scenarios
        self.goal = WEIGHING if objective == WEIGHTED else MAKESPAN
        self.two = objective == THEN
        self.measure = percentile if measure == "p90" else mean
        self.allowed = len(scenarios) - ceil(PERCENTILE * len(scenarios) - 1e-9)
        self.least = [s.least if self.goal == MAKESPAN else 0.0 for s in scenarios]
        self.work = 0
        self._worst = scenarios[0]

    def values(self, genes: ListingGenes) -> list[float]:
        """The objective in each scenario, s."""
        self.work += sum(scenario.size for scenario in self.scenarios)
        return [scenario.value(genes, self.goal) for scenario in self.scenarios]

    def rank(self, genes: ListingGenes, limit: float = inf) -> Rank | None:
        """Smaller is better; None where the first passes a limit.

        The second is the weighted completion, measured alike, where that is an objective too.
        """
        found: list[float] = []
        second: list[float] = []
        limit *= 1.0 + ROUNDING
        left = limit * len(self.scenarios) - sum(self.least)
        failed = 0
        for scenario, least in zip(self.scenarios, self.least, strict=True):
            self.work += scenario.size
            room = limit if self.measure is percentile else left + least
            value = scenario.value(genes, self.goal, room)
            if value > room or value == inf:
                failed += 1
                if self.measure is mean or failed > self.allowed:
                    return None
            left -= value - least
            if inf > value >= max((x for x in found if x < inf), default=0.0):
                self._worst = scenario
            found.append(value)
            if self.two:
                second.append(scenario.weighted_completion())
        return self.measure(found), self.measure(second) if self.two else 0.0

    def last_item(self) -> int:
        """An item that ends last in the worst scenario of what was ranked last."""
        return self._worst.last_item()


def solve(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None = None) -> Plan:
    """Plan by the order that does best over scenarios.

    `planner`: its options are complete, `scenarios` at least 1.
    """
    incumbent = begin(planner, "oas", budget, on_incumbent)
    few = len(planner.items) <= FEW
    try_orders(planner, incumbent, START_ORDERS[: len(START_ORDERS) if few else 1])
    if not few:
        incumbent.report()
    found = _ScenarioSearch(planner, incumbent)
    found.begin()
    found.join(_on_estimates(planner, budget))
    found.anneal()
    return found.plan()


def _on_estimates(planner: Planner, budget: Budget) -> OasSearch:
    """The search of `oas`, with part of the work."""
    count = len(planner.items)
    most = max(FIRST_WORK, FIRST_MOVES * count * min(count, planner.options["window"]))
    if budget.work is not None:
        most = min(most, budget.work // FIRST_SHARE)
    search = OasSearch(planner, "oas", replace(budget, work=most))
    search.run(START_ORDERS, ())
    return search


class _ScenarioSearch:
    """The best order over scenarios so far."""

    def __init__(self, planner: Planner, incumbent: Incumbent[Schedule]) -> None:
        assert incumbent.best is not None
        self.planner, self.incumbent, self.estimated = planner, incumbent, incumbent.best
        self.options: dict[str, Any] = dict(planner.options)
        booked = planner.decode([], "insert")
        self.inside, self.rest = choose(
            planner, booked, self.options["window"] or len(planner.snapshot.queue)
        )
        self.lister = Lister(planner, self.inside, booked)
        self.threshold = self.options["saturation_threshold"]
        self.was_proved = incumbent.proved
        self.judge: Judge | None = None
        self.best: ListingGenes | None = None
        self.rank: Rank = (inf, inf)
        self.moves = 0
        self.stats: dict[str, Any] = {"scenarios": 0}
        self._reported = -inf

    def begin(self) -> None:
        """Lay out the scenarios and judge the simple orders: the first incumbent."""
        incumbent = self.incumbent
        if self.inside and not self.estimated.unplaced:
            scenarios = lay_out(
                self.planner,
                self.inside,
                incumbent.budget.history,
                self.estimated.makespan,
                incumbent.budget.seed,
                incumbent.budget.stop,
            )
            self.judge = Judge(
                scenarios, objective_of(self.planner), self.options["scenario_objective"]
            )
            for name, genes in self._known():
                self._take(genes, name)
            self._count()
        incumbent.report()

    def join(self, search: OasSearch) -> None:
        """Take in the deterministic best."""
        incumbent, found = self.incumbent, search.incumbent
        assert found.best is not None
        self.estimated, self.was_proved = found.best, found.proved
        incumbent.join(found)
        if self.judge is None:
            self._follow(found)
            return
        own = self._own(search)
        values = self.judge.values(own)
        self.stats = {
            "scenarios": len(self.judge.scenarios),
            "deterministic_mean": mean(values),
            "deterministic_p90": percentile(values),
        }
        rank = self.judge.rank(own, self.rank[0])
        if rank is not None and rank <= self.rank:
            self._keep(own, rank, found.origin)
        self._take(self._followed(self.estimated, blocking=False), found.origin)
        self._count()
        if self.best is not None:
            self._prove()
        else:
            self._follow(found)
        incumbent.report()

    def _follow(self, found: Incumbent[Schedule]) -> None:
        """Plan what is best on the estimates."""
        assert found.best is not None
        self.incumbent.put(found.best, found.origin)
        self.incumbent.proved = found.proved

    def _count(self) -> None:
        if self.judge is not None:
            self.incumbent.work += self.judge.work
            self.judge.work = 0

    def _own(self, search: OasSearch) -> ListingGenes:
        """The order of the deterministic best."""
        walk = search.walk
        if walk is not None and search.incumbent.origin == "annealing":
            return copy_of(walk.top)
        return self._followed(self.estimated, blocking=True)

    def _followed(self, schedule: Schedule, *, blocking: bool) -> ListingGenes:
        """The order of starts of a schedule, with its allotments."""
        start = schedule.outcome.start
        genes = self.lister.genes(sorted(self.inside, key=lambda n: float(start[n])))
        genes.block[:] = int(blocking)
        genes.mode[:] = np.where(np.isnan(start), 0, schedule.outcome.mode)
        return genes

    def _known(self) -> Iterator[tuple[str, ListingGenes]]:
        """Orders that need no search."""
        planner = self.planner
        for name, decoder in (("easy", "easy"), ("conservative", "insert")):
            schedule = planner.decode(by_rule(planner, range(len(planner.items)), name), decoder)
            if not schedule.unplaced:
                yield name, self._followed(schedule, blocking=False)
                yield name, self._followed(schedule, blocking=True)
        orders = {name: by_rule(planner, self.inside, name) for name in _NAMES}
        if self.incumbent.budget.previous:
            orders["previous"] = as_before(planner, self.inside, self.incumbent.budget.previous)
        for name, order in orders.items():
            genes = self.lister.genes(order)
            yield f"{name}, skipping", genes
            genes = copy_of(genes)
            genes.block[:] = 1
            yield name, genes

    def _take(self, genes: ListingGenes, origin: str) -> Rank | None:
        """Keep choices if they are the best so far; what they are worth."""
        assert self.judge is not None
        rank = self.judge.rank(genes, self.rank[0])
        if rank is not None and (self.best is None or rank < self.rank):
            self._keep(genes, rank, origin)
        return rank

    def _keep(self, genes: ListingGenes, rank: Rank, origin: str) -> None:
        """Make choices the best, unless they leave something without a place on the estimates."""
        schedule = self._on_estimates(genes)
        if schedule is None or schedule.unplaced:
            return
        self.best, self.rank = copy_of(genes), rank
        self.incumbent.put(schedule, f"{origin}, over scenarios")
        self._prove()

    def _prove(self) -> None:
        """Whether the best is as good on the estimates as what was proved there."""
        incumbent = self.incumbent
        assert incumbent.best is not None
        least = incumbent.value(self.estimated) * (1.0 + PROVED)
        incumbent.proved = self.was_proved and incumbent.value(incumbent.best) <= least

    def _on_estimates(self, genes: ListingGenes) -> Schedule | None:
        """Value of the choices if everything goes as planned."""
        listed = copy_of(genes)
        if self.lister.evaluate(listed, MAKESPAN) == inf:
            return None
        out = self.lister.outcome()
        sc = np.where((out.missing > 0) & ~np.isnan(out.end), listed.sc, 1.0)
        return complete(self.planner, self.lister, out, sc, self.rest, 0)

    def anneal(self) -> None:
        """Look for better orders around the best."""
        if self.best is None or self.judge is None:
            return
        steps = np.linspace(1.0, self.threshold, 5 if self.threshold > 1.0 else 1)
        search = Choosing(copy_of(self.best), domains_of(self.lister, steps.tolist()))
        state, trials = begin_annealing(self.incumbent.budget.seed), CYCLE * len(self.inside)
        while self._cycle(search, state, trials):
            search = search._replace(genes=copy_of(self.best))
            trials *= 2

    def _cycle(self, search: Choosing, state: Annealing, trials: int) -> bool:
        """So many moves from the best order; false once there should be no more."""
        assert self.judge is not None
        patience = self.options["patience"]
        if patience is not None:
            patience = -(-patience * len(self.inside) // len(self.judge.scenarios))
        state.value[CURRENT], state.count[LAST] = self.rank[0], -1
        warm_up(state, WARM, COLD, self.rank[0], trials)
        for _ in range(trials):
            quiet = state.count[TRIALS] - state.count[IMPROVED]
            if self.incumbent.spent or (patience is not None and quiet > patience):
                return False
            move = try_move(search, state)
            limit = float(state.value[LIMIT])
            rank = self.judge.rank(search.genes, limit)
            self.moves += 1
            self._count()
            if rank is None or rank[0] > limit:
                undo_move(search, move)
                continue
            state.value[CURRENT], state.count[LAST] = rank[0], self.judge.last_item()
            if rank < (self.rank[0] * (1.0 - ROUNDING), self.rank[1]):
                self._keep(search.genes, rank, "annealing")
                state.count[IMPROVED] = state.count[TRIALS]
                if self.incumbent.work >= self._reported + REPORT_AFTER:
                    self._reported = self.incumbent.work
                    self.incumbent.report()
        return True

    def plan(self) -> Plan:
        """The best order on the estimates, and what it was judged by."""
        plan = self.incumbent.plan()
        if self.best is None or self.judge is None:
            return replace(plan, stats={**plan.stats, **self.stats})
        values = self.judge.values(self.best)
        stats = {
            **self.stats,
            "scenario_mean": mean(values),
            "scenario_p90": percentile(values),
            "scenario_moves": self.moves,
        }
        return replace(plan, stats={**plan.stats, **stats})


_NAMES = ("fcfs", "spt", "lpt", "sjf", "bjf")
