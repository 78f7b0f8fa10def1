"""Items to be placed, and the allotments each may be given; plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from msgspec import Struct, field

from coalloc.model.jobs import Job, MoldableJob, RigidJob, Task
from coalloc.model.plan import Deferred, Reason
from coalloc.model.shape import Shape
from coalloc.model.speedup import AmdahlSpeedup, allotments

Mode = tuple[int, float, float, float]
"""Processes, seconds that scale with 1/power, fixed seconds, 8 * GB / n of communication."""


class Item(Struct, kw_only=True, gc=False):
    """One thing to place."""

    job: Job
    number: int
    """Place of its job in the queue."""
    task: Task | None = None
    group: int = 0
    modes: list[Mode] = field(default_factory=list)
    proc_gbps: float = 0.0
    splits: bool = False
    release: float = 0.0
    parents: list[tuple[int, float]] = field(default_factory=list)
    """Items that must have ended, with 8 * GB of data; below 0 none, and no latency either."""
    waits: bool = False
    """Its job may not start yet: before its begin time, or behind another job."""
    parts: tuple[int, ...] = ()
    """Processes on each cluster of a task that no cluster holds alone; empty: it is not spread."""
    rates: tuple[float, ...] = ()
    """Load of such a task on each cluster's link, Gbit/s."""
    arrival: tuple[float, ...] = ()
    """By cluster: no start before, s, for data of tasks that have started; empty: none of these."""

    @property
    def task_id(self) -> str | None:
        """Of a task of a workflow."""
        return None if self.task is None else self.task.id

    def deferred(self, reason: Reason, detail: str) -> Deferred:
        """The entry that says for which reason it has no start."""
        return Deferred(job=self.job.id, task=self.task_id, reason=reason, detail=detail)

    @property
    def limit(self) -> float:
        """Seconds after which it is killed, on nodes of any power; inf: never."""
        return limit_of(self.job)

    @property
    def shape(self) -> Shape:
        """Its own, or its job's."""
        own = None if self.task is None else self.task.shape
        return self.job.shape if own is None else own


def may_split(job: Job, options: Mapping[str, Any], clusters: int) -> bool:
    """Whether the rules let a job use several of the clusters, whatever a policy would do."""
    if options.get("coallocation") == "forbidden" or clusters < 2:
        return False
    if isinstance(job, RigidJob | MoldableJob) and job.one_cluster:
        return False
    if isinstance(job, MoldableJob) and job.proc_gbps is None:
        return options.get("coallocate_moldable") is True
    return True


def smallest(item: Item) -> int:
    """Processes that an item needs at least."""
    source = item.task or item.job
    if isinstance(source, MoldableJob):
        return max(source.min_procs, offered(item, source.max_procs)[0][0])
    if isinstance(source, Task):
        return source.min_procs
    return source.procs if isinstance(source, RigidJob) else 1


def offered(item: Item, cap: int) -> list[Mode]:
    """Modes of at most `cap` processes, by rising count.

    What runs into its limit on full-speed nodes already runs for its limit on any. The kernels look
    at the limit again, for weaker nodes and for communication.
    """
    job, task = item.job, item.task
    if task is not None:
        high = min(task.max_procs, cap)
        if high < task.min_procs:
            return []
        fraction = task.parallel_fraction
        ladder = AmdahlSpeedup(time_1=1.0, parallel_fraction=1.0 if task.comm_gb else fraction)
        counts = [n for n, _ in allotments(ladder, task.min_procs, high)]
        return [
            (n, task.work * (1.0 - fraction + fraction / n), 0.0, 8.0 * task.comm_gb / n)
            for n in counts
        ]
    if isinstance(job, RigidJob):
        return [] if job.procs > cap else [rigid_mode(job)]
    if isinstance(job, MoldableJob):
        high = min(job.max_procs, cap)
        if high < job.min_procs:
            return []
        modes = allotments(job.speedup, job.min_procs, high)
        # Of those that all run into the limit only the fewest processes are of use.
        kept = (*modes[:1], *(mode for mode in modes[1:] if mode[1] < item.limit))
        return [_mode(n, time, job.sigma, item.limit) for n, time in kept]
    return []


def rigid_mode(job: RigidJob) -> Mode:
    """The only mode of a rigid job."""
    return _mode(job.procs, job.base_time, job.sigma, limit_of(job))


def limit_of(job: Job) -> float:
    """Seconds after which a job is killed; inf: never."""
    return inf if job.time_limit is None else job.time_limit


def _mode(procs: int, seconds: float, sigma: float, limit: float) -> Mode:
    if seconds >= limit:
        return procs, 0.0, limit, 0.0
    return procs, seconds * sigma, seconds * (1.0 - sigma), 0.0
