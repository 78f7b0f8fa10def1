"""Jobs as the daemon describes them to clients, in the words of docs/PROTOCOL.md.

Times are wall-clock seconds since 1970 unless a name says otherwise.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of a workflow or a divisible job.

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
    start_early, start_late : float or None
        It starts between these nine times of ten, as far as that has been learnt.
    reason, detail : str
        Why it waits or how it ended; the same in words.
    nodes : mapping of node name to processes
    clusters : tuple of str
        One for each part.
    skew_ms : float or None
        Between the first processes of its parts, milliseconds.
    weight : float
        Its importance, which ``--priority`` sets.
    origin, foreign : str
        The cluster in whose batch system it was submitted, and its id there; empty: here.
    task : str
        Of a task: its name in its workflow.
    progress : Progress or None
        Of a workflow or a divisible job.
    project : str
        To which it is charged; empty: none.
    throttle : int
        Of a member of an array: so many of its members run at once, at the most; 0: all.
    finish_by : float or None
        The deadline that its user set.
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
    start_early: float | None = None
    start_late: float | None = None
    reason: str = ""
    detail: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    exit_code: int | None = None
    skew_ms: float | None = None
    weight: float = 1.0
    origin: str = ""
    foreign: str = ""
    task: str = ""
    progress: Progress | None = None
    project: str = ""
    throttle: int = 0
    finish_by: float | None = None


class MemberRow(Struct, frozen=True, kw_only=True):
    """A run under a number of its own, as part of a job.

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


class PartRow(Struct, frozen=True, kw_only=True):
    """The part of a job that one cluster runs.

    Attributes
    ----------
    index : int
        Counted from 0.
    nodes : mapping of node name to processes
        In rank order.
    first_rank : int
        Rank of its first process.
    state : str
        ``waiting``, ``preparing``, ``ready``, ``running``, ``finished``, ``refused`` or ``lost``.
    asked : float
        From when on its claim could be granted, seconds.
    granted : float or None
        When it was heard that it has its nodes, seconds.
    expected : float or None
        Of one that waits: when its batch system expects to start it, seconds.
    """

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
    asked: float = 0.0
    granted: float | None = None
    expected: float | None = None


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
    rendezvous : str
        host:port at which the ranks of the current attempt meet.
    attempt, refusals : int
        Starts tried; those refused in a row.
    not_before : float
        No new attempt before.
    planned : float
        Planned run time of the current attempt, seconds.
    link_gbps : mapping of cluster to Gbit/s
    deadline : float or None
        When an unfinished preparation is given up.
    flow : str
        Of a task or a piece: its workflow or divisible job.
    failures : int
        Of a task or a piece: runs that have failed.
    retries, keep_going : int, bool
        Of a workflow or a divisible job: how often a failed task or piece is run again, and
        whether the others go on.
    once : bool
        Its command is started once, not once for each process.
    tasks : tuple of TaskRow
        Of a workflow, in the order of its file.
    pieces : tuple of PieceRow
        Of a divisible job, those that were ever placed.
    chunk_first, chunks : int
        Of a piece: its first chunk, and how many it has.
    queued, arranged : bool
        The claims of this attempt may wait in the clusters' own queues; its parts were told of
        all nodes.
    idle_node_s : float
        Node-seconds held before its starts, in all attempts.
    late : tuple of cluster names
        Those that did not grant their part of the last attempt in time.
    barred : mapping of cluster name to reason
        Those that will not take it.
    batch : mapping of option to value
        What the batch systems are told.
    behind : str
        The cluster where other jobs went first.
    priority : float
        An operator's, in doublings of its weight.
    leaving : str
        The cluster that was asked to let its claim leave the queue; empty: none was.
    moves : int
        How often that was asked for.
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
    rendezvous: str = ""
    attempt: int = 0
    refusals: int = 0
    not_before: float = 0.0
    planned: float = 0.0
    link_gbps: dict[str, float] = field(default_factory=dict)
    round: int = 0
    policy: str = ""
    deadline: float | None = None
    cancelled_by: str = ""
    cancel_reason: str = ""
    skew_s: float | None = None
    retries: int = 0
    keep_going: bool = False
    once: bool = False
    failures: int = 0
    flow: str = ""
    chunk_first: int = 0
    chunks: int = 0
    queued: bool = False
    arranged: bool = False
    idle_node_s: float = 0.0
    late: tuple[str, ...] = ()
    behind: str = ""
    barred: dict[str, str] = field(default_factory=dict)
    priority: float = 0.0
    leaving: str = ""
    moves: int = 0
    batch: dict[str, str] = field(default_factory=dict)
    tasks: tuple[TaskRow, ...] = ()
    pieces: tuple[PieceRow, ...] = ()
    events: tuple[dict[str, Any], ...] = ()
