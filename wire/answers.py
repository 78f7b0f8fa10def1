"""Answers of the daemon to its clients: one type for both ends, in the words of docs/PROTOCOL.md.

Times are wall-clock seconds since 1970 unless a name says otherwise. A field that a newer daemon
adds is ignored; one that an older daemon does not send has a default.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow, ReservationRow
from coalloc.wire.rule_rows import RuleCostsRow


class Answer(Struct, frozen=True, kw_only=True, tag_field="type"):
    """An answer; its ``type`` is the tag of its class."""


class Refusal(Answer, frozen=True, kw_only=True, tag="refused"):
    """The request was not carried out.

    Attributes
    ----------
    code : str
        For programs.
    message : str
        One line for the user.
    """

    code: str
    message: str


class Submitted(Answer, frozen=True, kw_only=True, tag="done"):
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


class Concerned(Answer, frozen=True, kw_only=True, tag="done"):
    """A command was carried out, and that is on the daemon's disk.

    Attributes
    ----------
    jobs : tuple of str
        Those that were cancelled, held or released; of other commands, none.
    """

    jobs: tuple[str, ...] = ()


class QueueAnswer(Answer, frozen=True, kw_only=True, tag="queue"):
    """A page of the queue.

    Attributes
    ----------
    jobs : tuple of QueueRow
        In arrival order.
    more : bool
        There are others behind them.
    """

    jobs: tuple[QueueRow, ...]
    more: bool = False
    time: float = 0.0


class ShowAnswer(Answer, frozen=True, kw_only=True, tag="show"):
    """One job."""

    job: JobDetails
    time: float = 0.0


class Why(Struct, frozen=True, kw_only=True):
    """The reason why a job does not start.

    Attributes
    ----------
    start_early, start_late : float or None
        It starts between these nine times of ten, as far as that has been learnt.
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
    start_early: float | None = None
    start_late: float | None = None
    facts: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    explanation: dict[str, Any] | None = None
    unexplained: str = ""


class WhyAnswer(Answer, frozen=True, kw_only=True, tag="why"):
    """The reason why one job does not start."""

    why: Why
    time: float = 0.0


class EndedJob(Struct, frozen=True, kw_only=True):
    """The end of a job."""

    id: str
    state: str
    exit_code: int | None = None
    detail: str = ""


class EndedAnswer(Answer, frozen=True, kw_only=True, tag="ended"):
    """The jobs that were waited for have ended."""

    jobs: tuple[EndedJob, ...]


class Reservation(Answer, frozen=True, kw_only=True, tag="done"):
    """Nodes are kept, and that is on the daemon's disk.

    Attributes
    ----------
    running : tuple of str
        Jobs of other users that may still run there when it begins.
    """

    reservation: str
    nodes: tuple[str, ...]
    running: tuple[str, ...] = ()


class NodesAnswer(Answer, frozen=True, kw_only=True, tag="nodes"):
    """All clusters, and what is kept of their nodes."""

    clusters: tuple[ClusterRow, ...]
    reservations: tuple[ReservationRow, ...] = ()
    time: float = 0.0


class NewestPlan(Struct, frozen=True, kw_only=True):
    """A plan, and the round that made it.

    Attributes
    ----------
    plan : mapping
        In the plan format; empty where no round has been planned.
    time : float
        When the round began.
    """

    round: int = 0
    time: float = 0.0
    plan: dict[str, Any] = field(default_factory=dict)


class RunningRow(Struct, frozen=True, kw_only=True):
    """Work that occupies nodes now: a job, a task, a piece, or a batch system's own job.

    Attributes
    ----------
    end : float
        As expected.
    nodes : mapping of node name to processes
    """

    job: str
    start: float
    end: float
    nodes: dict[str, int]
    task: str | None = None


class PlanAnswer(Answer, frozen=True, kw_only=True, tag="plan"):
    """The newest plan, and what runs.

    Attributes
    ----------
    node_clusters : mapping of node name to cluster name
    edges : mapping of workflow to (parent, child) pairs
    proc_gbps : mapping of job to Gbit/s
        Bandwidth that one process needs, of jobs in the plan or running that need any.
    rules : tuple of str
        Of ``shares``, ``limits`` and ``guarantees`` those that are in force.
    rule_costs : RuleCostsRow or None
        Of the newest round for which they were computed; None: of none since the daemon's start.
    """

    plan: NewestPlan
    node_clusters: dict[str, str] = field(default_factory=dict)
    edges: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    running: tuple[RunningRow, ...] = ()
    proc_gbps: dict[str, float] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    rule_costs: RuleCostsRow | None = None
    time: float = 0.0


class Event(Struct, frozen=True, kw_only=True):
    """One entry of the numbered event stream."""

    seq: int
    time: float
    kind: str
    job: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


class EventsAnswer(Answer, frozen=True, kw_only=True, tag="events"):
    """Stored events by rising ``seq``, and the newest ``seq`` of all."""

    events: tuple[Event, ...]
    last: int = 0
    time: float = 0.0


class SnapshotAnswer(Answer, frozen=True, kw_only=True, tag="snapshot"):
    """The input of a round that would begin now, in the snapshot format."""

    snapshot: dict[str, Any]


class Estimate(Answer, frozen=True, kw_only=True, tag="estimate"):
    """The start of a job if it were submitted now; nothing is queued.

    Attributes
    ----------
    start_early, start_late : float or None
        It would start between these nine times of ten, as far as that has been learnt.
    """

    start_estimate: float | None = None
    start_early: float | None = None
    start_late: float | None = None
    end_estimate: float | None = None
    nodes: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""
    time: float = 0.0


class BackupAnswer(Answer, frozen=True, kw_only=True, tag="backup"):
    """A copy of the store is on disk."""

    path: str
    bytes: int
    seconds: float


class SolverStatus(Struct, frozen=True, kw_only=True):
    """Whether the solver has all its code compiled; else how many of how many steps are done."""

    is_warm: bool = True
    done: int = 0
    steps: int = 0


class LastRound(Struct, frozen=True, kw_only=True):
    """The round that made the newest plan.

    Attributes
    ----------
    time : float
        When it began.
    status, objective : str
        As in the plan format.
    value, bound : float
        Reached, and what no plan can be below; None where none was sought.
    elapsed_s : float or None
        Of the solver, seconds.
    """

    round: int
    time: float
    policy: str
    status: str
    objective: str
    value: float
    bound: float | None = None
    elapsed_s: float | None = None


class ServiceStatus(Answer, frozen=True, kw_only=True, tag="status"):
    """State of the daemon.

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
    version : str
        Of the daemon.
    began : float or None
        When it was started.
    policy : str
        That plans.
    last_round : LastRound or None
    read_age_s : mapping of cluster to seconds
        Age of its last reading; clusters that were never read are left out.
    disk_free_bytes : int or None
        Where the store is.
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
    version: str = ""
    began: float | None = None
    policy: str = ""
    last_round: LastRound | None = None
    read_age_s: dict[str, float] = field(default_factory=dict)
    disk_free_bytes: int | None = None
