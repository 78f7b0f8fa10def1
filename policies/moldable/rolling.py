"""The rolling form of `bicriteria`: moldable jobs as they arrive, without barriers.

At each round, every waiting job gets a width by what processor-seconds cost at the moment, and a
place in the order (`rolling_rule`). What fits starts, squeezed or stretched a little; one job may
keep a reservation. All others get the starts that they would have if nothing more arrived.

Notes
-----
A round depends on the snapshot and on what is noted of earlier arrivals. On one
cluster of equal nodes the schedule is a list on m(t) whose allotments give way (`pool_list`);
elsewhere the kernel's *event* decoder lays it, with the held job first, by what powers, links,
reservations and dependencies allow, on allotments up to those of that list. Rigid jobs are moldable
jobs with one allotment; tasks of workflows take part once they are ready.

Deviations
----------
The paper has no on-line experiment, and no form without barriers; this rule is ours.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from coalloc.model.plan import NOTES, Plan, Status
from coalloc.model.values import replace
from coalloc.policies.array_types import Flags, Ints
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.rolling_rule import Arrivals, WantedWidths, wanted
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
