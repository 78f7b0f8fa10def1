"""`easy-sjbf`: EASY by predicted run times, the shortest backfilled first (EASY++).

The queue keeps arrival order. A job is predicted to run as long, by what was planned for it, as the
last two like it on average, and never longer than planned; so is what runs. The first job that does
not fit has a reservation by these times, and the others may start beside it, the shortest predicted
first. Work that has outlived its prediction is given a little more: the least of 1 min, 5 min, 15
min, 30 min, 1 h, 2 h, 5 h, 10 h, 20 h, 50 h and 100 h that it has not outlived yet.

The plan holds by planned run times: what starts now by prediction starts, and the others follow in
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
from collections.abc import Iterable, Mapping
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
from coalloc.policies.orders.queue_orders import order_jobs
from coalloc.policies.orders.run_times import predicted
from coalloc.policies.orders.simple import traits

NAME = "easy-sjbf"
CORRECTIONS_S = (
    *(60.0, 300.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0),
)
"""Seconds more for work that has outlived its prediction."""
LEAST = 1e-3
"""A prediction is at least this share of the planned time."""


def lay(planner: Planner, budget: Budget) -> tuple[Schedule, Mapping[str, Any]]:
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


SOLVERS: Mapping[str, SolveFunction] = {NAME: one_pass(NAME, lay)}
