"""`oas-slots`: order and allocation in time slots, by the published program or an exact search.

The first plan is the best of the simple orders, its starts moved to the grid. ``engine=mip`` then
solves equations (9) to (23) (`slot_model`); ``engine=search`` proves the same slotted optimum by
the search of `oas` with run times rounded up to slots. Either minimises the makespan in slots; the
plan's ends are the true ones, inside the last slot of each job.

Notes
-----
``stats`` tells what is proved: ``slotted_makespan`` and ``slotted_bound`` in seconds, both counted
in whole slots. The plan itself gives no bound, since the slotted optimum bounds no plan that is
free of slots; so its status is *heuristic*, or *time_limit* where the clock ended the search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, Solve
from coalloc.policies.check import check
from coalloc.policies.kernel.decoding import Planner
from coalloc.policies.mip.mbpc import limits_of
from coalloc.policies.mip.runner import End, run
from coalloc.policies.mip.slot_grid import Grid, on_grid, slot_seconds, slots_used
from coalloc.policies.mip.slot_model import SlotModel
from coalloc.policies.oas.exact import ExactSearch, why_not
from coalloc.policies.simple import sort_items

ORDERS = ("fcfs", "spt", "lpt", "sjf", "bjf")
MOST_JOBS = 200
"""A longer queue is planned by the simple orders alone."""
CHUNK = 200_000
ENDLESS = 1 << 60


def solve(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Plan on a grid of slots."""
    planner = Planner(problem, options)
    slot = slot_seconds(options["slot"], planner)
    runs = [planner.decode(sort_items(planner, name), "event") for name in ORDERS]
    best = min(runs, key=lambda one: one.rank)
    simple = planner.plan(best, "oas-slots", budget.seed)
    reason = _unfit(planner)
    if reason or not planner.items or best.unplaced:
        told = {"not_searched": reason or "nothing to search", "slot_s": slot}
        return replace(simple, stats={**simple.stats, **told})
    slotted = _Slotted(problem, planner, simple, slot, on_incumbent)
    engine = _by_mip if options["engine"] == "mip" else _by_search
    return engine(slotted, options, budget)


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


class _Slotted:
    """The best plan on the grid so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        planner: Planner,
        simple: Plan,
        slot: float,
        on_incumbent: OnIncumbent | None,
    ) -> None:
        self.snapshot, self.planner, self.slot = snapshot, planner, slot
        self.on_incumbent = on_incumbent
        self.stats: dict[str, Any] = {**simple.stats, "slot_s": slot, "work": 0}
        self.base = simple
        self.placements: tuple[Placement, ...] = ()
        self.slots = ENDLESS
        self.offer(on_grid(planner, simple, slot))

    def offer(self, placements: Sequence[Placement]) -> None:
        """Take placements that need fewer slots and pass the checker."""
        used = slots_used(placements, self.snapshot.time, self.slot)
        if used >= self.slots:
            return
        before = self.placements, self.slots
        self.placements, self.slots = tuple(placements), used
        plan = self.plan(Status.HEURISTIC)
        if check(self.snapshot, plan).violations:
            self.placements, self.slots = before
        elif self.on_incumbent is not None:
            self.on_incumbent(plan)

    def plan(self, status: Status, bound: float | None = None) -> Plan:
        """Write the best; `bound` is that of the slotted makespan, seconds."""
        now = self.snapshot.time
        value = max((p.end for p in self.placements), default=now) - now
        told = {**self.stats, "slotted_makespan": self.slots * self.slot, "slotted_bound": bound}
        return replace(
            self.base,
            status=status,
            objective=Objective(
                name="makespan", value=value, deferred=self.base.objective.deferred
            ),
            placements=self.placements,
            stats=told,
        )


def _by_mip(best: _Slotted, options: Mapping[str, Any], budget: Budget) -> Plan:
    theta = options["slots"] or best.slots
    model = SlotModel(Grid(best.planner, best.slot), theta)
    best.stats["rows"] = model.size
    if model.size > options["largest_model"]:
        best.stats["not_searched"] = f"about {model.size} rows and columns are too many"
        return best.plan(Status.HEURISTIC)
    model.build()
    outcome = run(model.problem, limits_of(options, budget))
    best.stats["work"] = outcome.nodes
    if outcome.values is not None:
        best.offer(model.placements(outcome))
    if outcome.end in (End.STOPPED, End.SPENT):
        status = Status.TIME_LIMIT if outcome.end is End.STOPPED else Status.HEURISTIC
        bound = None if outcome.bound is None else outcome.bound * best.slot
        return best.plan(status, bound)
    if outcome.end is End.OPTIMAL:
        return best.plan(Status.HEURISTIC, round(outcome.bound or 0.0) * best.slot)
    best.stats["not_searched"] = f"no plan ends within {theta} slots"
    return best.plan(Status.HEURISTIC, (theta + 1) * best.slot)


def _by_search(best: _Slotted, options: Mapping[str, Any], budget: Budget) -> Plan:
    reason = why_not(best.planner, "makespan")
    if reason is not None:
        best.stats["not_searched"] = reason
        return best.plan(Status.HEURISTIC)
    search = ExactSearch(best.planner, "makespan", None, slot=best.slot)
    ended, stopped, left = False, budget.stop(), budget.work
    while not ended and not stopped and (left is None or left > 0):
        ended = search.run(CHUNK if left is None else min(CHUNK, left))
        left = None if left is None else budget.work - search.work  # type: ignore[operator]
        stopped = not ended and budget.stop()
    best.stats["work"] = search.work
    if search.best is not None:
        best.offer(best.planner.plan(search.best, "oas-slots").placements)
    return best.plan(Status.TIME_LIMIT if stopped else Status.HEURISTIC, search.bound)


SOLVERS: Mapping[str, Solve] = {"oas-slots": solve}
