"""A lower bound on the makespan of moldable jobs: the largest guess that is refuted.

A guess is refuted if some job is too long for it; or if the least work of all jobs is more than
what the processors can do by then; or if that is so when jobs of more than half the guess, which
must all run together in its middle, have to share the processors that are there. The choice of
those is a knapsack, here in fractions.

References
----------
G. Mounie, C. Rapine, D. Trystram, "A 3/2-approximation algorithm for scheduling independent
monotonic malleable tasks", SIAM J. Computing 2007 (the test); P.-F. Dutot, G. Mounie, D. Trystram,
Handbook of Scheduling, chapter 28.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalloc.policies.array_types import Floats
from coalloc.policies.halving import largest_refuted
from coalloc.policies.kernel.pool.pool_profile import canonical_allotments
from coalloc.policies.moldable.queue import MoldableQueue

PRECISION = 1e-7


def cmax_bound(queue: MoldableQueue) -> float:
    """Makespan that no schedule is below, seconds; exact where the longest job decides.

    `queue`: with every allotment there is (``for_bounds``).
    """
    if queue.size == 0:
        return 0.0
    fastest = queue.times[queue.first[1:] - 1]
    longest = float((queue.release + fastest).max())
    return largest_refuted(longest, PRECISION, lambda guess: is_refuted(queue, guess))


def is_refuted(queue: MoldableQueue, guess: float) -> bool:
    """Whether it is certain that no schedule ends by `guess`, seconds."""
    size = queue.size
    canonical, work = np.zeros(size, dtype=np.int64), np.zeros(size)
    half = np.zeros(size)
    if not canonical_allotments(queue.jobs, guess, canonical, work, half):
        return True
    room = queue.work_until(guess) * (1.0 + 1e-9)
    if float(work.sum()) > room:
        return True
    middle = int(queue.capacity[np.searchsorted(queue.starts, guess / 2.0, side="right") - 1])
    return _shared_work(canonical, work, half, middle) > room


def _shared_work(canonical: Any, work: Floats, half: Floats, procs: int) -> float:
    """Least work if those that run for longer than half the guess share `procs` processors."""
    must = np.isinf(half)
    left = procs - int(canonical[must].sum())
    if left < 0:
        return float("inf")
    total = float(work[must].sum() + half[~must].sum())
    saved = (half - work)[~must]
    count = canonical[~must]
    order = np.argsort(-saved / count, kind="stable")
    taken = np.clip((left - (np.cumsum(count[order]) - count[order])) / count[order], 0.0, 1.0)
    return total - float((np.maximum(saved[order], 0.0) * taken).sum())
