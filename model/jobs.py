"""Jobs: rigid, moldable, workflow, divisible."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from coalloc.model.speedup import Speedup


class JobFields(Struct, frozen=True, kw_only=True):
    """Fields that all kinds of job have in common.

    Attributes
    ----------
    id : str
    weight : float
        Importance in weighted completion time.
    submitted, earliest : float
        Seconds; the job may not start before `earliest`.
    time_limit : float or None
        Kill time, seconds of run time.
    sigma : float
        Weight of processing against communication, 0..1 (sigma_j).
    clusters : tuple of str or None
        The clusters that may run it; None is any.
    features : tuple of str
        Every node must have them all.
    memory_mb_per_proc : int
        MiB that each process needs.
    after : tuple of str
        Ids of jobs that must have ended.
    held : bool
        Not to be planned.
    passed_over : int
        How often a later job was started while this one waited.
    priority : float
        Of jobs that have waited too long, those with more go first.
    """

    id: str
    weight: float = 1.0
    submitted: float = 0.0
    earliest: float = 0.0
    time_limit: float | None = None
    sigma: float = 1.0
    clusters: tuple[str, ...] | None = None
    features: tuple[str, ...] = ()
    memory_mb_per_proc: int = 0
    after: tuple[str, ...] = ()
    held: bool = False
    passed_over: int = 0
    priority: float = 0.0


class RigidJob(JobFields, frozen=True, kw_only=True):
    """A job with a fixed number of processes.

    Attributes
    ----------
    procs : int
        Number of processes (tau_j).
    base_time : float
        Run time on dedicated full-speed nodes, seconds (Tb_j).
    proc_gbps : float
        Peak bandwidth of one process in a communication phase, Gbit/s (PTBW_j).
    one_cluster : bool
        Never split over several.
    """

    procs: int
    base_time: float
    proc_gbps: float = 0.0
    one_cluster: bool = False


class MoldableJob(JobFields, frozen=True, kw_only=True):
    """A job whose number of processes is chosen when it starts.

    Attributes
    ----------
    speedup : Speedup
        Time on n dedicated full-speed nodes.
    min_procs, max_procs : int
        Range of the choice.
    proc_gbps : float or None
        As for a rigid job; None keeps the job on one cluster.
    one_cluster : bool
        Never split over several, also where a policy may split jobs of unknown traffic.
    """

    speedup: Speedup
    min_procs: int
    max_procs: int
    proc_gbps: float | None = None
    one_cluster: bool = False


class Task(Struct, frozen=True, kw_only=True):
    """A vertex of a workflow.

    Attributes
    ----------
    work : float
        Seconds on one full-speed node.
    parallel_fraction : float
        Share of the work that scales (pf), 0..1.
    min_procs, max_procs : int
    comm_gb : float
        Volume of the all-to-all inside the task, gigabytes.
    """

    id: str
    work: float
    parallel_fraction: float = 0.0
    min_procs: int = 1
    max_procs: int = 1
    comm_gb: float = 0.0


class Edge(Struct, frozen=True, kw_only=True):
    """Data that a child task needs from a parent, gigabytes."""

    parent: str
    child: str
    gb: float = 0.0


class Started(Struct, frozen=True, kw_only=True):
    """A task of a workflow that runs or has run: it is planned no more, its children are.

    Attributes
    ----------
    task : str
    clusters : tuple of str
        Where it runs or ran.
    end : float
        Known or expected end, seconds; it may lie in the past.
    """

    task: str
    clusters: tuple[str, ...]
    end: float


class WorkflowJob(JobFields, frozen=True, kw_only=True):
    """Tasks with precedence, planned as a whole.

    Attributes
    ----------
    tasks : tuple of Task
        What has not started.
    edges : tuple of Edge
        A parent is one of `tasks` or `started`, a child one of `tasks`.
    started : tuple of Started
    """

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...] = ()
    started: tuple[Started, ...] = ()


class DivisibleJob(JobFields, frozen=True, kw_only=True):
    """Work that can be cut into chunks and fill idle time.

    Attributes
    ----------
    work : float
        Seconds on one full-speed node.
    chunk_s : float
        Length of one chunk, seconds.
    """

    work: float
    chunk_s: float

    @property
    def chunks(self) -> int:
        """Chunks of the work; the last one may be shorter, and counts as a whole one."""
        whole = self.work / self.chunk_s
        return max(ceil(whole - CHUNK_SHARE * max(whole, 1.0)), 1)


CHUNK_SHARE = 1e-12
"""A last chunk of this share of the work is rounding."""
MOST_CHUNKS = 1_000_000_000
"""Chunks of one job at most."""
Job = RigidJob | MoldableJob | WorkflowJob | DivisibleJob


def stays_whole(job: Job) -> bool:
    """Whether a parallel job may not be split over clusters."""
    if isinstance(job, MoldableJob) and job.proc_gbps is None:
        return True
    return isinstance(job, RigidJob | MoldableJob) and job.one_cluster
