"""What the client hands back: frozen, typed, in the words of docs/PROTOCOL.md.

Times are wall-clock seconds since 1970 unless a name says otherwise. A field that a newer
daemon adds is ignored.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Submitted(Struct, frozen=True, kw_only=True):
    """A job is queued, and on the daemon's disk.

    Attributes
    ----------
    job : str
        Its number; of an array, the array's.
    jobs : tuple of str
        The job, or every member of the array.
    again : bool
        The token was known: this is the job of an earlier submit.
    token : str
        What a resend must carry to be the same job.
    warnings : tuple of str
        What of it was repaired; each names the job.
    """

    job: str
    jobs: tuple[str, ...]
    again: bool = False
    token: str = ""
    warnings: tuple[str, ...] = ()


class Progress(Struct, frozen=True, kw_only=True):
    """How far a workflow or a divisible job is.

    Attributes
    ----------
    total, completed, running, failed : int
        In all, and those that have completed, run now, have failed for good.
    unit : str
        What is counted: ``tasks`` or ``chunks``.
    """

    total: int
    completed: int = 0
    running: int = 0
    failed: int = 0
    unit: str = "tasks"


class MemberRow(Struct, frozen=True, kw_only=True):
    """What is run under a number of its own as part of a job.

    Attributes
    ----------
    id : str
        Of its record, such as ``17.3``.
    state : str
        As of a job.
    attempt, failures : int
        Starts tried; runs that have failed.
    planned : float
        Planned run time of the current attempt, seconds.
    """

    id: str
    state: str
    attempt: int = 0
    failures: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    planned: float = 0.0
    reason: str = ""
    detail: str = ""


class TaskRow(MemberRow, frozen=True, kw_only=True):
    """One task of a workflow.

    Attributes
    ----------
    task : str
        Its name in the workflow.
    state : str
        As of a job, or ``not_run``: it was never placed, and never will be.
    start_estimate : float or None
        When one that waits is expected to start.
    """

    task: str
    start_estimate: float | None = None


class PieceRow(MemberRow, frozen=True, kw_only=True):
    """One piece of a divisible job.

    Attributes
    ----------
    first, chunks : int
        Its first chunk, counted from 0, and how many it has.
    not_before : float or None
        Of one that waits to be tried again.
    """

    first: int
    chunks: int
    not_before: float | None = None


class QueueRow(Struct, frozen=True, kw_only=True):
    """One job of the queue.

    Attributes
    ----------
    state : str
        ``pending``, ``held``, ``preparing``, ``starting``, ``running``, ``completed``,
        ``failed``, ``cancelled``, ``timeout`` or ``lost``.
    procs : int
        Processes it uses, or asks for at the least.
    max_procs : int or None
        The most a moldable job can use.
    time_limit : float or None
        Seconds of run time.
    start_estimate : float or None
        When a waiting job is expected to start.
    reason, detail : str
        Why it waits or how it ended; the same in words.
    nodes : mapping of node name to processes
    clusters : tuple of str
        One for each part.
    skew_ms : float or None
        Between the first processes of its parts, milliseconds.
    origin, foreign : str
        The cluster in whose batch system it was submitted, and its id there; empty: here.
    task : str
        Of a task: its name in its workflow.
    progress : Progress or None
        Of a workflow or a divisible job.
    """

    id: str
    name: str
    user: str
    state: str
    procs: int
    submitted: float
    max_procs: int | None = None
    started: float | None = None
    ended: float | None = None
    time_limit: float | None = None
    start_estimate: float | None = None
    reason: str = ""
    detail: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    exit_code: int | None = None
    skew_ms: float | None = None
    origin: str = ""
    foreign: str = ""
    task: str = ""
    progress: Progress | None = None


class PartRow(Struct, frozen=True, kw_only=True):
    """What one cluster runs of a job."""

    cluster: str
    index: int
    nodes: dict[str, int]
    first_rank: int
    state: str
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    detail: str = ""


class JobDetails(QueueRow, frozen=True, kw_only=True):
    """Everything the daemon knows of a job but its environment.

    Attributes
    ----------
    job : mapping
        As planned, in the snapshot format.
    sources : mapping of field to origin
        Where base_time, speedup, sigma and proc_gbps came from: ``user``, ``defaults``,
        ``history``, ``time_limit`` or ``built-in``; ``speedup_fit`` and ``repaired`` are texts.
    launch : mapping
        ``argv``, ``script``, ``cwd``, ``stdout``, ``stderr``.
    needs : tuple of (kind, id)
    attempt : int
        Starts tried.
    planned : float
        Planned run time of the current attempt, seconds.
    link_gbps : mapping of cluster to Gbit/s
    retries, keep_going : int, bool
        Of a workflow or a divisible job: how often a failed task or piece is run again, and
        whether the others go on.
    tasks : tuple of TaskRow
        Of a workflow, in the order of its file.
    pieces : tuple of PieceRow
        Of a divisible job, those that were ever placed.
    chunk_first, chunks : int
        Of a piece: its first chunk, and how many it has.
    events : tuple of mapping
        ``seq``, ``time``, ``kind`` and what the event says, by rising ``seq``.
    """

    job: dict[str, Any]
    command: str = ""
    uid: int = -1
    gid: int = -1
    sources: dict[str, str] = field(default_factory=dict)
    launch: dict[str, Any] = field(default_factory=dict)
    needs: tuple[tuple[str, str], ...] = ()
    array_index: int | None = None
    parts: tuple[PartRow, ...] = ()
    attempt: int = 0
    refusals: int = 0
    planned: float = 0.0
    link_gbps: dict[str, float] = field(default_factory=dict)
    round: int = 0
    policy: str = ""
    cancelled_by: str = ""
    retries: int = 0
    keep_going: bool = False
    failures: int = 0
    chunk_first: int = 0
    chunks: int = 0
    tasks: tuple[TaskRow, ...] = ()
    pieces: tuple[PieceRow, ...] = ()
    events: tuple[dict[str, Any], ...] = ()


class Why(Struct, frozen=True, kw_only=True):
    """What keeps a job from starting.

    Attributes
    ----------
    facts : tuple of str
        Figures of the present state.
    lines : tuple of str
        The explanation in sentences, the most important first.
    explanation : mapping or None
        The same in figures, see docs/PROTOCOL.md.
    unexplained : str
        Why there is no explanation; empty where there is one, or the job does not wait.
    """

    job: str
    state: str
    reason: str
    detail: str
    start_estimate: float | None = None
    facts: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    explanation: dict[str, Any] | None = None
    unexplained: str = ""


class EndedJob(Struct, frozen=True, kw_only=True):
    """How a job ended."""

    id: str
    state: str
    exit_code: int | None = None
    detail: str = ""


class NodeRow(Struct, frozen=True, kw_only=True):
    """One node.

    Attributes
    ----------
    state : str
        ``up``, ``draining`` or ``down``.
    free : int
        Slots that could take a process now.
    power, raw_power : float
        As planned with, and as read, (0, 1].
    load : float
        Share taken by work that is not ours, 0..1.
    load_age_s : float
        How long ago that was measured, as far as is known, seconds.
    reason : str
        Why it takes no new work, in the batch system's words.
    """

    name: str
    state: str
    slots: int
    free: int
    power: float
    raw_power: float
    load: float
    load_age_s: float = 0.0
    reason: str = ""
    features: tuple[str, ...] = ()
    memory_mb: int | None = None


class ShareRow(Struct, frozen=True, kw_only=True):
    """The share of a cluster on which we go before local waiting jobs; local jobs of an hour.

    Attributes
    ----------
    nodes, kept : int
        At most so many at once, and so many now.
    local_jobs, delayed : int
        That waited, and that waited for us.
    delay_mean_s, delay_max_s : float
        Over all of `local_jobs`.
    delay_ratio : float
        Part of the time that they waited which is owed to us, 0..1.
    paused : str
        Why nothing is claimed at the moment.
    """

    nodes: int
    kept: int = 0
    local_jobs: int = 0
    delayed: int = 0
    delay_mean_s: float = 0.0
    delay_max_s: float = 0.0
    delay_ratio: float = 0.0
    paused: str = ""


class ClusterRow(Struct, frozen=True, kw_only=True):
    """One cluster with its nodes.

    Attributes
    ----------
    stale : bool
        The last reading is too old or there is none: it gets no new work.
    connected : bool
        Its executor is there.
    drain_reason : str
        As its operator gave it.
    error : str
        Why there is no newer reading.
    age_s : float or None
        Of the last reading, seconds.
    link_gbps : float or None
        Capacity of its link, Gbit/s; None is unlimited.
    waiting_there : int
        Jobs in the batch system's own queue.
    way : str
        How jobs get in beside local ones, in words.
    share : ShareRow or None
        None: they go before no waiting job.
    """

    cluster: str
    stale: bool
    connected: bool
    drained: bool
    nodes: tuple[NodeRow, ...]
    error: str = ""
    age_s: float | None = None
    link_gbps: float | None = None
    link_used_gbps: float = 0.0
    waiting_there: int = 0
    drain_reason: str = ""
    way: str = ""
    share: ShareRow | None = None


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """The newest plan.

    Attributes
    ----------
    plan : mapping
        In the plan format; empty where no round has been planned.
    time : float
        When its round began.
    node_clusters : mapping of node name to cluster name
    running : tuple of mapping
        What occupies nodes now: ``job``, ``task`` or None, ``start``, expected ``end``, ``nodes``.
    """

    plan: dict[str, Any] = field(default_factory=dict)
    round: int = 0
    time: float = 0.0
    node_clusters: dict[str, str] = field(default_factory=dict)
    running: tuple[dict[str, Any], ...] = ()


class Event(Struct, frozen=True, kw_only=True):
    """One entry of the numbered event stream."""

    seq: int
    time: float
    kind: str
    job: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


class Estimate(Struct, frozen=True, kw_only=True):
    """When a job would start if it were submitted now; nothing is queued."""

    start_estimate: float | None = None
    end_estimate: float | None = None
    nodes: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""


class SolverStatus(Struct, frozen=True, kw_only=True):
    """Whether the solver has all its code compiled; else how many of how many steps are done."""

    is_warm: bool = True
    done: int = 0
    steps: int = 0


class ServiceStatus(Struct, frozen=True, kw_only=True):
    """How the daemon is.

    Attributes
    ----------
    epoch : int
        Starts of the daemon on this store.
    rounds : int
        Planned so far.
    clusters : mapping of cluster to whether its executor is there
    writable : bool
        The store takes writes.
    faults : mapping of fault to count
        Malformed messages.
    orders_waiting : mapping of cluster to count
        Orders that its executor has not carried out yet.
    solver : SolverStatus
    """

    time: float
    user: str
    epoch: int
    rounds: int
    paused: bool
    waiting: int
    placed: int
    clusters: dict[str, bool] = field(default_factory=dict)
    writable: bool = True
    faults: dict[str, int] = field(default_factory=dict)
    orders_waiting: dict[str, int] = field(default_factory=dict)
    solver: SolverStatus = field(default_factory=SolverStatus)
    protocol: int = 1
