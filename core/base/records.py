"""Records of jobs and parts, as the daemon keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import NamedTuple

from msgspec import Struct, field

from coalloc.model.batch_options import PLAIN, BatchOptions
from coalloc.model.cost import shortest_time
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.parts import PartState
from coalloc.model.values import replace


class JobState(StrEnum):
    """Stage of a job between submit and end."""

    PENDING = "pending"
    HELD = "held"
    PREPARING = "preparing"
    """Committed; its executors claim their nodes."""
    STARTING = "starting"
    """Every part was ready; the start is decided and will not be decided again."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST = "lost"


WAITING = frozenset({JobState.PENDING, JobState.HELD})
NOT_STARTED = WAITING | {JobState.PREPARING}
PLACED = frozenset({JobState.PREPARING, JobState.STARTING, JobState.RUNNING})
ENDED = frozenset(
    {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT, JobState.LOST}
)


CANCELLED_THERE = "cancelled_there"
"""Its user, or an administrator, ended it in the batch system."""
REQUEUED = "requeued"
"""Reason of a part that ended: the batch system that handed its job over has it in its queue again.
"""


class PartRecord(Struct, frozen=True, kw_only=True):
    """One cluster's part of a job.

    Attributes
    ----------
    nodes : mapping of node name to processes
        In rank order.
    first_rank : int
    exit_code : int or None
        Highest of its processes; 128 + signal where one was killed.
    started, ended : float or None
        Wall-clock seconds, of the first process and of the last.
    reason, detail : str
        Why it ended, where that is not a plain exit; of one that waits, what it waits for.
    asked : float
        From when on its claim could be granted, seconds.
    ahead : int
        Jobs in the cluster's queue, ours and others, when it was asked for.
    was_put_off : bool
        It was asked for a later begin than at once.
    was_hastened : bool
        It has been told not to wait for that begin.
    granted : float or None
        When it was heard that it has its nodes, seconds.
    expected : float or None
        Of one that waits: when its batch system expects to start it, seconds.
    cpu_s, max_rss_mb : float or None
        CPU time of its processes, memory of the largest; None: not known.
    """

    cluster: str
    index: int
    nodes: Mapping[str, int]
    first_rank: int
    state: PartState = PartState.PREPARING
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    detail: str = ""
    asked: float = 0.0
    ahead: int = 0
    was_put_off: bool = False
    was_hastened: bool = False
    granted: float | None = None
    expected: float | None = None
    cpu_s: float | None = None
    max_rss_mb: float | None = None

    @property
    def is_waiting(self) -> bool:
        """It was sent into a queue and holds no nodes, as far as was heard."""
        is_queued = self.state is PartState.PREPARING and self.expected is not None
        return self.state is PartState.WAITING or (is_queued and self.granted is None)


class Cancellation(Struct, frozen=True, kw_only=True):
    """Request to end a job.

    Attributes
    ----------
    reason : str
        For the record; empty: none was given.
    """

    user: str
    reason: str = ""

    @property
    def words(self) -> str:
        """One line for people."""
        return f"cancelled by {self.user}" + (f": {self.reason}" if self.reason else "")


class JobRecord(Struct, frozen=True, kw_only=True):
    """One submitted job.

    Attributes
    ----------
    job : Job
        What the planner sees.
    name, user : str
    uid, gid : int
        Whose processes they are.
    sources : mapping of field to origin
        Where base_time, sigma and proc_gbps came from.
    needs : tuple of (kind, id)
        Dependencies: ``afterok``, ``afterany``, ``afternotok``.
    attempt : int
        Starts tried; fences messages of earlier ones.
    refusals : int
        Refused attempts in a row; sets the back-off.
    not_before : float
        No new attempt before this time, seconds.
    rendezvous : str
        host:port at which the ranks of the current attempt meet.
    planned : float
        Planned run time of the current attempt, seconds.
    deadline : float or None
        When an unfinished preparation is given up, seconds.
    cancelled_by : str
        Who asked for the end of it; empty when nobody.
    cancel_reason : str
        The reason that he gave.
    skew_s : float or None
        Between the first processes of its parts.
    origin : str
        The cluster in whose batch system its user submitted it; empty: it was submitted here.
    foreign : str
        Its id there.
    flow : str
        Of a task: the id of its workflow; of a piece: the id of its divisible job.
    task : str
        Of a task: its name in the workflow.
    retries : int
        Of a workflow or a divisible job: how often what has failed of it is run again.
    keep_going : bool
        Of the same: after a failure, run what does not depend on it.
    requeue : bool
        It runs again where a batch system has preempted it.
    once : bool
        Its command is started once, not once for each process.
    failures : int
        Of a task or a piece: runs that have failed.
    chunk_first, chunks : int
        Of a piece of a divisible job: its first chunk, counted from 0, and how many it has.
        0 chunks: it is no piece.
    queued : bool
        The claims of the current attempt may wait in the batch systems' queues.
    arranged : bool
        Its parts have been told of all their nodes.
    idle_node_s : float
        Node-seconds that were held before a start, or in vain, in all attempts.
    late : tuple of cluster names
        Those that did not grant their part of the last attempt in time.
    behind : str
        The cluster that refused the last attempt because other jobs go first there.
    leaving : str
        The cluster that was asked to let the current attempt leave its queue; empty: none was.
    moves : int
        How often that was asked for.
    barred : mapping of cluster name to reason
        Those that will not take it.
    priority : float
        An operator's, in doublings of its weight.
    batch : BatchOptions
        What the batch systems are told, as its user said it.
    throttle : int
        Of a member of an array: so many of its members are placed at once, at the most. 0: all.
    finish_by : float or None
        The deadline that its user set, seconds: it starts only if it can end by then.
    """

    id: str
    job: Job
    name: str
    user: str
    uid: int = -1
    gid: int = -1
    command: str = ""
    submitted: float = 0.0
    state: JobState = JobState.PENDING
    sources: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[tuple[str, str], ...] = ()
    array_index: int | None = None
    attempt: int = 0
    refusals: int = 0
    not_before: float = 0.0
    parts: tuple[PartRecord, ...] = ()
    rendezvous: str = ""
    planned: float = 0.0
    link_gbps: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    policy: str = ""
    deadline: float | None = None
    cancelled_by: str = ""
    cancel_reason: str = ""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    skew_s: float | None = None
    reason: str = ""
    detail: str = ""
    origin: str = ""
    foreign: str = ""
    flow: str = ""
    task: str = ""
    retries: int = 0
    keep_going: bool = False
    requeue: bool = False
    once: bool = False
    failures: int = 0
    chunk_first: int = 0
    chunks: int = 0
    queued: bool = False
    arranged: bool = False
    idle_node_s: float = 0.0
    late: tuple[str, ...] = ()
    behind: str = ""
    leaving: str = ""
    moves: int = 0
    barred: Mapping[str, str] = field(default_factory=dict)
    priority: float = 0.0
    batch: BatchOptions = PLAIN
    throttle: int = 0
    finish_by: float | None = None

    @property
    def array(self) -> str:
        """Number of the array of which it is a member; empty: of none."""
        return "" if self.array_index is None else self.id.partition("_")[0]

    @property
    def run_limit(self) -> float | None:
        """Time limit of the whole, seconds; that of a workflow or divisible job is of each part."""
        return self.job.time_limit if isinstance(self.job, RigidJob | MoldableJob) else None

    @property
    def latest_start(self) -> float:
        """The last time at which it may start to end by its deadline, seconds.

        Its run counts as long as its time limit, or as it takes at the least.
        """
        if self.finish_by is None:
            return inf
        limit = self.run_limit
        return self.finish_by - (shortest_time(self.job) if limit is None else limit)

    @property
    def cancellation(self) -> Cancellation:
        """User who has asked for its end, and the reason."""
        return Cancellation(user=self.cancelled_by, reason=self.cancel_reason)

    @property
    def account(self) -> str:
        """To which its use is charged; empty: not said."""
        return self.batch.account

    @property
    def nodes(self) -> dict[str, int]:
        """Processes on each node of its parts, in rank order."""
        return {node: count for part in self.parts for node, count in part.nodes.items()}

    @property
    def placed_procs(self) -> int:
        """Processes of all its parts."""
        return sum(sum(part.nodes.values()) for part in self.parts)

    @property
    def is_waiting(self) -> bool:
        """Pending or held."""
        return self.state in WAITING

    @property
    def is_placed(self) -> bool:
        """Occupies nodes."""
        return self.state in PLACED

    @property
    def is_ended(self) -> bool:
        """Terminal."""
        return self.state in ENDED

    def unplaced(self) -> JobRecord:
        """The job as it waits again, with nothing left of its last attempt."""
        return replace(
            self,
            state=JobState.PENDING,
            parts=(),
            link_gbps={},
            deadline=None,
            started=None,
            queued=False,
            arranged=False,
            late=(),
            behind="",
            leaving="",
        )

    def opens(self, now: float) -> float:
        """Time from which it may start; now, where the clock was set back since its submit."""
        job = self.job
        return now if job.earliest <= job.submitted > now else job.earliest


class Wait(NamedTuple):
    """Wait of a claim for its turn.

    Attributes
    ----------
    seconds : float
        From when on it could be granted.
    ahead : int
        Jobs that were in the queue before it.
    was_put_off : bool
        It had kept its place since before that.
    width : float
        Nodes that it asked for.
    """

    seconds: float
    ahead: int = 0
    was_put_off: bool = False
    width: float = 1.0


class Outlook(Struct, frozen=True, kw_only=True):
    """The latest round's answer for a waiting job; not persistent."""

    round: int
    start: float | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""


class Launch(Struct, frozen=True, kw_only=True):
    """A job's command; the core passes it on without looking inside."""

    argv: tuple[str, ...]
    script: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    stdout: str = ""
    stderr: str = ""
