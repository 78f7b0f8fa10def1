"""`workflow`: a portfolio of mappings, then a search over allotment, cluster and order.

``docs/policies/workflow.md`` says how it works. In short: tasks by rank, where they end earliest,
on few processes: the first plan. Then the published policies; then allotments along two
trajectories (`portfolio`), each mapped with and without insertion, and packed. From the best an
annealing (`kernel.serial_annealing`) goes on over processes, clusters, splits and order, around
what is booked. Every schedule is laid on nodes by the planner, and the best of all is the plan: it
is never worse than a member.

Work counts items placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coalloc.model.plan import Plan
from coalloc.policies.array_types import Ints
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.kernel.instance.graph import parents_first
from coalloc.policies.kernel.search.serial_state import SerialGenes
from coalloc.policies.kernel.state import MAKESPAN, WEIGHING
from coalloc.policies.oas.orders import Orders, begin, find_bound, objective_of, try_orders
from coalloc.policies.oas.search import OasSearch
from coalloc.policies.one_pass import on_planner
from coalloc.policies.orders.simple import as_before, start_orders
from coalloc.policies.workflow.bound import WorkflowBound
from coalloc.policies.workflow.search import portfolio
from coalloc.policies.workflow.search.search_case import (
    FEW,
    LEAST_CYCLE,
    Track,
    WorkflowCase,
    read_case,
    tracks,
)

SMALL = 100
"""Items from which on `patience` counts by item."""
PATIENT = 20_000
"""Items placed that one of `patience` stands for with few tasks, if its moves are fewer; up to the
shortest cycle on each track, which has cooled by then.
"""
CHUNK = 20_000
"""Items placed between two looks at the clock."""
MANY = 500
"""Items beyond which a bound takes so long that it is left out where time has run out."""
MOST_ITEMS = 3000
"""Items of a queue, not of workflows alone, up to which they are searched together."""
REPORT_AFTER = 200_000
"""Items placed, at least, between two incumbents of the annealing."""


class WorkflowEngine:
    """Search that improves the best plan of a queue with workflows."""

    def __init__(
        self,
        planner: Planner,
        policy: str,
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> None:
        self.planner, self.budget = planner, budget
        self.incumbent = begin(planner, policy, budget, on_incumbent)
        self.case: WorkflowCase = read_case(
            planner, planner.options.get("max_coalloc_overhead", 0.25)
        )
        self.weighted = objective_of(planner) == WEIGHTED
        self.tracks = tracks(self.case, budget.seed, WEIGHING if self.weighted else MAKESPAN)
        self.patience = planner.options.get("patience")
        self.flow_bound: WorkflowBound | None = None
        self.improved = 0
        self._shown: Schedule | None = None

    def report(self) -> None:
        """Hand the best plan to the caller, unless that has been done."""
        incumbent = self.incumbent
        if incumbent.best is not self._shown:
            self._shown = incumbent.best
            incumbent.report()

    def find_bound(self, effort: str) -> None:
        """Bound the objective; where all are tasks, the program says more than the other bounds."""
        incumbent = self.incumbent
        plain = any(item.task is None for item in self.planner.items)
        if effort == "quick" or plain:
            find_bound(self.planner, incumbent, effort)
        if incumbent.bound is not None and self.planner.items:
            if self.flow_bound is None:
                if incumbent.spent and len(self.planner.items) > MANY:
                    return
                self.flow_bound = WorkflowBound(self.planner)
            name = WEIGHTED if self.weighted else "makespan"
            parts = self.flow_bound.parts(self.budget.stop, effort).get(name, {})
            incumbent.bound = incumbent.bound.beside(parts)

    def run(self, first: Orders, more: Orders) -> None:
        """Search until it is proved, spent, or out of patience.

        `first`, `more` (tuple of (order, decoder)): simple orders that count as members.
        """
        incumbent = self.incumbent
        if self.case.size:
            self.try_seed("rank", portfolio.smallest(self.case))
            self._try_previous()
            if incumbent.best is not None and not incumbent.best.unplaced:
                self.report()  # else a simple order says what cannot be placed
        many = len(self.planner.items) > MANY
        if many and incumbent.best is not None and not incumbent.spent:
            self.find_bound("quick")
        try_orders(self.planner, incumbent, first)
        self.report()
        try_orders(self.planner, incumbent, more)
        self.report()
        if incumbent.bound is None and not (many and incumbent.spent):
            self.find_bound("quick")
        if not self.case.size or incumbent.spent:
            incumbent.proved = bool(incumbent.met)
            return
        self._portfolio()
        if not self._done():
            self.find_bound("full")
            self._programs()
        self._anneal()
        incumbent.proved = incumbent.met

    def try_seed(self, origin: str, procs: Ints, order: Ints | None = None) -> None:
        """Map an allotment by rank: with and without insertion, packed and not."""
        incumbent = self.incumbent
        if order is None:
            order = self._by_rank(procs)
        for append, pack in ((False, False), (True, False), (False, True)):
            if incumbent.best is not None and incumbent.spent:
                return
            listing = self.tracks[-1].listing
            genes = listing.genes(order, procs)
            value = listing.measure(genes, append=append, pack=pack)
            incumbent.work += self.case.size
            incumbent.tried += 1
            self._settle(self.tracks[-1], genes, value, origin)

    def _settle(self, track: Track, genes: SerialGenes, value: float, origin: str) -> None:
        """Let all tracks begin with what one has just listed, if it is better."""
        if all(value >= other.reached for other in self.tracks):
            return
        settled = track.listing.settled(genes)
        for other in self.tracks:
            other.adopt(settled, value)
        self._take(origin, track)

    def _try_previous(self) -> None:
        """The jobs by their starts in the caller's last plan."""
        previous, items = self.budget.previous, self.planner.items
        if previous:
            order = as_before(self.planner, self.case.inside.tolist(), previous)
            order = parents_first(order, items)
            self.try_seed("previous", portfolio.smallest(self.case), self._inside(order))

    def _by_rank(self, procs: Ints) -> Ints:
        """Items by falling bottom level under these allotments."""
        case = self.case
        time = np.zeros(len(case.planner.items))
        for n in case.inside.tolist():
            form = case.forms[n]
            time[n] = portfolio.seconds(form, int(procs[n]), case.mean_power, case.mean_intra)
        return self._inside(case.graph.by_priority(case.graph.bottom(time)))

    def _inside(self, order: Sequence[int] | Ints) -> Ints:
        """The items that are searched, in this order."""
        listed = np.array(order, dtype=np.int64)
        return listed[np.isin(listed, self.case.inside)]

    def _take(self, origin: str, track: Track) -> None:
        """Offer what a track's listing holds."""
        incumbent = self.incumbent
        incumbent.offer(track.listing.decoded(incumbent.work), origin)

    def _portfolio(self) -> None:
        self._members_try()
        self.report()
        for procs in portfolio.trajectory(self.case, self.budget.stop):
            if self._done():
                break
            self.try_seed("cpa", procs)
        self.report()

    def _members_try(self) -> None:
        """The published policies."""
        incumbent = self.incumbent
        if self.planner.guarded.size:
            return
        for name, schedule in portfolio.members(self.planner, lambda: not incumbent.spent):
            incumbent.work += self.case.size
            incumbent.tried += 1
            if incumbent.offer(schedule, name):
                track = self.tracks[-1]
                genes = track.listing.genes_of(schedule.outcome)
                self._settle(track, genes, track.listing.measure(genes), name)

    def _done(self) -> bool:
        incumbent = self.incumbent
        return incumbent.met or incumbent.spent

    def _programs(self) -> None:
        for share in portfolio.SHARES:
            if self._done() or self.flow_bound is None:
                break
            procs = portfolio.of_program(self.case, self.flow_bound, share)
            if procs is not None:
                self.try_seed("program", procs)
        self.report()

    def _anneal(self) -> None:
        """Cycles of all tracks in turn, each from the best that is known and that it may have."""
        incumbent = self.incumbent
        if self.tracks[0].top is None and self.tracks[-1].top is None:
            return
        incumbent.reported = float(incumbent.work)
        while not self._done():
            for track in self.tracks:
                for other in self.tracks:
                    if other is not track and other.top is not None:
                        track.adopt(other.top, other.reached)
                if not self._run_cycle(track):
                    return

    def _run_cycle(self, track: Track) -> bool:
        """One cycle of a track; whether to go on."""
        incumbent = self.incumbent
        size = max(self.case.size, 1)
        steps = track.cycle(self._chunk)
        for moves, better in steps:
            incumbent.trials += moves
            incumbent.work += moves * size
            if better:
                self.improved = incumbent.trials
                best = incumbent.best
                if best is None or best.unplaced or track.reached < incumbent.value(best):
                    track.schedule()
                    self._take("annealing", track)
                if incumbent.work >= incumbent.reported + REPORT_AFTER:
                    self.report()
            if self._tired() or self._done():
                break
        others = [other.reached for other in self.tracks if other is not track]
        track.in_vain = track is not self.tracks[0] and track.reached >= min(others)
        self.report()
        return not (self._tired() or self._done())

    def _chunk(self) -> int:
        """Moves between two looks at the clock."""
        return max(self.incumbent.chunk(CHUNK) // max(self.case.size, 1), 1)

    def _tired(self) -> bool:
        """Whether nothing has improved for so many moves per item and track."""
        incumbent = self.incumbent
        if self.patience is None:
            return False
        size = max(self.case.size, 1)
        still = self.patience * max(size, SMALL)
        if size <= FEW:
            still = max(still, min(self.patience * PATIENT, LEAST_CYCLE) // size)
        return bool(incumbent.trials - self.improved > still * len(self.tracks))


def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan with the best of the portfolio and of the search."""
    search = WorkflowEngine(planner, "workflow", budget, on_incumbent)
    search.run(start_orders("fpfs"), start_orders("conservative"))
    return search.incumbent.plan()


def make_search(
    planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None
) -> WorkflowEngine | OasSearch:
    """The engine where tasks of workflows are queued, and not too much else; `oas` elsewhere."""
    flows = any(item.task is not None for item in planner.items)
    if flows and len(planner.items) <= MOST_ITEMS:
        return WorkflowEngine(planner, "auto", budget, on_incumbent)
    return OasSearch(planner, "auto", budget, on_incumbent)


SOLVERS: Mapping[str, SolveFunction] = {"workflow": on_planner(plan)}
