"""Share of divisible jobs in the bounds of other jobs.

Notes
-----
With the idle time beside running work only, no job ends before

- one chunk has ended on the node where that is soonest;
- all its chunks fit: by T a lane that is idle from a on takes (T - a) * power / chunk_s of them,
  and one that stays idle only whole ones.

No plan ends before the area of all its jobs is there: by T a lane gives (T - a) * power. A rigid or
moldable job of n processes and base time t takes at least n * t * (sigma + (1 - sigma) * p), with
the weakest power p of any node, since it takes n nodes of at least the power m of the weakest for
t * (sigma / m + 1 - sigma); a workflow's task at least its work, a divisible job its chunks.

Makespan is at least the largest of these; weighted completion at least the sum of what each
divisible job alone needs, beside what is known of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nextafter

import numpy as np

from coalloc.model.cost import base_time, within_limit
from coalloc.model.jobs import DivisibleJob, Job, RigidJob, WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import TableSpeedup
from coalloc.model.values import replace
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.divisible.filling import Gaps, divisible
from coalloc.policies.divisible.idle import Idle
from coalloc.policies.halving import halved

ROUNDING = 1e-11
"""Share of a bound that is given up."""
TINY = 1e-9
"""Chunk of a job that fits wherever anything does, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisibleBounds:
    """Seconds from the snapshot's time, and what to add to a bound on weighted completion."""

    makespan: float
    weighted_completion: float


def divisible_bounds(snapshot: Snapshot, plan: Plan) -> DivisibleBounds:
    """Bound what any plan reaches that has a start for the same jobs."""
    left = {entry.job for entry in plan.deferred}
    jobs = [job for job in divisible(snapshot) if job.id not in left]
    if not jobs or needs_counting(snapshot):  # a process is no lane
        return DivisibleBounds(makespan=0.0, weighted_completion=0.0)
    step = plan.options.get("power_step") or 0.0
    idle = Idle(snapshot, (), step)
    now = snapshot.time
    kept = 1.0 - ROUNDING
    alone = [kept * max(_alone(idle, job) - now, 0.0) for job in jobs]
    others = [job for job in snapshot.queue if job.id not in left]
    return DivisibleBounds(
        makespan=max([kept * (_area(snapshot, others, step) - now), *alone]),
        weighted_completion=sum(job.weight * end for job, end in zip(jobs, alone, strict=True)),
    )


def _alone(idle: Idle, job: DivisibleJob) -> float:
    """No plan ends this job earlier, seconds."""
    rows = idle.gaps(job, max(job.earliest, idle.snapshot.time))
    if not rows:
        return idle.snapshot.time
    gaps = Gaps(idle, rows, job)
    cut = {gap.group for gap in rows if gap.end < inf}
    is_cut = np.array([gap.group in cut for gap in rows], dtype=np.bool_)

    def room(until: float) -> float:
        return float(np.where(is_cut, gaps.filled(until), gaps.rounds(until)) @ gaps.lanes)

    return max(float((gaps.start + gaps.chunk).min()), _reached(room, job.chunks, gaps))


def _area(snapshot: Snapshot, jobs: Sequence[Job], power_step: float) -> float:
    """No plan of all these jobs ends earlier, seconds."""
    idle = Idle(replace(snapshot, reservations=()), (), power_step)
    tiny = DivisibleJob(id="", work=1.0, chunk_s=TINY)
    rows = idle.gaps(tiny, snapshot.time)
    if not rows:
        return snapshot.time
    gaps = Gaps(idle, rows, replace(tiny, chunk_s=1.0))
    weakest = min(group.power for group in idle.groups)
    areas = sum(_least_area(job, weakest) for job in jobs)
    return _reached(lambda until: float(gaps.filled(until) @ gaps.lanes), areas, gaps)


def _least_area(job: Job, weakest: float) -> float:
    """Seconds on one full-speed node that the job takes at least, however it is placed.

    A process that runs into the time limit has taken this of the weakest node at least.
    """
    limited = within_limit(job, inf) * weakest
    if isinstance(job, DivisibleJob):
        return job.chunks * min(job.chunk_s, limited)
    if isinstance(job, WorkflowJob):
        return sum(min(task.work, task.min_procs * limited) for task in job.tasks)
    if isinstance(job, RigidJob):
        procs = job.procs
    elif isinstance(job.speedup, TableSpeedup):
        procs = min(n for n in job.speedup.procs if n >= job.min_procs)
    else:
        procs = job.min_procs
    seconds = base_time(job, procs) * (job.sigma + (1.0 - job.sigma) * weakest)
    return procs * min(seconds, limited)


def _reached(room: Callable[[float], float], amount: float, gaps: Gaps) -> float:
    """The last instant known at which less than this amount has fit, seconds."""
    low = float(gaps.start.min())
    high = nextafter(low + max(amount, 1.0), inf)
    while room(high) < amount:
        low, high = high, high + 2.0 * (high - float(gaps.start.min()))
        if high == inf or room(inf) < amount:
            return low
    return halved(low, high, lambda until: room(until) < amount)[0]
