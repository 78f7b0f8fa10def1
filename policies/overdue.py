"""Jobs, and tasks of workflows, that have waited too long: they go first.

A workflow that runs has been waited for since its submission, yet its tasks have not waited. So on
line a task counts from when it could start: its workflow's submission, or the time by which all its
parents have ended and their data have arrived somewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.simple import traits

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

    A workflow waits while it runs, too: what counts of a task is the time since it could start.
    """
    after = planner.options.get("guard_after") or 0
    now, kept = planner.snapshot.time, []
    for n in planner.guarded.tolist():
        item = planner.items[n]
        late = item.task is None or not item.arrival or 0 < after <= item.job.passed_over
        if not late and wait_limit is not None:
            late = now - min(item.arrival) >= wait_limit
        if late and not item.parents and item.release <= now:
            kept.append(n)
    return np.array(kept, dtype=np.int64)
