"""A queue of moldable jobs as arrays, and the processors that are there over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np

from coalloc.model.jobs import MoldableJob
from coalloc.model.speedup import TableSpeedup
from coalloc.policies.array_types import Floats, Ints, firsts
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.pool.pool_profile import Jobs, Processors
from coalloc.policies.kernel.pool.shelf_packing import fitting_rows
from coalloc.policies.kernel.state import FINEST

COARSEST = 8.0 * FINEST
"""Share of a time below which no run is told apart from none, over several roundings."""
EVERY = 1000
"""Counts of processors that bounds look at one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoldableQueue:
    """N jobs with A allotments in all, on m(t) equal processors.

    Times are seconds from the snapshot's time. A rigid job has one allotment.
    """

    items: Ints
    """Which items of the planner these are."""
    first: Ints
    """Job i's allotments are first[i] .. first[i + 1] - 1."""
    procs: Ints
    """Processors by rising count, and seconds on them, strictly falling."""
    times: Floats
    mode: Ints
    """Which of the item's modes an allotment is; -1 for bounds."""
    weight: Floats
    release: Floats
    starts: Floats
    """``capacity[s]`` processors are there from ``starts[s]`` to ``starts[s + 1]``; the last row
    holds without end. ``starts[0]`` is 0."""
    capacity: Ints
    is_exact: bool
    """Whether a schedule of this queue is a schedule of the snapshot: one cluster of equal nodes,
    open to every job alike. Otherwise this is a relaxation, see `of_planner`."""

    @property
    def jobs(self) -> Jobs:
        """Without the processors."""
        return Jobs(self.first, self.procs, self.times, self.weight, self.release)

    @property
    def processors(self) -> Processors:
        """Without the jobs."""
        return Processors(self.starts, self.capacity)

    def fitting(self, jobs: Ints, limit: Floats | float) -> Ints:
        """The smallest allotment of each of these jobs within a limit, seconds; -1: none."""
        rows = np.empty(jobs.size, dtype=np.int64)
        fitting_rows(self.first, self.times, jobs, np.broadcast_to(limit, jobs.shape).copy(), rows)
        return rows

    def allotted(self, kept: Sequence[Sequence[int] | Ints]) -> MoldableQueue:
        """The queue with these allotments of each job."""
        rows = np.concatenate([*kept, np.zeros(0)]).astype(np.int64)
        return replace(
            self,
            first=firsts([len(part) for part in kept]),
            procs=self.procs[rows],
            times=self.times[rows],
            mode=self.mode[rows],
        )

    def work_until(self, time: float) -> float:
        """Processor-seconds that are there up to a time."""
        edges = np.minimum(np.append(self.starts, np.inf), time)
        return float(self.capacity @ np.diff(edges))

    @property
    def size(self) -> int:
        """Number of jobs."""
        return int(self.items.size)

    @property
    def width(self) -> int:
        """The most processors there ever are (m)."""
        return int(self.capacity.max(initial=0))


def of_planner(
    planner: Planner, *, limit: int | None = None, for_bounds: bool = False
) -> MoldableQueue:
    """Read the items of a planner.

    Where clusters differ, the arrays describe a relaxation: processors of all clusters in one pool,
    each as fast as the strongest node that the job may use, links without limit, nothing reserved
    against anybody whom one reservation lets in, no order among jobs. Every schedule of the
    snapshot is then at least as long, job by job, as one of this queue.

    Of each job's allotments about `limit` are offered, by geometric steps, or all that the planner
    has. For bounds, none is left out that the job could be given, see `every_allotment`; `mode` is
    then -1.
    """
    problem = planner.compiled.problem
    starts, capacity = _availability(planner)
    width = int(capacity.max(initial=0))
    rows = []
    for n, item in enumerate(planner.items):
        power = float(problem.class_power[problem.group_class[problem.item_group[n], 0]])
        rows.append(every_allotment(item, power, width) if for_bounds else _ladder(item, power))
    counts = [len(entry) for entry in rows]
    flat = np.array([row for entry in rows for row in entry], dtype=np.float64).reshape(-1, 3)
    release = np.maximum(problem.item_release - planner.snapshot.time, 0.0)
    last = float(starts[-1] + release.max(initial=0.0))
    last += sum(max((row[2] for row in entry), default=0.0) for entry in rows)
    # Even at the end of the longest schedule, the shortest run has a length.
    told_apart = float(flat[:, 2].min(initial=inf)) > COARSEST * (abs(planner.snapshot.time) + last)
    queue = MoldableQueue(
        items=np.arange(len(planner.items), dtype=np.int64),
        first=firsts(counts),
        procs=flat[:, 1].astype(np.int64),
        times=flat[:, 2].copy(),
        mode=flat[:, 0].astype(np.int64),
        weight=planner.weights,
        release=release,
        starts=starts,
        capacity=capacity,
        is_exact=told_apart and _is_exact(planner),
    )
    return queue if limit is None else thinned(queue, limit)


def why_not(planner: Planner) -> str | None:
    """Reason why the module cannot plan this queue; None where it can."""
    for item in planner.items:
        if item.task is not None:
            return f"job {item.job.id} is a workflow"
        if item.parents:
            return f"job {item.job.id} waits for another job of the queue"
    return None


Row = tuple[int, int, float]
"""Index of a mode, processors, seconds."""


def _ladder(item: Item, power: float) -> list[Row]:
    """An item's modes at this power; faster with each."""
    return _falling(
        (index, procs, min(scaled / power + fixed, item.limit))
        for index, (procs, scaled, fixed, _) in enumerate(item.modes)
    )


def _falling(rows: Iterable[Row]) -> list[Row]:
    """Without those that are no faster: more processors that run into the same time limit."""
    kept: list[Row] = []
    for row in rows:
        if not kept or row[2] < kept[-1][2]:
            kept.append(row)
    return kept


def _spread(procs: Sequence[int], limit: int) -> list[int]:
    """Places of about `limit` of these rising counts, by geometric steps, and of both ends."""
    if len(procs) <= limit:
        return list(range(len(procs)))
    ratio = (procs[-1] / procs[0]) ** (1.0 / (limit - 1))
    kept = [0]
    for n in range(1, len(procs) - 1):
        if procs[n] >= procs[kept[-1]] * ratio:
            kept.append(n)
    return [*kept, len(procs) - 1]


def thinned(queue: MoldableQueue, limit: int) -> MoldableQueue:
    """The same queue with about `limit` allotments of each job, by geometric steps."""
    procs = queue.procs.tolist()
    bounds = pairwise(queue.first.tolist())
    return queue.allotted([[a + n for n in _spread(procs[a:b], limit)] for a, b in bounds])


def every_allotment(item: Item, power: float, width: int) -> list[Row]:
    """Allotments of a job on at most `width` processors, or less than that.

    A closed form offers every count. Of more than `EVERY`, all between two steps of a dense ladder
    become one row: the processors of the first, and the seconds of the last.
    """
    job = item.job
    if not isinstance(job, MoldableJob) or isinstance(job.speedup, TableSpeedup):
        rows = _ladder(item, power)
        return [(-1, procs, seconds) for _, procs, seconds in rows if procs <= width]
    high = min(job.max_procs, width)
    slower = job.sigma / power + 1.0 - job.sigma
    counts = np.arange(job.min_procs, high + 1)
    if counts.size > EVERY:
        steps = np.geomspace(job.min_procs, high, EVERY // 2).round()
        counts = np.unique(steps.astype(np.int64))
    last = [job.min_procs - 1, *counts.tolist()]
    times = ((a + 1, job.speedup.time(b) * slower) for a, b in pairwise(last))
    return _falling((-1, procs, min(seconds, item.limit)) for procs, seconds in times)


def _availability(planner: Planner) -> tuple[Floats, Ints]:
    """Processors that are there over time: rows of the base profile, cut where nodes are closed."""
    problem, base = planner.compiled.problem, planner.compiled.base
    now = planner.snapshot.time
    need = np.where(problem.need > 0, problem.need, np.iinfo(np.int64).max)
    least = need.min(axis=0, initial=np.iinfo(np.int64).max)
    closing = [r for r in range(len(problem.reserved)) if not problem.exempt[:, r].any()]
    cuts = {float(t) for r in closing for t in problem.reserved[r] if t > now}
    times = np.array(sorted(set(base.time.tolist()) | cuts))
    free = base.free[np.searchsorted(base.time, times, side="right") - 1].astype(np.int64)
    for r in closing:
        start, end = problem.reserved[r]
        bounds = pairwise(problem.closed_first)
        classes = [c for c, (a, b) in enumerate(bounds) if r in problem.closed[a:b]]
        rows = np.flatnonzero((times >= start) & (times < end))
        free[np.ix_(rows, np.array(classes, dtype=np.int64))] = 0
    capacity = (free // least).sum(axis=1)
    changes = np.flatnonzero(np.diff(capacity, prepend=-1))
    return times[changes] - now, capacity[changes]


def _is_exact(planner: Planner) -> bool:
    problem = planner.compiled.problem
    plain = len(planner.snapshot.clusters) == 1 and problem.class_power.size == 1
    groups = bool(problem.group_plain.all()) and not problem.exempt.any()
    return plain and groups and why_not(planner) is None
