"""Answers of the daemon to its clients: one type for both ends, in the words of docs/PROTOCOL.md.

Times are wall-clock seconds since 1970 unless a name says otherwise. A field that a newer daemon
adds is ignored; one that an older daemon does not send has a default.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from coalloc.model.sites.streams import StreamChunks
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow, ReservationRow


class Answer(Struct, frozen=True, kw_only=True, tag_field="type"):
    """An answer; its ``type`` is the tag of its class."""


class TimedAnswer(Answer, frozen=True, kw_only=True):
    """An answer that says when it was made."""

    time: float = 0.0
    """The daemon's clock."""


class Refusal(Answer, frozen=True, kw_only=True, tag="refused"):
    """The request was not carried out."""

    code: str
    """For programs."""
    message: str
    """One line for the user."""


class Submitted(Answer, frozen=True, kw_only=True, tag="done"):
    """A job is queued, and on the daemon's disk."""

    job: str
    """Its number; of an array, the array's."""
    jobs: tuple[str, ...]
    """The job, or the members of the array, ``NUMBER_INDEX``; of one that was submitted as a text,
    its number."""
    again: bool = False
    """The token was known: this is the job of an earlier submit."""
    token: str = ""
    """What a resend must carry to be the same job."""
    warnings: tuple[str, ...] = ()
    """What of the job was repaired, and what it asks for that is not enforced; absent where
    ``again`` is true."""


class Concerned(Answer, frozen=True, kw_only=True, tag="done"):
    """A command was carried out, and that is on the daemon's disk."""

    jobs: tuple[str, ...] = ()
    """Those that were cancelled, held, released or changed, members that are to follow
    as `12_[500-999]`; of other commands, none."""


class QueueAnswer(TimedAnswer, frozen=True, kw_only=True, tag="queue"):
    """A page of the queue."""

    jobs: tuple[QueueRow, ...]
    """*job rows* in arrival order, an array's members as they were named."""
    more: bool = False
    """There are others behind them: the client asks again, with the last id in ``after``."""


class ShowAnswer(TimedAnswer, frozen=True, kw_only=True, tag="show"):
    """One job."""

    job: JobDetails
    """A *job row* with the fields of *Job details* besides."""


class Why(Struct, frozen=True, kw_only=True):
    """The reason why a job does not start."""

    job: str
    """Its id."""
    state: str
    """As in a job row."""
    reason: str
    """In one word."""
    detail: str
    """In words."""
    start_estimate: float | None = None
    """Of the last round."""
    start_early: float | None = None
    """It starts from then on, and until ``start_late``, nine times of ten; null: not learnt yet."""
    start_late: float | None = None
    overdue_at: float | None = None
    """From then on it goes first; null: not known."""
    facts: tuple[str, ...] = ()
    """Figures of the present state."""
    lines: tuple[str, ...] = ()
    """The explanation in sentences, the most important first."""
    explanation: dict[str, Any] | None = None
    """The same in figures, see docs/PROTOCOL.md."""
    unexplained: str = ""
    """Why there is no explanation; empty where there is one, or the job does not wait."""


class WhyAnswer(TimedAnswer, frozen=True, kw_only=True, tag="why"):
    """The reason why one job does not start."""

    why: Why


class EndedJob(Struct, frozen=True, kw_only=True):
    """The end of a job."""

    id: str
    state: str
    """As in a job row."""
    exit_code: int | None = None
    """The same."""
    detail: str = ""
    """The same."""


class EndedAnswer(Answer, frozen=True, kw_only=True, tag="ended"):
    """The jobs that were waited for have ended."""

    jobs: tuple[EndedJob, ...]


class StreamAnswer(StreamChunks, Answer, frozen=True, kw_only=True, tag="stream"):
    """Output of a job's part, or how the job is."""

    state: str
    """As in a job row, like the next two."""
    exit_code: int | None = None
    detail: str = ""
    attempt: int = 0
    """Where it is another than was asked for, nothing was read: its streams begin anew."""
    parts: int = 0
    """How many it has."""
    stream: str = ""
    """As in ``submit``."""


class ReserveAnswer(Answer, frozen=True, kw_only=True, tag="done"):
    """Nodes are kept, and that is on the daemon's disk."""

    reservation: str
    """Its name."""
    nodes: tuple[str, ...]
    """Those that are kept."""
    running: tuple[str, ...] = ()
    """Jobs of other users that may still run there when it begins."""


class NodesAnswer(TimedAnswer, frozen=True, kw_only=True, tag="nodes"):
    """All clusters, and what is kept of their nodes."""

    clusters: tuple[ClusterRow, ...]
    reservations: tuple[ReservationRow, ...] = ()
    """What is kept of the nodes, below."""


class NewestPlan(Struct, frozen=True, kw_only=True):
    """A plan, and the round that made it."""

    round: int = 0
    time: float = 0.0
    """When the round began."""
    plan: dict[str, Any] = field(default_factory=dict)
    """In the plan format; empty where no round has been planned."""


class RunningRow(Struct, frozen=True, kw_only=True):
    """Work that occupies nodes now: a job, a task, a piece, or a batch system's own job."""

    job: str
    start: float
    end: float
    """As expected."""
    nodes: dict[str, int]
    """Processes on each node."""
    task: str | None = None
    """Null: none."""


class RuleCostRow(Struct, frozen=True, kw_only=True):
    """Cost of one rule in a round; all figures are null where they were not computed."""

    with_rule: float | None = None
    """Sum of weight times completion, in seconds from the round's begin, of the jobs that the plans
    with and without the rule both place; null in these fields: not computed."""
    without: float | None = None
    """The same in the plan without the rule."""
    cost: float | None = None
    """The difference; below 0 where the rule helps the other jobs."""
    bound: float | None = None
    """No plan without the rule is below it; null also where the plans place different jobs."""
    at_most: float | None = None
    """So the rule costs no more."""
    jobs: int | None = None
    """That both plans place, and that only the one without the rule does."""
    held: int | None = None
    """That only the plan without the rule places."""
    why: str = ""
    """Why nothing was computed."""


class RuleCostsRow(Struct, frozen=True, kw_only=True):
    """Costs of the rules in force in one round."""

    round: int
    time: float
    """When the round began."""
    policy: str
    """That made all plans."""
    spent_s: float
    """On the plans without the rules, after the round, seconds."""
    rules: dict[str, RuleCostRow]
    """Of each rule, and of ``guard`` where the policy has that, its cost, below."""


class PlanAnswer(TimedAnswer, frozen=True, kw_only=True, tag="plan"):
    """The newest plan, and what runs."""

    plan: NewestPlan
    node_clusters: dict[str, str] = field(default_factory=dict)
    """Each node's cluster."""
    edges: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Of each workflow in the plan, parents with their children."""
    running: tuple[RunningRow, ...] = ()
    """What occupies nodes now, the batch systems' own jobs included, below."""
    proc_gbps: dict[str, float] = field(default_factory=dict)
    """Bandwidth that one process needs, of rigid and moldable jobs in the plan or running that need
    any."""
    rules: tuple[str, ...] = ()
    """Of ``shares``, ``limits`` and ``guarantees`` those that are in force."""
    rule_costs: RuleCostsRow | None = None
    """Of the newest round for which they were computed, below; null: of none since the daemon's
    start."""


class Event(Struct, frozen=True, kw_only=True):
    """One entry of the numbered event stream."""

    seq: int
    """Rises by 1, also over restarts; by more where a backup was restored."""
    time: float
    kind: str
    """Below."""
    job: str = ""
    """Id, or ""."""
    fields: dict[str, Any] = field(default_factory=dict)


class EventsAnswer(TimedAnswer, frozen=True, kw_only=True, tag="events"):
    """Stored events by rising ``seq``, and the newest ``seq`` of all."""

    events: tuple[Event, ...]
    """By rising ``seq``, as in section 3 without ``watch_seq``."""
    last: int = 0
    """The newest ``seq`` of all."""


class SnapshotAnswer(Answer, frozen=True, kw_only=True, tag="snapshot"):
    """The input of a round that would begin now, in the snapshot format."""

    snapshot: dict[str, Any]
    """What a round that began now would be given, in the snapshot format."""


class Estimate(TimedAnswer, frozen=True, kw_only=True, tag="estimate"):
    """The start of a job if it were submitted now; nothing is queued."""

    start_estimate: float | None = None
    """Null: no start in the plan."""
    start_early: float | None = None
    """It starts from then on, and until ``start_late``, nine times of ten; null: not learnt yet."""
    start_late: float | None = None
    end_estimate: float | None = None
    """Of a workflow: that of its last task."""
    nodes: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    """Why there is no start."""
    detail: str = ""
    """In words."""


class BackupAnswer(Answer, frozen=True, kw_only=True, tag="backup"):
    """A copy of the store is on disk."""

    path: str
    """Of the file."""
    bytes: int
    """Its size."""
    seconds: float
    """How long it took."""


class SolverStatus(Struct, frozen=True, kw_only=True):
    """Whether the solver has all its code compiled; else how many of how many steps are done."""

    is_warm: bool = True
    """All its code is compiled; while it is not, ``plain`` plans."""
    done: int = 0
    """Steps of compiling that are over."""
    steps: int = 0
    """Of so many."""


class LastRound(Struct, frozen=True, kw_only=True):
    """The round that made the newest plan."""

    round: int
    time: float
    """When it began."""
    policy: str
    """That planned."""
    status: str
    """As in the plan format."""
    objective: str
    """Its name."""
    value: float
    """Reached, and what no plan can be below; None where none was sought."""
    bound: float | None = None
    """What no plan can be below."""
    elapsed_s: float | None = None
    """Of the solver, seconds."""


class Health(Struct, frozen=True, kw_only=True):
    """Figures of the service that its core does not know."""

    writable: bool = True
    """The store takes writes."""
    faults: dict[str, int] = field(default_factory=dict)
    """Malformed messages."""
    orders_waiting: dict[str, int] = field(default_factory=dict)
    """Orders that executors have not carried out, by cluster."""
    solver: SolverStatus = field(default_factory=SolverStatus)
    version: str = ""
    """Of the daemon."""
    began: float | None = None
    """When it was started."""
    policy: str = ""
    """That plans."""
    disk_free_bytes: int | None = None
    """Where the store is."""


class ServiceStatus(Health, Answer, frozen=True, kw_only=True, tag="status"):
    """State of the daemon."""

    time: float
    user: str
    """Whose requests these are."""
    epoch: int
    """Rises with each start of the daemon on this store, and far with a restored backup."""
    rounds: int
    """Planned so far."""
    paused: bool
    """Rounds are paused."""
    waiting: int
    """Jobs."""
    placed: int
    """Jobs that occupy nodes."""
    clusters: dict[str, bool] = field(default_factory=dict)
    """Whether each executor is connected."""
    protocol: int = 1
    """Version of this document."""
    last_round: LastRound | None = None
    """The round that made the newest plan, below."""
    read_age_s: dict[str, float] = field(default_factory=dict)
    """Age of its last reading; clusters that were never read are left out."""
    notices: tuple[str, ...] = ()
    """What keeps submits or plans from being as they should, a sentence each."""
