"""Two shelves: allotments by dual approximation, and the schedule within 3/2 of the accepted guess.

*Allotments.* A guess of the makespan is accepted if the jobs can be parted so that their work fits
below it: on the first shelf jobs run up to the whole guess, on the second up to half of it, and
what takes one processor for at most half the guess is left for the gaps. The first shelf has m
processors; which jobs are there is a knapsack of the work that they would waste on the second. Most
callers list the parted jobs in the order of their parts, which uses what shelves would leave idle
and proves nothing.

*Schedule.* On m processors and for a guess d, jobs of the first shelf run from 0 and for d at most;
those of the second for d / 2 at most, after it. The first shelf has room by its knapsack. The
second is made to fit by three moves, into columns of processors that no shelf has, for 3 d / 2 at
most:

1. a job of the first shelf that takes 3 d / 4 at most, on fewer processors;
2. two jobs of the first shelf that take 3 d / 4 at most on one processor each, one after the other
   on one; of an odd one, on top of a job that leaves it time;
3. a job of the second shelf, on processors that are idle beside the first; what takes no longer
   than d there joins the first shelf.

Then each small job goes between the shelves of the processor with the least to do. Last, everything
starts as soon as its processors are free, and a list of the same jobs, in the order of their parts,
is kept instead where it ends earlier.

Notes
-----
For jobs whose time falls and whose work rises with processors, the moves always suffice (the
reference), so nothing ends after 3 d / 2. Rigid jobs and tables with holes can be too wide: then
guesses that are a little larger are tried, and in the end the list alone stands. So it does where
processors come and go, or a job is released later.

References
----------
G. Mounie, C. Rapine, D. Trystram, "A 3/2-approximation algorithm for scheduling independent
monotonic malleable tasks", SIAM J. Computing 2007; P.-F. Dutot, G. Mounie, D. Trystram, Handbook
of Scheduling, chapter 28.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.base import Budget, SolveFunction
from coalloc.policies.halving import halved
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.laying import Layer, PoolLister
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.shelves import select
from coalloc.policies.one_pass import one_pass

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


TRIES, LARGER = 40, 1.01
"""Guesses above the accepted one, and the factor between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfSchedule:
    """Start of each job, and its processors."""

    guess: float
    """The guess whose parts were laid, seconds."""
    rows: Ints
    """Allotments, indices into the queue's `procs`."""
    start: Floats
    """Seconds."""
    makespan: float
    """Seconds."""
    is_shelved: bool
    """Whether these are the shelves, and not the list."""


def two_shelf_schedule(queue: MoldableQueue) -> ShelfSchedule:
    """Schedule a queue that is not empty."""
    parts = two_shelf(queue)
    listed = _listed(queue, parts)
    if queue.capacity.size > 1 or (queue.release > 0.0).any():
        return listed
    for _ in range(TRIES):
        shelves = Shelves(queue, parts)
        if shelves.fit():
            laid = shelves.schedule()
            again = _listed(queue, parts, laid.rows, _order(queue, laid))
            return min((laid, listed, again), key=lambda schedule: schedule.makespan)
        larger = part_jobs(queue, parts.guess * LARGER)
        if larger is None:
            break
        parts = larger
    return listed


class Shelves:
    """The two shelves and the columns beside them, while jobs are moved."""

    def __init__(self, queue: MoldableQueue, parts: TwoShelf) -> None:
        self.queue, self.guess = queue, parts.guess
        self.procs = int(queue.capacity[0])
        self.rows: list[int] = parts.rows.tolist()
        everyone = np.arange(queue.size, dtype=np.int64)
        self.long: list[int] = queue.fitting(everyone, 1.5 * self.guess).tolist()
        self.small: list[int] = np.flatnonzero(parts.part == SMALL).tolist()
        self.first: set[int] = set(np.flatnonzero(parts.part == LARGE).tolist())
        self.second: set[int] = set(np.flatnonzero(parts.part == SECOND).tolist())
        self.columns: list[tuple[int, ...]] = []
        """Jobs on top of each other; the first of them has the processors."""
        self.beside = 0
        self.in_first = sum(map(self.size, self.first))
        self.in_second = sum(map(self.size, self.second))

    def size(self, job: int) -> int:
        """Processors of a job."""
        return int(self.queue.procs[self.rows[job]])

    def seconds(self, job: int) -> float:
        """Its time on them."""
        return max(float(self.queue.times[self.rows[job]]), SHORTEST)

    @property
    def fits(self) -> bool:
        """Whether the second shelf has room beside the columns."""
        return self.in_second <= self.procs - self.beside

    def fit(self) -> bool:
        """Move jobs until the second shelf has room; false if it has none in the end."""
        short = [job for job in self.first if self.seconds(job) <= 0.75 * self.guess]
        single = [job for job in short if self.size(job) == 1]
        wide = [job for job in short if self.queue.procs[self.long[job]] < self.size(job)]
        waiting = [(int(self.queue.procs[self.long[job]]), job) for job in self.second]
        heapify(waiting)
        while not self.fits:
            idle = self.procs - self.beside - self.in_first
            if wide:
                self._to_column((wide.pop(),))
            elif len(single) >= 2:
                self._to_column((single.pop(), single.pop()))
            elif waiting and waiting[0][0] <= idle:
                job = self._beside_first(heappop(waiting)[1])
                if job is not None and self.seconds(job) <= 0.75 * self.guess:
                    single += [job] if self.size(job) == 1 else []
            elif not (single and self._on_top(single.pop())):
                return False
        return True

    def _to_column(self, jobs: tuple[int, ...]) -> None:
        """Out of the first shelf, one after the other on the processors of the first of them."""
        for job in jobs:
            self.first.remove(job)
            self.in_first -= self.size(job)
        if len(jobs) == 1:
            self.rows[jobs[0]] = self.long[jobs[0]]
        self.columns.append(jobs)
        self.beside += self.size(jobs[0])

    def _beside_first(self, job: int) -> int | None:
        """Out of the second shelf; the job, if it is now in the first."""
        self.second.remove(job)
        self.in_second -= self.size(job)
        self.rows[job] = self.long[job]
        if self.seconds(job) > self.guess:
            self.columns.append((job,))
            self.beside += self.size(job)
            return None
        self.first.add(job)
        self.in_first += self.size(job)
        return job

    def _on_top(self, job: int) -> bool:
        """Put a job of one processor on one that leaves it time; false if none does."""
        spare = 1.5 * self.guess - self.seconds(job)
        under = [n for n in self.first if n != job and self.seconds(n) <= spare]
        if not under:
            return False
        self._to_column((min(under, key=lambda n: (self.size(n), n)), job))
        return True

    def schedule(self) -> ShelfSchedule:
        """Lay everything on processors, as early as they are free."""
        start = np.zeros(self.queue.size)
        top = np.zeros(self.procs)
        left = 0
        for jobs in self.columns:
            for job in jobs:
                start[job] = top[left]
                top[left : left + self.size(job)] += self.seconds(job)
            left += self.size(jobs[0])
        for job in sorted(self.first, key=lambda n: (-self.seconds(n), n)):
            top[left : left + self.size(job)] = self.seconds(job)
            left += self.size(job)
        after = np.zeros(self.procs)
        right = self.procs
        spans: list[tuple[int, slice]] = []
        for job in sorted(self.second, key=lambda n: (-self.seconds(n), n)):
            span = slice(right - self.size(job), right)
            spans.append((job, span))
            after[span] = self.seconds(job)
            right = span.start
        self._fill(start, top, after)
        for job, span in spans:
            start[job] = top[span].max()
            top[span] = start[job] + self.seconds(job)
        return ShelfSchedule(
            guess=self.guess,
            rows=np.array(self.rows, dtype=np.int64),
            start=start,
            makespan=float(top.max()),
            is_shelved=True,
        )

    def _fill(self, start: Floats, top: Floats, after: Floats) -> None:
        """Each small job, longest first, to the processor with the least to do."""
        load = [(float(x), n) for n, x in enumerate(top + after)]
        heapify(load)
        for job in sorted(self.small, key=lambda n: (-self.seconds(n), n)):
            busy, n = load[0]
            start[job] = top[n]
            top[n] += self.seconds(job)
            heapreplace(load, (busy + self.seconds(job), n))


def _listed(
    queue: MoldableQueue, parts: TwoShelf, rows: Ints | None = None, order: Ints | None = None
) -> ShelfSchedule:
    """The list of the parted jobs, or of others."""
    lister = PoolLister(queue)
    rows, order = parts.rows if rows is None else rows, parts.order if order is None else order
    makespan = lister.run(order, rows)[0]
    return ShelfSchedule(
        guess=parts.guess,
        rows=rows,
        start=lister.start.copy(),
        makespan=makespan,
        is_shelved=False,
    )


def _order(queue: MoldableQueue, laid: ShelfSchedule) -> Ints:
    """Jobs by their starts on the shelves, longest first."""
    return np.lexsort((-queue.times[laid.rows], laid.start)).astype(np.int64)


def _lay(planner: Planner, budget: Budget) -> tuple[Schedule, Mapping[str, Any]]:
    """The two-shelf schedule of the queue, or its order and allotments laid by the kernel."""
    queue = of_planner(planner)
    layer = Layer(planner, queue)
    found = two_shelf_schedule(queue)
    if layer.is_exact:
        return layer.measured(found.rows, found.start), {}
    return layer.decode(_order(queue, found), found.rows), {}


SOLVERS: Mapping[str, SolveFunction] = {"two-shelf": one_pass("two-shelf", _lay)}
