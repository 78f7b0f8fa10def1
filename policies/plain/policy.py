"""EASY backfilling without compiler or arrays: what answers while those are not ready.

Jobs start in arrival order while they fit now; the first that does not books the earliest time at
which it fits. Later jobs start now where that leaves the booking alone. What is left, and what may
not start yet, is booked behind all that, in the same order: these starts are estimates.

The daemon uses it until its solver is warm, and as the last fallback; there it deals the chunks of
divisible jobs to the slots that are left now, if no job waits for slots.

Notes
-----
What comes behind the first job that waits is limited, for it is done beside the daemon's own work:
where the limit is met, jobs that have no start yet are deferred, and without a booking of the first
that waits nothing overtakes it. A job
that asks for no less than an earlier one of its kind, which did not fit now, is not tried.

Deviations
----------
From `easy`: a job takes its earliest start, on whatever nodes that is, where `easy` takes its
earliest end; and the estimates keep all jobs' places, where `easy` goes on as EASY would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from coalloc.model.plan import Deferred, Objective, Plan, Reason, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.counted.planning import plain_counted
from coalloc.policies.kernel.instance.intake import Intake, read_queue
from coalloc.policies.kernel.instance.modes import Item, Mode
from coalloc.policies.plain.availability import Availability, EarliestFit
from coalloc.policies.plain.nodes import chosen_nodes, dealt_pieces
from coalloc.policies.relative_time import at_time, from_now

WORK = 3_000_000
"""Entries of the availability that may be read: about half a second."""


def plain_easy(snapshot: Snapshot, *, pieces: bool = False, work: int = WORK) -> Plan:
    """Plan by EASY.

    `pieces`: start divisible jobs on what is left now, if no job waits for slots.
    `work`: entries, of a class of nodes at a time, that may be read.
    """
    problem = from_now(snapshot)
    if needs_counting(problem):
        return at_time(plain_counted(problem), snapshot.time)
    intake = read_queue(problem, {})
    queue = _PlainQueue(intake, work)
    waits = queue.start_and_backfill()
    placements = chosen_nodes(queue.availability, intake, queue.places)
    divided = dealt_pieces(intake, placements) if pieces and not waits else []
    if not divided:
        queue.estimate(waits)
        placements = chosen_nodes(queue.availability, intake, queue.places)
    placements += divided
    placed = {placement.job for placement in divided}
    deferred = [entry for entry in intake.deferred if entry.job not in placed] + queue.deferred()
    plan = Plan(
        policy="plain",
        options={"power_step": step} if (step := queue.availability.power_step) else {},
        status=Status.INFEASIBLE if intake.nothing_can_run else Status.HEURISTIC,
        objective=Objective(
            name="makespan",
            value=max((placement.end for placement in placements), default=0.0),
            deferred=len({entry.job for entry in deferred}),
        ),
        placements=tuple(placements),
        deferred=tuple(deferred),
        stats={"work": len(queue.places), "seed": 0},
    )
    return at_time(plan, snapshot.time)


class _PlainQueue:
    """The items with the places that they have got."""

    def __init__(self, intake: Intake, work: int) -> None:
        self.intake, self.work = intake, work
        self.items = intake.items
        self.availability = Availability(intake, work)
        self.places: dict[int, EarliestFit] = {}
        self._head: Item | None = None
        self._failed: dict[tuple[Any, ...], list[Mode]] = {}

    def start_and_backfill(self) -> list[int]:
        """Start what can start now; the first that cannot is booked. What waits for slots."""
        waits: list[int] = []
        for n, item in enumerate(self.items):
            if self.intake.why_not_yet(item) is not None:
                continue
            fit = self._now(item)
            if fit is not None:
                self._book(n, fit)
                if self._head is None:
                    self.availability.left = self.work  # what starts in order has no limit
                continue
            waits.append(n)
            if self._head is None and (self._book_earliest(n) or self.availability.spent):
                self._head = item
        return waits

    def estimate(self, waits: Sequence[int]) -> None:
        """Book what has no place yet: first what waits for slots, then what may not start yet."""
        later = [n for n, item in enumerate(self.items) if self.intake.why_not_yet(item)]
        later.sort(key=lambda n: self.items[n].release)
        left = [n for n in (*waits, *later) if n not in self.places]
        while left and not self.availability.spent:
            still = [n for n in left if not self._book_earliest(n)]
            if len(still) == len(left):
                return  # the others wait for what has found no place
            left = [n for n in still if self.items[n].parents]

    def deferred(self) -> list[Deferred]:
        """List what has no place, with the reason."""
        out = []
        for n, item in enumerate(self.items):
            if n in self.places:
                continue
            reason, detail = self.intake.why_not_yet(item) or self._why_not(item)
            task = None if item.task is None else item.task.id
            out.append(Deferred(job=item.job.id, task=task, reason=reason, detail=detail))
        return out

    def _why_not(self, item: Item) -> tuple[Reason, str]:
        if not self.availability.spent:
            return Reason.INSUFFICIENT, "finds no place beside what runs"
        if self._head is None or self._head is item:
            return Reason.NOT_SELECTED, "does not fit now"
        return Reason.NOT_SELECTED, f"comes after job {self._head.job.id}"

    def _book(self, n: int, fit: EarliestFit) -> None:
        self.availability.book(self.items[n], fit)
        self.places[n] = fit

    def _book_earliest(self, n: int) -> bool:
        """Book an item whose parents have their places; whether it has one now."""
        item = self.items[n]
        if any(parent not in self.places for parent, _ in item.parents):
            return False
        fit = self._earliest(item)
        if fit is not None:
            self._book(n, fit)
        return fit is not None

    def _now(self, item: Item) -> EarliestFit | None:
        """The place of an item that starts now, if it has one that ends no later than others.

        An item with a choice of allotments waits where it would end sooner so; else any single free
        slot would be its fate.
        """
        now = self.intake.snapshot.time
        if len(item.modes) > 1:
            fit = self._earliest(item)
            return fit if fit is not None and fit.start == now else None
        mode = item.modes[0]
        # Data of tasks arrive at different times, so that one says nothing of another.
        kind = (item.group, item.splits, item.proc_gbps, item.limit)
        known = [] if item.task is not None else self._failed.setdefault(kind, [])
        # What asks for no less fits nowhere where another did not.
        if self.availability.spent or any(
            all(mine >= its for mine, its in zip(mode, other, strict=True)) for other in known
        ):
            return None
        best: EarliestFit | None = None
        for only in self._clusters(item):
            if self._ready(item, only) <= now:
                fit = self.availability.now(item, mode, now, only)
                if fit is not None and (best is None or fit.end < best.end):
                    best = fit
        if best is None:
            known.append(mode)
        return best

    def _earliest(self, item: Item) -> EarliestFit | None:
        """The earliest start of each mode; of these the one that ends first."""
        best: EarliestFit | None = None
        for only in self._clusters(item):
            start = self._ready(item, only)
            for mode in item.modes:
                before = inf if best is None else best.end - 1e-9
                fit = self.availability.earliest(item, mode, start, only, before)
                if fit is not None and fit.end < before:
                    best = fit
        return best

    def _clusters(self, item: Item) -> Sequence[int | None]:
        """A task's time depends on its cluster: each by itself."""
        if item.task is None or item.parts:
            return [None]
        return range(len(self.availability.clusters))

    def _ready(self, item: Item, only: int | None) -> float:
        """Earliest start of an item, once its parents' data have reached a cluster, seconds.

        Of a task that is spread: all of its clusters.
        """
        used = {only} if only is not None else {k for k, part in enumerate(item.parts) if part}
        ready = max(item.release, self.intake.snapshot.time)
        if item.arrival:
            ready = max(ready, *(item.arrival[k] for k in used))
        for parent, gbit in item.parents:
            place = self.places[parent]
            ready = max(ready, place.end)
            if gbit >= 0.0 and used:
                ready = max(ready, place.end + self._delay(place, gbit, used))
        return ready

    def _delay(self, parent: EarliestFit, gbit: float, child: set[int]) -> float:
        """Seconds from a parent's end until its data have reached these clusters."""
        homes = {self.availability.cluster[c] for c in parent.procs}
        if homes == child:
            return 0.0
        used = [self.availability.clusters[k] for k in homes | child]
        slowest = min(cluster.link_gbps for cluster in used)
        moving = 0.0 if gbit == 0.0 else inf if slowest <= 0.0 else gbit / slowest
        return max(cluster.link_latency_s for cluster in used) + moving


def solve(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Plan with `plain_easy`; there are no options, and there is no search."""
    return plain_easy(problem)


SOLVERS: Mapping[str, SolveFunction] = {"plain": solve}
