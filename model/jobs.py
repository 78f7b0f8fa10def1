"""Jobs: rigid, moldable, workflow, divisible."""

from __future__ import annotations

from math import ceil
from typing import Annotated

from msgspec import Meta, Struct

from coalloc.model.ranges import (
    Count,
    DataGb,
    EventTime,
    Gbps,
    Instant,
    MemoryMb,
    Name,
    Priority,
    Procs,
    Share,
    Span,
    TaskWork,
    Weight,
    Work,
)
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.speedup import Speedup


class JobFields(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Fields that all kinds of job have in common."""

    id: Name
    """Unique id."""
    submitted: Instant = 0.0
    """Submit time, s; default the snapshot's time."""
    earliest: Instant = 0.0
    """No start before, s; default submitted."""
    weight: Weight = 1.0
    """Weight in weighted completion."""
    time_limit: Span | None = None
    """Kill time, s by the clock: no run is planned longer, on nodes of any power."""
    sigma: Share = 1.0
    """Weight of processing against communication (sigma_j)."""
    clusters: tuple[str, ...] | None = None
    """Clusters that may run it; null any."""
    features: tuple[str, ...] = ()
    """Features every node must have."""
    memory_mb_per_proc: MemoryMb = 0
    """MiB per process."""
    shape: Shape = ONE_SLOT
    """What it asks of its nodes besides; without one, a process is a slot."""
    after: tuple[str, ...] = ()
    """Ids of jobs that must have ended."""
    held: bool = False
    """Not to be planned."""
    passed_over: Count = 0
    """Later jobs started while it waited."""
    priority: Priority = 0.0
    """Of jobs that waited too long, those with more go first."""


class RigidJob(JobFields, frozen=True, kw_only=True, tag="rigid", gc=False):
    """A job with a fixed number of processes."""

    procs: Procs
    """Number of processes (tau_j)."""
    base_time: Span
    """Run time on dedicated full-speed nodes, s (Tb_j); default the time limit."""
    proc_gbps: Gbps = 0.0
    """Peak bandwidth of one process in a communication phase, Gbit/s (PTBW_j)."""
    one_cluster: bool = False
    """Never split over several clusters."""


class MoldableJob(JobFields, frozen=True, kw_only=True, tag="moldable", gc=False):
    """A job whose number of processes is chosen when it starts."""

    speedup: Speedup
    """Speed-up model instead of times."""
    min_procs: Procs
    """Smallest allotment."""
    max_procs: Procs
    """Largest allotment."""
    proc_gbps: Gbps | None = None
    """As for rigid; absent: one cluster only."""
    one_cluster: bool = False
    """Never split over several clusters, also where a policy may split jobs of unknown traffic."""


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vertex of a workflow."""

    id: Name
    """Unique in its workflow."""
    work: TaskWork
    """Work, s on one full-speed node."""
    parallel_fraction: Share = 0.0
    """Share of the work that scales (pf)."""
    min_procs: Procs = 1
    """Smallest allotment."""
    max_procs: Procs = 1
    """Largest allotment; default min_procs."""
    comm_gb: DataGb = 0.0
    """All-to-all volume inside the task, GB."""
    shape: Shape | None = None
    """What it asks of its nodes; default its workflow's."""


class Edge(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"parent": "from", "child": "to"},
):
    """Data that a child task needs from a parent."""

    parent: Name
    """Parent task."""
    child: Name
    """Child task."""
    gb: DataGb = 0.0
    """Data, GB."""


class Started(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task of a workflow that runs or has run: it is planned no more, its children are."""

    task: Name
    """Task id; not one of `tasks`."""
    clusters: Annotated[tuple[Name, ...], Meta(min_length=1)]
    """Where it runs or ran."""
    end: EventTime
    """Known or expected end, s; it may lie in the past."""


class WorkflowJob(JobFields, frozen=True, kw_only=True, tag="workflow"):
    """Tasks with precedence, planned as a whole."""

    tasks: Annotated[tuple[Task, ...], Meta(min_length=1)]
    """Tasks that have not started."""
    edges: tuple[Edge, ...] = ()
    """Precedence with data; a parent is one of `tasks` or `started`, a child one of `tasks`."""
    started: tuple[Started, ...] = ()
    """Tasks that run or have run."""


class DivisibleJob(JobFields, frozen=True, kw_only=True, tag="divisible"):
    """Work that can be cut into chunks and fill idle time."""

    work: Work
    """Work, s on one full-speed node."""
    chunk_s: Span
    """Length of a chunk, s."""

    @property
    def chunks(self) -> int:
        """Chunks of the work; the last one may be shorter, and counts as a whole one."""
        whole = self.work / self.chunk_s
        return max(ceil(whole - CHUNK_SHARE * max(whole, 1.0)), 1)


def span(first: int, chunks: int) -> str:
    """Chunks in a row, as people read them."""
    return str(first) if chunks == 1 else f"{first}-{first + chunks - 1}"


CHUNK_SHARE = 1e-12
"""A last chunk of this share of the work is rounding."""
MOST_CHUNKS = 1_000_000_000
"""Chunks of one job at most."""
DEPENDENCY_KINDS = ("after", "afterok", "afterany", "afternotok", "aftercorr", "singleton")
"""`aftercorr` is `afterok` of the array's member with the same index; `singleton` is `afterany` of
every earlier job of the same user and name."""
Job = RigidJob | MoldableJob | WorkflowJob | DivisibleJob


def stays_whole(job: Job) -> bool:
    """Whether a parallel job may not be split over clusters."""
    if isinstance(job, MoldableJob) and job.proc_gbps is None:
        return True
    return isinstance(job, RigidJob | MoldableJob) and job.one_cluster
