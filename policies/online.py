"""A round on line: nine orders of the queue, rolled forward by predicted run times.

Each order is EASY backfilling under a key that mixes run time, processes and the time waited:

    log r + b log n - c log((wait + max(r, 60 s)) / max(r, 60 s)) - log weight,

r the predicted run time, n the processes, b one of 0, 1/2, 1 and c one of 1/2, 1, 2: from shortest
first (b = 0) to smallest area first (b = 1), the faster overtaken by those who wait the larger c
is. Each is decoded to the end of the queue as if jobs took as long as predicted, beside the
bookings of jobs that have waited too long; the one with the least weighted completion of the jobs
decides what starts. No rule is best on every queue, and to see which one serves this queue costs
nine decodings.

The plan then holds by the planned run times. Jobs that have waited for `wait_limit` are overdue:
they go first in every order, by arrival, and the first of them is booked before anything else. No
other job starts before it does in the rolled queue.

Notes
-----
*Bound on waiting.* From the first round in which a job is the first overdue one, it is booked at
its earliest fit beside running work alone, by planned run times. That is not after the last end of
what runs, at most the longest planned run time L. Running work ends no later than planned, and
nothing starts where it delays the booking, so from round to round the booking does not become
later, unless nodes fail or work outside this queue takes them. A job with k overdue jobs before it
is thus started within `wait_limit` + (k + 1) L. A wrong prediction does not change that: bookings
do not go by it.

Deviations
----------
To book all overdue jobs bounds their waits more closely, but made users of a machine with more
work than it can do wait 3 % longer in the mean (docs/policies/auto.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from coalloc.model.plan import Plan, Status
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.bounds import lower_bound
from coalloc.policies.kernel.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.run_times import ratios
from coalloc.policies.simple import traits

Floats = NDArray[np.float64]

WIDTHS = (0.5, 0.0, 1.0)
"""Exponents b of the processes."""
AGEINGS = (1.0, 0.5, 2.0)
"""Exponents c of the slowdown so far."""
SHORT_S = 60.0
"""Shorter jobs age as if they took so long."""
SHORTEST_S = 1.0
SAME_TIME_S = 1e-6
MANY = 1_000
"""Of a longer queue, each order is told as soon as it is better."""


def overdue(planner: Planner, wait_limit: float | None) -> NDArray[np.int64]:
    """Items to book first, in arrival order: of jobs that waited, or were passed over, too long."""
    guarded = np.zeros(len(planner.items), dtype=np.bool_)
    guarded[planner.guarded] = True
    if wait_limit is not None:
        eligible = np.array([not item.waits for item in planner.items], dtype=np.bool_)
        guarded |= eligible & (traits(planner).waited >= wait_limit)
    return np.flatnonzero(guarded)


def solve_round(
    planner: Planner, policy: str, budget: Budget, on_incumbent: OnIncumbent | None = None
) -> Plan:
    """Plan a round; there are items.

    Parameters
    ----------
    planner : Planner
        Its guarded items are those that are overdue.
    policy : str
        The name that the plan carries.
    """
    late = planner.guarded
    planner.guarded = late[:1]
    shares = ratios(budget.history, (item.job.id for item in planner.items))
    believed = rolled(planner, shares)
    tolerance = 1.0 - float(planner.options.get("order_tolerance") or 0.0)
    best: Schedule | None = None
    name, tried, stopped = "", 0, False
    for label, order in orders(planner, shares, late):
        schedule = believed.decode(order, "easy")
        tried += 1
        if best is None or _rank(schedule) < (best.unplaced, tolerance * best.weighted_completion):
            best, name = schedule, label
            if on_incumbent is not None and len(order) > MANY:
                on_incumbent(_written(planner, policy, budget, best, name, tried, False, None))
        stopped = budget.stop()
        if stopped or _starts_at_once(best, planner.snapshot.time):
            break
    assert best is not None
    bound = None
    if budget.bounds and not stopped:
        bound = lower_bound(planner, WEIGHTED, budget.stop).value
    plan = _written(planner, policy, budget, best, name, tried, stopped, bound)
    if on_incumbent is not None:
        on_incumbent(plan)
    return plan


def _starts_at_once(schedule: Schedule, now: float) -> bool:
    """Whether everything starts now, as it would in any other order."""
    return bool((schedule.outcome.start <= now + SAME_TIME_S).all())


def _rank(schedule: Schedule) -> tuple[int, float]:
    return schedule.unplaced, schedule.weighted_completion


def rolled(planner: Planner, shares: Floats) -> Planner:
    """The planner of the same queue whose jobs take these shares of their planned run times."""
    compiled = planner.compiled
    problem = compiled.problem
    of_modes = np.repeat(shares, np.diff(problem.mode_first))
    out = copy(planner)
    out.compiled = replace(
        compiled,
        problem=problem._replace(
            mode_scaled=problem.mode_scaled * of_modes, mode_fixed=problem.mode_fixed * of_modes
        ),
    )
    return out


def orders(
    planner: Planner, shares: Floats, late: NDArray[np.int64]
) -> Iterator[tuple[str, list[int]]]:
    """The orders with their names, what is late first; equal jobs are in arrival order in all."""
    jobs = traits(planner)
    seconds = jobs.seconds * shares
    length = np.maximum(seconds, SHORT_S)
    ageing = np.log1p(np.maximum(jobs.waited, 0.0) / length)
    key = np.log(np.maximum(seconds, SHORTEST_S)) - np.log(np.maximum(planner.weights, 1e-12))
    procs = np.log(np.maximum(jobs.procs, 1.0))
    for c in AGEINGS:
        for b in WIDTHS:
            keys = key + b * procs - c * ageing
            keys[late] = -inf
            order = np.argsort(keys, kind="stable")
            yield f"width {b:g}, ageing {c:g}", order.tolist()


def promised(planner: Planner, believed: Schedule) -> Schedule:
    """The schedule by planned run times, in which nothing starts before it is believed to."""
    compiled = planner.compiled
    starts = np.where(np.isnan(believed.outcome.start), inf, believed.outcome.start)
    release = compiled.problem.item_release.copy()
    later = np.isfinite(starts) & (starts > planner.snapshot.time + SAME_TIME_S)
    later[planner.guarded] = False
    release[later] = np.maximum(release[later], starts[later])
    out = copy(planner)
    out.compiled = replace(compiled, problem=compiled.problem._replace(item_release=release))
    return out.decode(np.argsort(starts, kind="stable").tolist(), "easy")


def _written(
    planner: Planner,
    policy: str,
    budget: Budget,
    believed: Schedule,
    name: str,
    tried: int,
    stopped: bool,
    bound: float | None,
) -> Plan:
    """The plan of what an order came to."""
    return planner.plan(
        promised(planner, believed),
        policy,
        budget.seed,
        {
            "work": tried * len(planner.items),
            "order": name,
            "tried": tried,
            "predicted_completion": believed.weighted_completion,
        },
        bound=bound,
        status=Status.TIME_LIMIT if stopped else Status.FEASIBLE,
    )
