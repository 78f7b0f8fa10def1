"""`oas-slots`: order and allocation in time slots, by the published program or an exact search.

The first plan is the best of the simple orders, its starts moved to the grid; where links may be
saturated, of the same orders listed with every SC at its threshold too. ``engine=mip`` then solves
equations (9) to (23) (`slot_model`); ``engine=search`` proves the same slotted optimum by the
search of `oas` with run times rounded up to slots. Either minimises the makespan in slots; the
plan's ends are the true ones, inside the last slot of each job.

Notes
-----
``stats`` tells what is proved: ``slotted_makespan`` and ``slotted_bound`` in seconds, both counted
in whole slots. The plan itself gives no bound, since the slotted optimum bounds no plan that is
free of slots; so its status is *heuristic*, or *time_limit* where the clock ended the search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.allocation.mbpc import limits_of
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.bounds.supply import threshold_of
from coalloc.policies.checking.check import check
from coalloc.policies.incumbent import Incumbent
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.search.lister import Lister, domains_of
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.mip.cp_sat import UnfitError
from coalloc.policies.mip.runner import End, run
from coalloc.policies.oas.exact import ExactSearch
from coalloc.policies.one_pass import on_planner
from coalloc.policies.orders.simple import sort_items
from coalloc.policies.published.slot_grid import (
    SlotGrid,
    least_slowdowns,
    on_grid,
    slot_seconds,
    slots_used,
)
from coalloc.policies.published.slot_model import SlotModel

ORDERS = ("fcfs", "spt", "lpt", "sjf", "bjf")
MOST_JOBS = 200
"""A longer queue is planned by the simple orders alone."""
ENDLESS = 1 << 60


def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan on a grid of slots."""
    slot = slot_seconds(planner.options["slot"], planner)
    runs = [planner.decode(sort_items(planner, name), "event") for name in ORDERS]
    runs += _saturating(planner)
    best = min(runs, key=lambda one: one.rank)
    simple = planner.plan(best, "oas-slots", budget.seed)
    reason = _unfit(planner)
    if reason or not planner.items or best.unplaced:
        told = {"not_searched": reason or "nothing to search", "slot_s": slot}
        return replace(simple, stats={**simple.stats, **told})
    slotted = _Slotted(planner.snapshot, planner, simple, slot, budget, on_incumbent)
    engine = _by_mip if planner.options["engine"] == "mip" else _by_search
    return engine(slotted, planner.options, budget)


def _unfit(planner: Planner) -> str | None:
    if any(item.task is not None for item in planner.items):
        return "tasks of workflows are not planned in slots"
    if any(kind.cut for kind in planner.intake.kinds if kind.usable):
        return "memory is shared between the slots of a node"
    if planner.guarded.size:
        return "jobs that were passed over are booked first"
    if len(planner.items) > MOST_JOBS:
        return f"more than {MOST_JOBS} jobs"
    return None


def _saturating(planner: Planner) -> list[Schedule]:
    """The orders with every SC at its threshold; none where links may not be saturated."""
    threshold = threshold_of(planner)
    if threshold <= 1.0 or not planner.items:
        return []
    lister = Lister(planner, range(len(planner.items)), planner.decode([], "insert"))
    loads = domains_of(lister, (1.0, threshold)).loads
    out = []
    for name in ORDERS:
        genes = lister.genes(sort_items(planner, name))
        genes.sc[:] = np.where(loads > 0, threshold, 1.0)
        if lister.evaluate(genes, MAKESPAN) < inf:
            found = lister.outcome()
            sc = np.where((found.missing > 0) & ~np.isnan(found.end), genes.sc, 1.0)
            out.append(planner.measure(found, len(planner.items), sc))
    return out


class _Slotted:
    """The best plan on the grid so far; it bounds no plan that is free of slots."""

    def __init__(
        self,
        snapshot: Snapshot,
        planner: Planner,
        simple: Plan,
        slot: float,
        budget: Budget,
        on_incumbent: OnIncumbent | None,
    ) -> None:
        self.snapshot, self.planner, self.slot = snapshot, planner, slot
        self.stats: dict[str, Any] = {**simple.stats, "slot_s": slot}
        self.base = simple
        self.slotted_bound: float | None = None
        self.incumbent: Incumbent[tuple[Placement, ...]] = Incumbent(
            "oas-slots",
            budget,
            on_incumbent,
            rank=lambda placements: (0.0, float(slots_used(placements, snapshot.time, slot))),
            write=lambda found: self._plan(found.best or (), found.status),
        )
        self.offer(on_grid(planner, simple, slot))

    @property
    def slots(self) -> int:
        """Slots of the best; more than any where there is none."""
        best = self.incumbent.best
        return ENDLESS if best is None else slots_used(best, self.snapshot.time, self.slot)

    def offer(self, placements: Sequence[Placement]) -> None:
        """Take placements that need fewer slots and pass the checker."""
        mine = least_slowdowns(self.planner, placements, self.slot)
        if slots_used(mine, self.snapshot.time, self.slot) >= self.slots:
            return
        if not check(self.snapshot, self._plan(mine, Status.HEURISTIC)).violations:
            self.incumbent.offer(mine)
            self.incumbent.report()

    def end(self, bound: float | None = None, *, stopped: bool = False) -> Plan:
        """The plan at the end of an engine; `bound` is that of the slotted makespan, seconds.

        Amounts may be so far apart that no start on the grid can be told from the next: then the
        plan is the simple one.
        """
        self.slotted_bound, self.incumbent.stopped = bound, stopped
        if self.incumbent.best is None:
            told = {"not_searched": "no plan on the grid was found", **self.stats}
            return replace(self.base, stats=told)
        return self._plan(self.incumbent.best, self.incumbent.status)

    def _plan(self, placements: tuple[Placement, ...], status: Status) -> Plan:
        now, used = self.snapshot.time, slots_used(placements, self.snapshot.time, self.slot)
        value = max((p.end for p in placements), default=now) - now
        told = {
            **self.stats,
            "work": self.incumbent.work,
            "slotted_makespan": used * self.slot,
            "slotted_bound": self.slotted_bound,
        }
        return replace(
            self.base,
            status=status,
            objective=Objective(
                name="makespan", value=value, deferred=self.base.objective.deferred
            ),
            placements=placements,
            stats=told,
        )


def _by_mip(best: _Slotted, options: Mapping[str, Any], budget: Budget) -> Plan:
    theta = options["slots"] or best.slots
    model = SlotModel(SlotGrid(best.planner, best.slot), theta)
    best.stats["rows"] = model.size
    if model.size > options["largest_model"]:
        best.stats["not_searched"] = f"about {model.size} rows and columns are too many"
        return best.end()
    model.build()
    outcome = run(model.problem, limits_of(options, budget))
    best.incumbent.work = outcome.nodes
    if outcome.values is not None:
        best.offer(model.placements(outcome))
    if outcome.end in (End.STOPPED, End.SPENT):
        bound = None if outcome.bound is None else outcome.bound * best.slot
        return best.end(bound, stopped=outcome.end is End.STOPPED)
    if outcome.end is End.OPTIMAL:
        return best.end(round(outcome.bound or 0.0) * best.slot)
    best.stats["not_searched"] = f"no plan ends within {theta} slots"
    return best.end((theta + 1) * best.slot)


def _by_search(best: _Slotted, options: Mapping[str, Any], budget: Budget) -> Plan:
    try:
        search = ExactSearch(best.planner, "makespan", None, slot=best.slot)
    except UnfitError as error:
        best.stats["not_searched"] = str(error)
        return best.end()
    incumbent = best.incumbent
    if not incumbent.spent:
        search.run(incumbent.chunk(ENDLESS), incumbent.budget.stop)
        incumbent.work = search.work
        incumbent.stopped = incumbent.budget.stop()
    if search.best is not None:
        best.offer(best.planner.plan(search.best, "oas-slots").placements)
    return best.end(search.bound, stopped=incumbent.stopped)


SOLVERS: Mapping[str, SolveFunction] = {"oas-slots": on_planner(plan)}
