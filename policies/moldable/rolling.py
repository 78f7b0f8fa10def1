"""The rolling form of `bicriteria`: moldable jobs as they arrive, without barriers.

At each round, every waiting job gets a width by what processor-seconds cost at the moment, and a
place in the order (`rolling_rule`). What fits starts, squeezed or stretched a little
(`rolling_now`); one job may keep a reservation. All others get the starts that they would have if
nothing more arrived.

Notes
-----
A round depends on the snapshot and on what is noted of earlier arrivals (`rolling_load`). On one
cluster of equal nodes the schedule is a list on m(t); elsewhere the kernel's *event* decoder lays
it, with the held job first, by what powers, links, reservations and dependencies allow. Rigid jobs
are moldable jobs with one allotment; tasks of workflows take part once they are ready.

Deviations
----------
The paper has no on-line experiment, and no form without barriers; this rule is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalloc.model.plan import NOTES, Plan, Status
from coalloc.model.values import replace
from coalloc.policies.array_types import Flags, Ints
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.kernel.instance.arrays import compile_intake
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.rolling_load import Arrivals
from coalloc.policies.moldable.rolling_now import (
    FreeProcessors,
    HeldPlace,
    hold,
    start_now,
    starts_and_capacity,
)
from coalloc.policies.moldable.rolling_rule import WantedWidths, price, wanted
from coalloc.policies.one_pass import empty_plan
from coalloc.policies.orders.simple import sort_items


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledRound:
    """Result of a round."""

    schedule: Schedule
    price: float
    """Of a processor-second, see `rolling_rule`."""
    stats: Mapping[str, Any]
    """Of the plan, the notes among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EasyBeginning:
    """EASY's schedule of a round, and the plan if the round is stopped."""

    schedule: Schedule
    stopped: Plan


def roll(
    planner: Planner, policy: str, budget: Budget, on_incumbent: OnIncumbent | None = None
) -> Plan:
    """Plan a round; the first incumbent, and the plan of a round that is stopped, is EASY.

    `planner`: its options are those of `bicriteria`.
    `policy`: the name that the plan carries.
    """
    if not planner.items:
        return empty_plan(planner, policy, budget)
    easy = begin_round(planner, policy, budget, on_incumbent)
    found = roll_round(planner, budget)
    if found is None:
        return easy.stopped
    return planner.plan(found.schedule, policy, budget.seed, found.stats)


def begin_round(
    planner: Planner, policy: str, budget: Budget, on_incumbent: OnIncumbent | None
) -> EasyBeginning:
    """Decode EASY, and tell it."""
    easy = planner.decode(sort_items(planner, "easy"), "easy")
    stats = {"work": easy.work, "order": "easy", NOTES: dict(budget.notes)}
    plan = planner.plan(easy, policy, budget.seed, stats)
    if on_incumbent is not None:
        on_incumbent(plan)
    return EasyBeginning(schedule=easy, stopped=replace(plan, status=Status.TIME_LIMIT))


def roll_round(planner: Planner, budget: Budget) -> RolledRound | None:
    """Schedule a round; there are items. None if `budget.stop` says so, asked before each step."""
    if budget.stop():
        return None
    now = planner.snapshot.time + budget.origin
    arrivals = Arrivals.read(budget.notes, now)
    queue = of_planner(planner)
    if budget.stop():
        return None
    arrivals.take(arrived(planner, queue), now)
    load = arrivals.load(queue.width)
    ready = ready_now(planner, queue)
    asked = wanted(planner, queue, ready, load, now)
    if budget.stop():
        return None
    schedule, started, held = schedule_round(planner, queue, asked, ready)
    stats = {
        "work": schedule.work,
        "load": load,
        "chosen_now": len(started),
        "held": None if held is None else planner.items[held.item].job.id,
        NOTES: arrivals.write(),
    }
    return RolledRound(
        schedule=schedule, price=price(int(ready.sum()), load, queue.width), stats=stats
    )


def ready_now(planner: Planner, queue: MoldableQueue) -> Flags:
    """Items that wait for nothing but processors."""
    free = np.array([not item.parents for item in planner.items])
    return np.asarray(free & (queue.release <= 0.0))


def schedule_round(
    planner: Planner, queue: MoldableQueue, asked: WantedWidths, ready: Flags
) -> tuple[Schedule, list[int], HeldPlace | None]:
    """Lay what is asked for on the snapshot.

    Also the items that were chosen to start now, and the place that is kept for a job which cannot.
    """
    options = planner.options
    held = None if asked.held < 0 else hold(queue, asked.held, int(asked.rows[asked.held]))
    others, order = ready, asked.order
    if asked.held >= 0:
        order = np.concatenate(([asked.held], order[order != asked.held]))
    if held is not None and held.start > 0.0:
        others = ready.copy()
        others[held.item] = False
    else:
        held = None
    asked = WantedWidths(rows=asked.rows, order=order, held=asked.held)
    room = FreeProcessors(planner, queue, held)
    started, rows = start_now(queue, asked, others, room, options["squeeze"], options["stretch"])
    first = set(started)
    order = np.array([*started, *(n for n in order.tolist() if n not in first)], dtype=np.int64)
    return lay(planner, queue, order, rows, held), started, held


def lay(
    planner: Planner, queue: MoldableQueue, order: Ints, rows: Ints, held: HeldPlace | None
) -> Schedule:
    """Schedule all items in this order on these allotments, one of them held."""
    if queue.is_exact:
        starts, capacity = starts_and_capacity(queue, held)
        layer = Layer(planner, dataclasses.replace(queue, starts=starts, capacity=capacity))
        if held is not None:
            order = order[order != held.item]
        if layer.lister.run(order, rows)[0] < np.inf:
            if held is not None:
                layer.lister.start[held.item] = held.start
            return layer.measured(rows, layer.lister.start)
    narrow = with_modes(planner, queue.mode[rows])
    narrow.guarded = np.array([] if held is None else [held.item], dtype=np.int64)
    found = narrow.decode(order.tolist(), "event")
    return dataclasses.replace(found, outcome=found.outcome._replace(mode=queue.mode[rows]))


def with_modes(planner: Planner, modes: Ints) -> Planner:
    """A planner whose items have one mode each: decoders need not weigh waiting against width."""
    items = [
        dataclasses.replace(item, modes=[item.modes[mode]])
        for item, mode in zip(planner.items, modes.tolist(), strict=True)
    ]
    narrow = copy(planner)
    narrow.intake = dataclasses.replace(planner.intake, items=items)
    narrow.compiled = compile_intake(narrow.intake, planner.options.get("power_step", 0.0))
    return narrow


def arrived(planner: Planner, queue: MoldableQueue) -> list[tuple[float, float]]:
    """Submit time of each job of the queue, and its work."""
    least = np.minimum.reduceat(queue.procs * queue.times, queue.first[:-1])
    work = np.zeros(len(planner.snapshot.queue))
    np.add.at(work, planner.numbers, least)
    jobs = {item.number: item.job for item in planner.items}
    return [(job.submitted, float(work[number])) for number, job in jobs.items()]
