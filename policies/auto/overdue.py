"""Jobs, and tasks of workflows, that have waited too long: they go first.

A workflow that runs has been waited for since its submission, yet its tasks have not waited. So on
line a task counts from when it could start: its workflow's submission, or the time by which all its
parents have ended and their data have arrived somewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.orders.simple import traits

Ints = NDArray[np.int64]


def overdue(planner: Planner, wait_limit: float | None) -> Ints:
    """Items of jobs that waited, or were passed over, too long.

    By falling `priority`, which is 0 for all jobs of a site without shares, then by arrival.
    """
    guarded = np.zeros(len(planner.items), dtype=np.bool_)
    guarded[planner.guarded] = True
    if wait_limit is not None:
        eligible = np.array([not item.waits for item in planner.items], dtype=np.bool_)
        guarded |= eligible & (traits(planner).waited >= wait_limit)
    late = np.flatnonzero(guarded)
    priority = np.array([planner.items[n].job.priority for n in late], dtype=np.float64)
    return late[np.argsort(-priority, kind="stable")]


def overdue_tasks(planner: Planner, wait_limit: float | None) -> Ints:
    """Of the guarded items those that could start, tasks only if they waited too long themselves.

    By falling `priority`, then those first that have waited longest: one that is overdue is never
    put behind another that becomes so later, as it would be by the arrival of their workflows.
    """
    after = planner.options.get("guard_after") or 0
    now, since_submission = planner.snapshot.time, traits(planner).waited
    kept: list[tuple[float, float, int]] = []
    for n in planner.guarded.tolist():
        item, waited = planner.items[n], float(since_submission[n])
        if item.parents or item.release > now:
            continue
        if item.task is not None and item.arrival:
            waited = min(waited, now - min(item.arrival))
        passed = 0 < after <= item.job.passed_over
        if passed or item.task is None or (wait_limit is not None and waited >= wait_limit):
            kept.append((-item.job.priority, -waited, n))
    return np.array([n for _, _, n in sorted(kept)], dtype=np.int64)
