"""The simple orders and backfilling (DESIGN: policies).

A policy here is an order of the queue (`queue_orders`), for EASY one more of backfilling, and a
decoder. Ties keep arrival order. A moldable job or a task of a workflow sorts by its smallest
allotment; where it runs, it takes the allotment that ends earliest, of equal ones the smaller.

EASY under an order of its own may let a job wait without bound, since others may always come first.
So jobs that have waited for `wait_limit` seconds go first, in arrival order, in both its orders.

*`easy-sjbf`* is EASY by predicted run times, the shortest backfilled first (EASY++). The queue
keeps arrival order. A job is predicted to run as long, by what was planned for it, as the last two
like it on average, and never longer than planned; so is what runs. The first job that does not fit
has a reservation by these times, and the others may start beside it, the shortest predicted first.
Work that has outlived its prediction is given a little more: the least of 1 min, 5 min, 15 min, 30
min, 1 h, 2 h, 5 h, 10 h, 20 h, 50 h and 100 h that it has not outlived yet.

Its plan holds by planned run times: what starts now by prediction starts, and the others follow in
the order of their predicted starts. Jobs that have waited for `wait_limit` go first, in arrival
order.

Deviations
----------
- Theirs predicts the mean of the user's last two run times, this the mean of their last two ratios
  to the planned times, of the same command where that has run: what the daemon keeps.
- The limit on waiting is ours, as for the other forms of EASY.

References
----------
D. Tsafrir, Y. Etsion, D. Feitelson, "Backfilling using system-generated predictions rather than
user runtime estimates", IEEE TPDS 18(6), 2007 (EASY++; the corrections are its section 4.2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from coalloc.model.history import History
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.array_types import Floats
from coalloc.policies.base import Budget, SolveFunction
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.one_pass import one_pass
from coalloc.policies.orders.options import EASY_ORDERS
from coalloc.policies.orders.queue_orders import Traits, order_jobs
from coalloc.policies.orders.run_times import predicted

SAME_TIME_S = 1e-6
"""Times of submission and begin that differ less are one, for the rounding of moved axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """A simple policy: the order of its queue, and its decoder.

    EASY's options name its orders; `order` is that of the queue when there are none.
    """

    order: str
    decoder: str


SIMPLE: Mapping[str, Simple] = {
    "fcfs": Simple(order="arrival", decoder="strict"),
    "sjf": Simple(order="fewest", decoder="strict"),
    "bjf": Simple(order="most", decoder="strict"),
    "spt": Simple(order="shortest", decoder="strict"),
    "lpt": Simple(order="longest", decoder="strict"),
    "fpfs": Simple(order="arrival", decoder="event"),
    **{name: Simple(order=order, decoder="easy") for name, order in EASY_ORDERS.items()},
    "conservative": Simple(order="arrival", decoder="insert"),
}

StartOrder = tuple[str, str]
"""A simple policy, and the decoder that lays its order."""


def start_orders(*names: str, skips: bool = True) -> tuple[StartOrder, ...]:
    """Simple policies as a search begins with them; `skips` is their option ``skip``."""
    decoders = [SIMPLE[name].decoder for name in names]
    return tuple(
        (name, "event" if skips and decoder == "strict" else decoder)
        for name, decoder in zip(names, decoders, strict=True)
    )


SKIPPING = start_orders("easy", "conservative", "fpfs", "lpt", "bjf", "spt", "sjf")
"""Orders with which `auto` begins."""
START_ORDERS = (
    *start_orders("easy", "conservative", "lpt", "bjf", "fpfs", "spt", "sjf"),
    *start_orders("fcfs", "lpt", "bjf", "spt", "sjf", skips=False),
)
"""Orders with which `oas` begins: all simple policies, with and without `skip`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laying:
    """Settings of a simple policy, from its options."""

    decoder: str
    order: str
    """In which jobs are taken; EASY's backfilling."""
    queue: str
    """In which EASY chooses its head."""
    wait_limit: float | None
    """Seconds after which a job goes first in both."""


def laying(name: str, options: Mapping[str, Any]) -> Laying:
    """Read what a policy's name and options say of orders."""
    rule = SIMPLE[name]
    decoder = "event" if options.get("skip") else rule.decoder
    queue = options.get("queue_order", rule.order)
    order = options.get("backfill_order", rule.order)
    # In arrival order those who have waited longest are first as it is.
    limit = None if queue == order == "arrival" else options.get("wait_limit")
    return Laying(decoder=decoder, order=order, queue=queue, wait_limit=limit)


def sort_items(planner: Planner, name: str) -> list[int]:
    """Return the items in the order of this policy, as if none had waited too long."""
    order: list[int] = order_jobs(SIMPLE[name].order, traits(planner)).tolist()
    return order


def as_before(planner: Planner, items: Sequence[int], previous: Sequence[str]) -> list[int]:
    """Items by the starts of an earlier plan; those that it does not name come last."""
    place = {job: n for n, job in enumerate(previous)}
    return sorted(items, key=lambda n: place.get(planner.items[n].job.id, len(place)))


def traits(planner: Planner) -> Traits:
    """Read what orders go by; what may not start yet has not waited."""
    now, items = planner.snapshot.time + planner.origin, planner.items
    submitted = _floats([item.job.submitted for item in items])
    earliest = _floats([item.job.earliest for item in items])
    begin = earliest + planner.origin
    # A job waits not before its begin time, where that lies in the past.
    since = np.where((earliest < 0.0) & (begin > submitted + SAME_TIME_S), begin, submitted)
    waits = np.array([item.waits for item in items], dtype=np.bool_)
    return Traits(
        procs=_floats([item.modes[0][0] for item in items]),
        seconds=_floats([item.modes[0][1] + item.modes[0][2] for item in items]),
        submitted=submitted,
        waited=np.where(waits, 0.0, now - since),
        priority=_floats([item.job.priority for item in items]),
    )


def order_queue(planner: Planner, laid: Laying) -> tuple[list[int], list[int] | None]:
    """The items in the order to take them, and in that of EASY's queue where it is another."""
    jobs = traits(planner)
    overdue = None if laid.wait_limit is None else jobs.waited >= laid.wait_limit
    order: list[int] = order_jobs(laid.order, jobs, overdue).tolist()
    if laid.queue == laid.order:
        return order, None
    return order, order_jobs(laid.queue, jobs, overdue).tolist()


def lay_simply(planner: Planner, laid: Laying) -> Schedule:
    """Place the items as a simple policy does."""
    order, queue = order_queue(planner, laid)
    return planner.decode(order, laid.decoder, queue)


def _floats(values: list[Any]) -> Floats:
    return np.array(values, dtype=np.float64)


def _lay(name: str, planner: Planner, budget: Budget) -> tuple[Schedule, Mapping[str, Any]]:
    return lay_simply(planner, laying(name, planner.options)), {}


CORRECTIONS_S = (
    *(60.0, 300.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0),
)
"""Seconds more for work that has outlived its prediction."""
LEAST = 1e-3
"""A prediction is at least this share of the planned time."""


def lay_predicted(planner: Planner, budget: Budget) -> tuple[Schedule, Mapping[str, Any]]:
    """Lay a queue by predicted run times."""
    shares = last_two(budget.history, (item.job.id for item in planner.items))
    jobs, limit = traits(planner), planner.options["wait_limit"]
    jobs = dataclasses.replace(jobs, seconds=jobs.seconds * shares)
    overdue = jobs.waited >= (inf if limit is None else limit)
    shortest = order_jobs("shortest", jobs, overdue).tolist()
    arrival = order_jobs("arrival", jobs, overdue).tolist()
    believed = Planner(
        believed_running(planner.snapshot, budget.history), planner.options, budget.origin
    )
    shorter = predicted(believed.compiled.problem, shares)
    believed.compiled = dataclasses.replace(believed.compiled, problem=shorter)
    start = believed.decode(shortest, "easy", arrival).outcome.start
    start = np.where(overdue, -inf, np.where(np.isnan(start), inf, start))
    order = np.lexsort((np.argsort(arrival), start)).tolist()
    return planner.decode(order, "easy"), {}


def last_two(history: History, jobs: Iterable[str]) -> Floats:
    """Predicted by planned run time of each job; 1 where nothing is known."""
    return np.array([_ratio(history, job) for job in jobs], dtype=np.float64)


def _ratio(history: History, job: str) -> float:
    place = history.of.get(job)
    recent = () if place is None else history.samples[place][-2:]
    return max(min(sum(recent) / len(recent), 1.0), LEAST) if recent else 1.0


def believed_running(problem: Snapshot, history: History) -> Snapshot:
    """The snapshot whose running work ends as predicted; work of others ends as announced."""
    running = tuple(
        replace(work, end=_believed_end(work, problem, history)) for work in problem.running
    )
    return replace(problem, running=running, overrun_s=0.0)


def _believed_end(work: Running, problem: Snapshot, history: History) -> float:
    now, planned = problem.time, work.end - work.start
    if not work.ours or work.end <= now:
        return work.busy_until(now, problem.overrun_s)
    end = work.start + planned * _ratio(history, work.id)
    if end <= now:
        end = next((end + more for more in CORRECTIONS_S if end + more > now), inf)
    return min(end, work.end)


SOLVERS: Mapping[str, SolveFunction] = {
    **{name: one_pass(name, partial(_lay, name)) for name in SIMPLE},
    "easy-sjbf": one_pass("easy-sjbf", lay_predicted),
}
