"""Allotments by dual approximation: two shelves, and small sequential jobs.

A guess of the makespan is accepted if the jobs can be parted so that their work fits below it: on
the first shelf jobs run up to the whole guess, on the second up to half of it, and what takes one
processor for at most half the guess is left for the gaps. The first shelf has m processors; which
jobs are there is a knapsack of the work that they would waste on the second.

Deviations
----------
The published algorithm goes on to move jobs until the second shelf holds no more than m processors
either, which proves 3/2. Here callers list the parted jobs in the order of their parts, which
uses what shelves would leave idle and proves nothing.

References
----------
G. Mounie, C. Rapine, D. Trystram, "A 3/2-approximation algorithm for scheduling independent
monotonic malleable tasks", SIAM J. Computing 2007; P.-F. Dutot, G. Mounie, D. Trystram, Handbook
of Scheduling, chapter 28.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.halving import halved
from coalloc.policies.moldable.queue import MoldableQueue
from coalloc.policies.moldable.shelves import select

PRECISION = 1e-4
LARGE, SECOND, SMALL = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoShelf:
    """The smallest accepted guess, and how it parts the jobs."""

    guess: float
    """Seconds."""
    rows: Ints
    """Allotments, indices into the queue's `procs`."""
    part: Ints
    """LARGE, SECOND or SMALL."""
    order: Ints
    """Jobs by part, longest first."""


def two_shelf(queue: MoldableQueue) -> TwoShelf:
    """Halve the interval of guesses until it is small; the queue is not empty.

    A refused guess is no proof that nothing is shorter where the knapsack was greedy; the bound of
    a makespan is `cmax_bound`.
    """
    low = high = _least(queue)
    while part_jobs(queue, high) is None:
        low, high = high, 1.5 * high
    _, guess = halved(low, high, lambda guess: part_jobs(queue, guess) is None, PRECISION)
    found = part_jobs(queue, guess)
    assert found is not None
    return found


def part_jobs(queue: MoldableQueue, guess: float) -> TwoShelf | None:
    """Part the jobs by a guess, seconds; None if it is refused."""
    jobs = np.arange(queue.size, dtype=np.int64)
    rows = queue.fitting(jobs, guess - queue.release)
    if (rows < 0).any():
        return None
    is_long = queue.times[rows] > guess / 2.0
    half = queue.fitting(jobs, guess / 2.0)
    is_large = is_long & (half < 0)
    there = queue.capacity[np.searchsorted(queue.starts, guess / 2.0, side="right") - 1]
    room = int(there - queue.procs[rows[is_large]].sum())
    if room < 0:
        return None
    open_to = np.flatnonzero(is_long & (half >= 0) & (queue.procs[rows] <= room))
    saved = np.maximum(_work(queue, half[open_to]) - _work(queue, rows[open_to]), 0.0)
    is_large[open_to[select(saved, queue.procs[rows[open_to]], room, "auto")]] = True
    rows = np.where(is_long & ~is_large, half, rows)
    if float(_work(queue, rows).sum()) > queue.work_until(guess) * (1.0 + 1e-9):
        return None
    is_small = ~is_long & (queue.procs[rows] == 1)
    part = np.where(is_large, LARGE, np.where(is_small, SMALL, SECOND)).astype(np.int64)
    order = np.lexsort((jobs, -queue.times[rows], part)).astype(np.int64)
    return TwoShelf(guess=guess, rows=rows, part=part, order=order)


def _least(queue: MoldableQueue) -> float:
    """A guess below which all are refused, seconds: the longest job, and the work of all jobs."""
    fastest = queue.times[queue.first[1:] - 1]
    least = np.minimum.reduceat(queue.procs * queue.times, queue.first[:-1])
    guess = float((queue.release + fastest).max())
    steps = np.diff(queue.starts)
    done = np.concatenate(([0.0], np.cumsum(queue.capacity[:-1] * steps)))
    after = (float(least.sum()) - done) / np.maximum(queue.capacity, 1)
    s = int(np.searchsorted(done, float(least.sum()), side="right")) - 1
    return max(guess, float(queue.starts[s] + after[s]) * (1.0 - 1e-9))


def _work(queue: MoldableQueue, rows: Ints) -> Floats:
    work: Any = queue.procs[rows] * queue.times[rows]
    return np.asarray(work, dtype=np.float64)
