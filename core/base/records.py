"""Records of jobs and parts, as the daemon keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import inf

from msgspec import Struct, field

from coalloc.model.cost import shortest_time
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.mail import Addresses
from coalloc.model.sites.batch_options import PLAIN, BatchOptions
from coalloc.model.sites.parts import PartState, PartStatus
from coalloc.model.sites.staging import Copies
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


REQUEUED = "requeued"
"""Reason of a part that ended: the batch system that handed its job over has it in its queue again.
"""


class PartRecord(PartStatus, frozen=True, kw_only=True, omit_defaults=True):
    """One cluster's part of a job."""

    cluster: str
    index: int
    """Counted from 0."""
    nodes: Mapping[str, int]
    """Processes on each node, in rank order."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Slots that they take of each, where that is not one for each process."""
    first_rank: int
    """Rank of its first process."""
    state: PartState = PartState.PREPARING
    """As in a *part report*."""
    sent: float = 0.0
    """When its claim was sent to wait beside those of its job's other parts, seconds."""
    asked: float = 0.0
    """From when on its claim could be granted, seconds."""
    ahead: int = 0
    """Jobs in the cluster's queue, ours and others, when it was asked for."""
    was_put_off: bool = False
    """It was asked for a later begin than at once."""
    was_hastened: bool = False
    """It has been told not to wait for that begin."""
    granted: float | None = None
    """When it was heard that it has its nodes, seconds."""
    rendezvous: str = ""
    """Of a sibling: host:port at which its ranks meet."""
    planned: float = 0.0
    """Of a sibling: planned run time on its nodes, seconds."""

    @property
    def held(self) -> Mapping[str, int]:
        """Slots of each of its nodes."""
        return self.slots or self.nodes

    @property
    def is_put_off(self) -> bool:
        """It keeps its place in a queue, and does not take its turn yet."""
        return self.was_put_off and self.granted is None and not self.was_hastened

    @property
    def is_waiting(self) -> bool:
        """It was sent into a queue and holds no nodes, as far as was heard."""
        is_queued = self.state is PartState.PREPARING and self.expected is not None
        return self.state is PartState.WAITING or (is_queued and self.granted is None)


class Cancellation(Struct, frozen=True, kw_only=True):
    """Request to end a job."""

    user: str
    reason: str = ""
    """For the record; empty: none was given."""

    @property
    def words(self) -> str:
        """One line for people."""
        return f"cancelled by {self.user}" + (f": {self.reason}" if self.reason else "")


class SubmitOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a submit that the job's record keeps as they were given."""

    name: str = ""
    """Empty: the command's name."""
    needs: tuple[tuple[str, str], ...] = ()
    """Dependencies on jobs or arrays: ``afterok``, ``afternotok``, ``afterany`` (ended so),
    ``after`` (started or ended; ``after+5``: five minutes ago), ``aftercorr`` (the array's member
    of the same index has completed), ``singleton`` with "" (the user's other jobs of this name
    have ended). Of those with a question mark, as ``afterok?``, one is enough."""
    retries: int = 0
    """Of a divisible job: how often a piece that has failed is run again; others are refused."""
    keep_going: bool = False
    """Of a divisible job: after a failure, run the other chunks; others are refused."""
    requeue: bool = False
    """Run it again, from its beginning, where a batch system has preempted a part of it."""
    once: bool = False
    """Of a rigid or moldable job: start its command once, in the place of its first process, while
    it holds the slots of all; others are refused. The daemon sets the job's ``one_cluster``."""
    stream: str = ""
    """Of a rigid or moldable job, no array: ``pipes``, its output goes to its client alone, or
    ``pty``, its one command (``once``) has a terminal there; empty: to files. It is cancelled when
    its client was not heard of for 60 s."""
    batch: BatchOptions = PLAIN
    """What the batch systems are told, as in sbatch: ``account``, ``qos``, ``partition``,
    ``constraint``, ``reservation``, ``licenses``; ``passed`` lists options that only the batch
    system of a job's one cluster judges, as they were written. A cluster that cannot honour one of
    them does not take the job."""
    throttle: int = 0
    """Of an array: so many of its members are placed at once, at the most; 0: all."""
    finish_by: float | None = None
    """Its deadline, seconds since 1970: it starts only if it can end by then; ``cancelled`` with
    reason ``deadline`` once it cannot."""
    mail_type: tuple[str, ...] = ()
    """Events of which mail is sent, as of sbatch, where the daemon's ``notify.user_mail`` is on:
    ``BEGIN END FAIL REQUEUE INVALID_DEPEND TIME_LIMIT``, ``TIME_LIMIT_90`` and its kin; of an
    array, its first start and its last end, or with ``ARRAY_TASKS`` each member's."""
    mail_user: Addresses = ""
    """To whom, with commas between them; empty: the user's own."""
    stage_in: Copies = ()
    """Of a rigid or moldable job, no array: what its user's executors copy to each cluster that may
    run it, before it waits for nodes there: absolute path here, path below its folder there."""
    stage_out: Copies = ()
    """The same back, after its end. ``%j`` is the job, and there the last name may be a pattern."""

    @property
    def is_staged(self) -> bool:
        """It runs in a folder of its own, with data that are copied."""
        return bool(self.stage_in or self.stage_out)


class JobSummary(SubmitOptions, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of a job's record that its row in the queue shows too."""

    id: str
    """``NUMBER``, or ``NUMBER_INDEX`` in an array."""
    user: str
    state: JobState = JobState.PENDING
    """``pending held preparing starting running completed failed cancelled timeout lost``."""
    submitted: float = 0.0
    started: float | None = None
    """Its last part's first process."""
    ended: float | None = None
    exit_code: int | None = None
    """Highest of its processes; 128 + signal where one was killed."""
    reason: str = ""
    """Why it waits or how it ended, in one word."""
    detail: str = ""
    """The same in words."""
    origin: str = ""
    """The cluster in whose batch system its user submitted it; empty: it was submitted here."""
    foreign: str = ""
    """Its id there."""
    task: str = ""
    """Of a task: its name in the workflow."""


class ArrayRest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Members of a long array that are not in the queue, and the ends of all of them."""

    indices: str
    """Not yet in the queue, as ranges: ``5000-999999``."""
    left: int
    """How many these are."""
    members: int
    """Of the whole array."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """Members that have ended, by state."""


class JobRecord(JobSummary, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One submitted job; its JSON is the text that the store keeps.

    Nothing in it refers back to it, so that the collector need not look at 100,000 of them.
    """

    job: Job
    """As planned, in the snapshot format."""
    uid: int = -1
    """Whose processes they are; -1: not known."""
    gid: int = -1
    command: str = ""
    """Under which its run times are remembered."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where ``base_time``, ``speedup``, ``sigma``, ``proc_gbps`` and ``time_limit`` came from:
    ``user``, ``defaults``, ``history``, ``time_limit`` or ``built-in``; besides, ``speedup_fit``
    says what a speed-up was fitted to, and ``repaired`` what of one that was given."""
    array_index: int | None = None
    """Of a member of an array."""
    rest: ArrayRest | None = None
    """Of an array of more than 1,000 members as a whole, whose id is ``NUMBER_``."""
    attempt: int = 0
    """Starts tried; fences messages of earlier ones."""
    reserved: int = 0
    """Highest attempt that an executor knows and this store, an older copy, did not; the next is
    higher."""
    refusals: int = 0
    """Refused attempts in a row; sets the back-off."""
    not_before: float = 0.0
    """No new attempt before this time, seconds."""
    parts: tuple[PartRecord, ...] = ()
    """Below."""
    rendezvous: str = ""
    """host:port at which the ranks of the current attempt meet."""
    planned: float = 0.0
    """Planned run time of the current attempt, seconds."""
    pack: str = ""
    """Of a member of an array that was taken ahead, or is the first of such: id and attempt of the
    first, in whose runner it is, with a colon between them."""
    link_gbps: Mapping[str, float] = field(default_factory=dict)
    """Bandwidth that the current attempt takes of each cluster's link, Gbit/s."""
    round: int = 0
    """That placed it."""
    policy: str = ""
    """That placed it."""
    deadline: float | None = None
    """When an unfinished preparation is given up, seconds."""
    cancelled_by: str = ""
    """The user who asked for its end; empty: none."""
    cancel_reason: str = ""
    """As given with ``cancel``; ``detail`` of the job has it, too."""
    skew_s: float | None = None
    """Between the first processes of its parts."""
    flow: str = ""
    """Of a task: the id of its workflow; of a piece: the id of its divisible job."""
    failures: int = 0
    """Of a task or a piece: runs that have failed."""
    chunk_first: int = 0
    """Of a piece of a divisible job: its first chunk, counted from 0."""
    chunks: int = 0
    """Of the same: how many it has; 0: it is no piece."""
    queued: bool = False
    """The claims of this attempt may wait in the clusters' own queues; the job is then
    ``preparing``, with reason ``others_first`` and a ``start_estimate``."""
    arranged: bool = False
    """Its parts have been told of all their nodes."""
    idle_node_s: float = 0.0
    """Node-seconds that were held before a start, or in vain, in all attempts."""
    late: tuple[str, ...] = ()
    """Clusters that did not grant their part of the last attempt in time."""
    behind: str = ""
    """The cluster that refused the last attempt until other jobs have started or ended there."""
    siblings: int = 0
    """Its parts are alternatives, each the whole job in another cluster: the first that is ready
    runs, and the others are withdrawn. So many were sent in this attempt; 0: they are parts of one.
    """
    dropped: Mapping[str, float | None] = field(default_factory=dict)
    """Clusters that gave this attempt's sibling up, and from when on another may be sent, seconds;
    null: it has not said yet that the former is gone."""
    barred: Mapping[str, str] = field(default_factory=dict)
    """Clusters that will not take it, each with the reason."""
    priority: float = 0.0
    """An operator's, in doublings of its weight."""
    staged: Mapping[str, str] = field(default_factory=dict)
    """Clusters on which it may have a folder with its data, and which; empty: not all are there."""
    clock_before_s: float = 0.0
    """By how much the clock had been set, in sum, when it was submitted, seconds."""
    clock_set_s: float = 0.0
    """By how much it was set from then to the start, seconds: that is no wait."""

    @property
    def array(self) -> str:
        """Number of the array of which it is a member, or the whole; empty: of none."""
        number, mark, _ = self.id.partition("_")
        return number if mark else ""

    @property
    def shown_id(self) -> str:
        """Its id for people: ``12_[5000-999999%5]`` of what of a long array is to follow."""
        if self.rest is None:
            return self.id
        throttle = f"%{self.throttle}" if self.throttle else ""
        return f"{self.id}[{self.rest.indices}{throttle}]" if self.rest.left else self.array

    @property
    def eligible(self) -> float:
        """Time at which it could have started first, by the clock of its start, seconds."""
        return max(self.submitted, self.job.earliest) + self.clock_set_s

    @property
    def run_limit(self) -> float | None:
        """Time limit of the whole, seconds; that of a workflow or divisible job is of each part."""
        return self.job.time_limit if isinstance(self.job, RigidJob | MoldableJob) else None

    @property
    def latest_start(self) -> float:
        """Latest start by its deadline, by its time limit or shortest run time, seconds."""
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
        """Processes on each node of its parts, in rank order; of siblings, of the first one."""
        parts = self.parts[:1] if self.siblings else self.parts
        return {node: count for part in parts for node, count in part.nodes.items()}

    @property
    def clusters(self) -> tuple[str, ...]:
        """One for each part."""
        return tuple(part.cluster for part in self.parts)

    @property
    def placed_procs(self) -> int:
        """Processes of all its parts; of siblings, of the largest."""
        each = [sum(part.nodes.values()) for part in self.parts]
        return max(each, default=0) if self.siblings else sum(each)

    @property
    def placed_slots(self) -> int:
        """Slots of all its parts; of siblings, of the largest."""
        each = [sum(part.held.values()) for part in self.parts]
        return max(each, default=0) if self.siblings else sum(each)

    @property
    def claims(self) -> tuple[tuple[str, str], ...]:
        """Those of its parts that wait in queues: cluster and user of each."""
        return tuple((part.cluster, self.user) for part in self.parts if part.is_waiting)

    @property
    def meeting_places(self) -> frozenset[str]:
        """Meeting places of its ranks, or of those of its siblings."""
        places = (self.rendezvous, *(part.rendezvous for part in self.parts))
        return frozenset(place for place in places if place)

    @property
    def is_pack_first(self) -> bool:
        """The others of its pack are prepared and started with it."""
        return self.pack == f"{self.id}:{self.attempt}"

    @property
    def is_meeting(self) -> bool:
        """Its parts take their turns in queues, and hold their nodes for each other."""
        is_tried = self.queued and self.state is JobState.PREPARING and not self.siblings
        return is_tried and len(self.parts) > 1

    @property
    def is_in_queues(self) -> bool:
        """A whole job of ours that only waits in the clusters' queues: nothing was granted yet."""
        is_ours = self.queued and not self.flow and not self.foreign
        return (
            is_ours
            and self.state is JobState.PREPARING
            and all(part.is_waiting and part.granted is None for part in self.parts)
        )

    @property
    def is_waiting(self) -> bool:
        """Pending or held."""
        return self.state in WAITING

    @property
    def is_placed(self) -> bool:
        """Occupies nodes, which of a long array its members do."""
        return self.state in PLACED and self.rest is None

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
            siblings=0,
            dropped={},
            pack="",
        )

    def alone(self, part: PartRecord) -> JobRecord:
        """The job as it is with this one of its siblings and no others."""
        job, limit = self.job, part.time_limit
        return replace(
            self,
            job=job if limit is None else replace(job, time_limit=limit),
            parts=(part,),
            siblings=0,
            dropped={},
            rendezvous=part.rendezvous,
            planned=part.planned,
        )

    def opens(self, now: float) -> float:
        """Time from which it may start; now, where the clock was set back since its submit."""
        job = self.job
        return now if job.earliest <= job.submitted > now else job.earliest
