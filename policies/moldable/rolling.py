"""The rolling form of `bicriteria`: moldable jobs as they arrive, without barriers.

At each round, every waiting job gets a width by what processor-seconds cost at the moment, and a
place in the order. What fits starts, squeezed or stretched a little; one job may keep a
reservation. All others get the starts that they would have if nothing more arrived.

Notes
-----
A round depends on the snapshot and on what is noted of earlier arrivals. On one
cluster of equal nodes the schedule is a list on m(t) whose allotments give way (`pool_list`);
elsewhere the kernel's *event* decoder lays it, with the held job first, by what powers, links,
reservations and dependencies allow, on allotments up to those of that list. Rigid jobs are moldable
jobs with one allotment; tasks of workflows take part once they are ready.

*Width.* Every processor-second that a job takes keeps those behind it waiting. With v the price of
a processor-second, a job of weight w takes the allotment of the least w p(k) + v k p(k): wide where
no other job waits or where width costs no work, narrow where it does. The price is

    v = (8 (n - 1) + 12 rho / (1 - rho)) / m

for n waiting jobs, m processors and the offered load rho (at most .9): the first
part stands for those that wait now, the second for those to come while this work is done, as in a
queue with one server. Weights count relative to their mean among those that wait.

The other rule, ``efficiency``, takes the widest allotment whose efficiency, least work by work, is
at least .8 rho + 4 (n - 1) / m.

*Load.* Work (slots times seconds of the smallest allotment, on the strongest nodes a job may use)
and gaps between submissions are summed with weights that fall by a factor of 1 - 1/50 with each
arrival, and remembered in the policy's notes. Their ratio by the slots that exist is the offered
load. Two imagined arrivals at load .5 stand in for what is not known yet. A gap that is longer than
usual counts before the next arrival ends it.

*Order.* Smith's ratio, work by weight, divided by 1 + .3 (waited / run time).

*Place.* The job with the largest (waited / run time), if that is at least `reserve_after`, keeps a
reservation; ahead of it, the longest-waiting job that was passed over too often (`guard_after`).

The four constants were chosen on Poisson streams of the four families of the bi-criteria paper, on
48 and on 200 processors, at loads of .3 to .95; half or twice of each changes little.

Deviations
----------
The paper has no on-line experiment, and no form without barriers; this rule is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from coalloc.model.plan import NOTES, Plan, Status
from coalloc.model.values import replace
from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.one_pass import empty_plan
from coalloc.policies.orders.simple import sort_items

NAME = "bicriteria"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPlace:
    """The place that is kept for an item: seconds from now, and processors."""

    item: int
    start: float
    end: float
    procs: int


def roll(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan a round; the first incumbent, and the plan of a round that is stopped, is EASY.

    `planner`: its options are those of `bicriteria`.
    """
    if not planner.items:
        return empty_plan(planner, NAME, budget)
    easy = planner.decode(sort_items(planner, "easy"), "easy")
    stats = {"work": easy.work, "order": "easy", NOTES: dict(budget.notes)}
    plan = planner.plan(easy, NAME, budget.seed, stats)
    if on_incumbent is not None:
        on_incumbent(plan)
    stopped = replace(plan, status=Status.TIME_LIMIT)
    if budget.stop():
        return stopped
    now = planner.snapshot.time + budget.origin
    arrivals = Arrivals.read(budget.notes, now)
    queue = of_planner(planner)
    if budget.stop():
        return stopped
    arrivals.take(arrived(planner, queue), now)
    load = arrivals.load(queue.width)
    ready = ready_now(planner, queue)
    asked = wanted(planner, queue, ready, load, now)
    if budget.stop():
        return stopped
    schedule, started, held = schedule_round(planner, queue, asked, ready)
    stats = {
        "work": schedule.work,
        "load": load,
        "chosen_now": started,
        "held": None if held is None else planner.items[held.item].job.id,
        NOTES: arrivals.write(),
    }
    return planner.plan(schedule, NAME, budget.seed, stats)


def ready_now(planner: Planner, queue: MoldableQueue) -> Flags:
    """Items that wait for nothing but processors."""
    free = np.array([not item.parents for item in planner.items])
    return np.asarray(free & (queue.release <= 0.0))


def schedule_round(
    planner: Planner, queue: MoldableQueue, asked: WantedWidths, ready: Flags
) -> tuple[Schedule, int, HeldPlace | None]:
    """Lay what is asked for on the snapshot.

    Also how many items start now, and the place that is kept for a job which cannot.
    """
    squeeze, stretch = planner.options["squeeze"], planner.options["stretch"]
    held = None if asked.held < 0 else hold(queue, asked.held, int(asked.rows[asked.held]))
    order = asked.order
    if held is not None:
        order = np.concatenate(([held.item], order[order != held.item]))
        held = held if held.start > 0.0 else None
    schedule = lay(planner, queue, order, asked.rows, held, squeeze=squeeze)
    if stretch > 1.0 and int(_start_now(planner, schedule).sum()) == int(ready.sum()):
        # no job waits for what is left over
        schedule = lay(planner, queue, order, asked.rows, held, squeeze=squeeze, stretch=stretch)
    return schedule, int(_start_now(planner, schedule).sum()), held


def _start_now(planner: Planner, schedule: Schedule) -> Flags:
    return np.asarray(schedule.outcome.start <= planner.snapshot.time)


def hold(queue: MoldableQueue, item: int, row: int) -> HeldPlace | None:
    """The earliest place of an item; None if there is none."""
    procs, seconds = int(queue.procs[row]), max(float(queue.times[row]), 1e-9)
    for start in np.maximum(queue.starts, queue.release[item]).tolist():
        during = (queue.starts < start + seconds) & (np.append(queue.starts[1:], np.inf) > start)
        if int(queue.capacity[during].min()) >= procs:
            return HeldPlace(item=item, start=start, end=start + seconds, procs=procs)
    return None


def lay(
    planner: Planner,
    queue: MoldableQueue,
    order: Ints,
    rows: Ints,
    held: HeldPlace | None = None,
    *,
    squeeze: float = 1.0,
    stretch: float = 1.0,
) -> Schedule:
    """Schedule all items in this order, one of them held.

    Each is given its allotment, or what is free of it from the share `squeeze` up to `stretch`.
    """
    others, guarded = order, np.zeros(0, dtype=np.int64)
    if held is not None:
        others, guarded = order[order != held.item], np.array([held.item], dtype=np.int64)
    layer = Layer(planner, queue if held is None else without(queue, held))
    widest = rows
    if layer.lister.run(others, rows, squeeze=squeeze, stretch=stretch)[0] < np.inf:
        widest = layer.lister.rows.copy()
        if held is not None:
            widest[held.item], layer.lister.start[held.item] = rows[held.item], held.start
        if queue.is_exact:
            return layer.measured(widest, layer.lister.start)
    least = np.ceil(squeeze * queue.procs[rows] - 1e-9)
    narrow = planner.limited(least, queue.procs[np.maximum(widest, rows)])
    narrow.guarded = guarded
    return narrow.decode(order.tolist(), "event")


def without(queue: MoldableQueue, held: HeldPlace) -> MoldableQueue:
    """The queue on what is left beside a place that is held."""
    starts = np.unique(np.concatenate((queue.starts, [held.start, held.end])))
    capacity = queue.capacity[np.searchsorted(queue.starts, starts, side="right") - 1].copy()
    capacity[(starts >= held.start) & (starts < held.end)] -= held.procs
    return dataclasses.replace(queue, starts=starts, capacity=capacity)


def arrived(planner: Planner, queue: MoldableQueue) -> list[tuple[float, float]]:
    """Submit time of each job of the queue, and its work."""
    least = np.minimum.reduceat(queue.procs * queue.times, queue.first[:-1])
    work = np.zeros(len(planner.snapshot.queue))
    np.add.at(work, planner.numbers, least)
    jobs = {item.number: item.job for item in planner.items}
    return [(job.submitted, float(work[number])) for number, job in jobs.items()]


WAITING_PRICE, COMING_PRICE, HIGHEST_LOAD = 8.0, 12.0, 0.9
LOAD_SHARE, WAITING_SHARE = 0.8, 4.0
AGEING = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWidths:
    """Widths and order that the rule asks for."""

    rows: Ints
    """Allotment of each item, an index into the queue's `procs`."""
    order: Ints
    """Items, the first to be served first."""
    held: int
    """The item that keeps a reservation; -1: none."""


def wanted(
    planner: Planner, queue: MoldableQueue, ready: Flags, load: float, now: float
) -> WantedWidths:
    """Apply the rule.

    `ready` (array of bool, N): items that may start now.
    `load`: the offered load.
    `now`: on the axis of `submitted`, seconds.
    """
    options = planner.options
    share = relative(queue.weight)
    if options["allotment"] == "price":
        rows = by_price(queue, share, price(int(ready.sum()), load, queue.width))
    else:
        rows = by_efficiency(queue, efficiency(int(ready.sum()), load, queue.width))
    submitted = np.array([item.job.submitted for item in planner.items])
    stretch = np.maximum(now - submitted, 0.0) / np.maximum(queue.times[rows], SHORTEST)
    work = queue.procs[rows] * queue.times[rows]
    with np.errstate(divide="ignore"):
        key = work / share / (1.0 + AGEING * stretch)
    order = np.argsort(key, kind="stable").astype(np.int64)
    held = _longest_passed_over(planner, ready, options["guard_after"] or 0)
    if held < 0:
        held = _most_stretched(stretch, ready, options["reserve_after"])
    return WantedWidths(rows=rows, order=order, held=held)


def price(waiting: int, load: float, procs: int) -> float:
    """Of a processor-second: mean weights times seconds of waiting."""
    rho = min(load, HIGHEST_LOAD)
    coming = COMING_PRICE * rho / (1.0 - rho)
    return (WAITING_PRICE * max(waiting - 1, 0) + coming) / max(procs, 1)


def efficiency(waiting: int, load: float, procs: int) -> float:
    """Least efficiency of an allotment, 0..1."""
    return min(LOAD_SHARE * load + WAITING_SHARE * max(waiting - 1, 0) / max(procs, 1), 1.0)


def by_price(queue: MoldableQueue, share: Floats, price: float) -> Ints:
    """Each item's allotment of the least w p(k) + v k p(k), of equal ones the smallest."""
    counts = np.diff(queue.first)
    cost = queue.times * (np.repeat(share, counts) + price * queue.procs)
    least = np.repeat(np.minimum.reduceat(cost, queue.first[:-1]), counts)
    index = np.flatnonzero(cost <= least)
    return index[_owners(queue)[index].searchsorted(np.arange(counts.size))].astype(np.int64)


def by_efficiency(queue: MoldableQueue, least: float) -> Ints:
    """Each item's widest allotment of at least this efficiency."""
    counts = np.diff(queue.first)
    work = queue.procs * queue.times
    ideal = np.repeat(np.minimum.reduceat(work, queue.first[:-1]), counts)
    fits = ideal >= least * work * (1.0 - 1e-9)
    index = np.flatnonzero(fits)
    last = _owners(queue)[index].searchsorted(np.arange(counts.size), side="right") - 1
    return index[last].astype(np.int64)


def _owners(queue: MoldableQueue) -> Ints:
    """Item of each allotment."""
    return np.repeat(np.arange(queue.size, dtype=np.int64), np.diff(queue.first))


def relative(weight: Floats) -> Floats:
    """Weights by their mean; all 1 where that is 0."""
    mean = float(weight.mean())
    return weight / mean if mean > 0.0 else np.ones(weight.size)


def _longest_passed_over(planner: Planner, ready: Flags, after: int) -> int:
    if after <= 0:
        return -1
    passed = np.array([item.job.passed_over >= after for item in planner.items])
    found = np.flatnonzero(passed & ready)
    return int(found[0]) if found.size else -1


def _most_stretched(stretch: Floats, ready: Flags, least: float) -> int:
    seen = np.where(ready, stretch, -1.0)
    best = int(seen.argmax())
    return best if seen[best] >= least else -1


KEPT = 1.0 - 1.0 / 50.0
"""Weight of what is known, when one more arrives."""
IMAGINED, IMAGINED_LOAD = 2.0, 0.5
"""Arrivals that stand in for what is not known, and the load they offer."""


class Arrivals(Struct, kw_only=True):
    """Statistics of the jobs that have arrived so far."""

    work: float = 0.0
    """Weighted sum, slot-seconds."""
    gap: float = 0.0
    """Weighted sum of the time between two submissions, seconds."""
    count: float = 0.0
    """Sum of the weights."""
    last: float | None = None
    """The latest submission, on the axis of the daemon's snapshots, seconds."""
    seen: float = -inf
    """Time of the latest snapshot: what was submitted later is new."""

    @classmethod
    def read(cls, notes: Mapping[str, Any], now: float) -> Arrivals:
        """Read notes; those that are no notes of ours, or of a later time, are as none."""
        values: dict[str, Any] = {key: notes.get(key) for key in cls.__struct_fields__}
        known = all(isinstance(v, int | float) and isfinite(v) for v in values.values())
        if not known or values["seen"] > now or values["count"] < 0.0:
            return cls()
        return cls(**values)

    def write(self) -> dict[str, float]:
        """The notes to read in the next round."""
        return {} if self.last is None else asdict(self)

    def take(self, jobs: Iterable[tuple[float, float]], now: float) -> None:
        """Count the jobs that are new.

        `jobs` (iterable of (float, float)): when each was submitted, and its work.
        `now`: time of the snapshot they wait in.
        """
        for submitted, work in sorted(job for job in jobs if job[0] > self.seen):
            if self.last is not None:  # the first one ends no gap, and tells no rate
                self.work = KEPT * self.work + work
                self.gap = KEPT * self.gap + max(submitted - self.last, 0.0)
                self.count = KEPT * self.count + 1.0
            self.last = submitted if self.last is None else max(submitted, self.last)
        self.seen = now

    def load(self, slots: int) -> float:
        """Offered load: work by what so many slots could do; above 1 is more than they can."""
        if self.last is None or slots <= 0 or self.count <= 0.0 or self.work <= 0.0:
            return IMAGINED_LOAD
        mean = self.work / self.count
        since = self.seen - self.last
        gap = self.gap + (since if since > self.gap / self.count else 0.0)
        offered = self.work + IMAGINED * IMAGINED_LOAD * mean
        return offered / (slots * gap + IMAGINED * mean)
