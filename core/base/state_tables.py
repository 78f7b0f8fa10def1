"""Groups of what the daemon's core remembers beside its jobs, each with its own few rules.

Mutable like the state that holds them (`core.base.state`), and changed by the core alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec import field as struct_field

from coalloc.core.base.plan_order import PlanOrder, Precedence
from coalloc.core.base.projects import ProjectTree, ProjectUser, Usage
from coalloc.core.base.records import NOT_STARTED, JobRecord, JobState
from coalloc.core.base.round_control import Aside
from coalloc.core.base.speedup_fit import SizedRun
from coalloc.core.base.start_intervals import Calibration, Promise
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.plan import Deferred, Placement, Plan
from coalloc.model.ranges import EVENT


class ClaimWait(NamedTuple):
    """Wait of a claim for its turn."""

    seconds: float
    """From when on it could be granted."""
    ahead: int = 0
    """Jobs that were in the queue before it."""
    was_put_off: bool = False
    """It had kept its place since before that."""
    width: float = 1.0
    """Nodes that it asked for."""


class Outlook(Struct, frozen=True, kw_only=True, gc=False):
    """The latest round's answer for a waiting job; not persistent."""

    start: float | None = None
    nodes: Mapping[str, int] = struct_field(default_factory=dict)
    reason: str = ""
    detail: str = ""


@dataclass(slots=True)
class LastNumbers:
    """The numbers that were given last."""

    job: int = 0
    event: int = 0
    round: int = 0


@dataclass(slots=True)
class PendingCount:
    """Size of the queue: pending jobs only, since one that is held asks for no round."""

    jobs: int = 0
    procs: int = 0
    entries: Counter[str] = field(default_factory=Counter)
    """By user: what waits, held jobs too; an array is one entry while a member of it waits."""
    members: Counter[str] = field(default_factory=Counter)
    """By array: members that wait; under "" all else that waits."""
    held: Counter[str] = field(default_factory=Counter)
    """Of these, those that are held."""
    behind: int = 0
    """Members of long arrays that wait and are not in the queue yet."""

    def count(self, record: JobRecord, sign: int) -> None:
        """Add a record, or take it away (`sign` -1); tasks and pieces are part of theirs."""
        if record.flow or not record.is_waiting:
            return
        self.members[record.array] += sign
        left = self.members[record.array]
        if not record.array or left == max(sign, 0):
            self.entries[record.user] += sign
        if record.state is JobState.HELD:
            self.held[record.array] += sign
        if not left:
            del self.members[record.array]
            self.held.pop(record.array, None)
        if record.rest is not None:
            self.behind += sign * record.rest.left
        elif record.state is JobState.PENDING:
            self.jobs += sign
            self.procs += sign * narrowest(record.job)


class Reserved(Struct, frozen=True, kw_only=True):
    """Nodes kept for the jobs of some users in [start, end)."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float = EVENT.high
    """Seconds since the epoch; one without an end lasts until it is taken back."""
    users: tuple[str, ...] = ()
    """Empty: for nobody."""
    by: str = ""
    reason: str = ""
    """Who made it, and why."""


@dataclass(slots=True)
class Maintenance:
    """Nodes that operators keep from jobs."""

    drained: dict[str, str] = field(default_factory=dict)
    """Clusters and nodes that are drained, with the reason given."""
    reserved: dict[str, Reserved] = field(default_factory=dict)
    """Reservations of operators, by name."""
    reserved_due: float | None = None
    """When the first of them ends, and we are called."""


@dataclass(slots=True)
class Marked:
    """Waiting jobs of which rounds and ticks need not look at all."""

    backing_off: set[str] = field(default_factory=set)
    """Those that are not tried again before a time of their own."""
    prioritised: set[str] = field(default_factory=set)
    """Those to which an operator has given a priority."""
    throttled: set[str] = field(default_factory=set)
    """Members of arrays of which only so many run at once."""
    staging: dict[str, None] = field(default_factory=dict)
    """Jobs with data on clusters, or that are to have them there, in their order."""

    def follow(self, record: JobRecord, *, is_planned: bool) -> None:
        for marked, belongs in (
            (self.prioritised, record.priority),
            (self.throttled, record.throttle),
        ):
            if belongs and is_planned:
                marked.add(record.id)
            else:
                marked.discard(record.id)
        if record.staged or (record.is_staged and not record.is_ended):
            self.staging[record.id] = None
        else:
            self.staging.pop(record.id, None)

    def forget(self, job: str) -> None:
        for marked in (self.backing_off, self.prioritised, self.throttled):
            marked.discard(job)
        self.staging.pop(job, None)


@dataclass(slots=True)
class Packs:
    """Members of arrays that share a runner, and those that wait for a place in one."""

    living: dict[str, dict[str, None]] = field(default_factory=dict)
    """By pack: its placed members."""
    left: dict[str, None] = field(default_factory=dict)
    """Packs of which a member is not placed any more."""
    pending: dict[str, dict[str, None]] = field(default_factory=dict)
    """By array: the members that wait."""
    placed: dict[str, dict[str, None]] = field(default_factory=dict)
    """By array: the members that have a place, which each gets before it runs."""

    def lives(self, pack: str) -> bool:
        """Whether a member of the pack is placed."""
        return bool(pack) and pack in self.living

    def follow(self, old: JobRecord | None, record: JobRecord) -> None:
        for table, belongs in (
            (self.placed, record.is_placed),
            (self.pending, record.state is JobState.PENDING),
        ):
            if belongs and record.array_index is not None:
                table.setdefault(record.array, {})[record.id] = None
            else:
                drop(table, record.array, record.id)
        if record.pack and record.is_placed:
            self.living.setdefault(record.pack, {})[record.id] = None
        elif old is not None and old.pack and old.is_placed:
            self.left[old.pack] = None
            drop(self.living, old.pack, old.id)

    def forget(self, record: JobRecord) -> None:
        """Drop a job that waits no more."""
        drop(self.pending, record.array, record.id)


Key = TypeVar("Key")


def drop(table: dict[Key, dict[str, None]], key: Key, job: str) -> None:
    """Take a job out of a table of jobs by a key, and the key with its last one."""
    if (jobs := table.get(key)) is not None:
        jobs.pop(job, None)
        if not jobs:
            del table[key]


@dataclass(slots=True)
class Findings:
    """Findings of the latest rounds about jobs that wait."""

    outlook: dict[str, Outlook] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)
    """How often later jobs were started."""
    aside: dict[str, Aside] = field(default_factory=dict)
    """What rounds leave out."""
    limited: dict[str, str] = field(default_factory=dict)
    """Jobs that the latest round left out because of a limit, which it says in words."""

    def forget(self, job: str) -> None:
        """Drop what was found about a job: it waits no more."""
        for found in (self.outlook, self.passed_over, self.aside, self.limited):
            found.pop(job, None)


@dataclass(slots=True)
class Deadlines:
    """Jobs that have a deadline and have not started."""

    latest_starts: dict[str, float] = field(default_factory=dict)
    """When they still could start."""
    queue: list[tuple[float, str]] = field(default_factory=list)
    """The same as a heap, in which some are out of date."""
    due: float | None = None
    """The first of them, when we are called."""

    def follow(self, record: JobRecord) -> None:
        """Keep the latest start of a job as its record has it."""
        if record.finish_by is None or record.state not in NOT_STARTED:
            self.latest_starts.pop(record.id, None)
            return
        latest = record.latest_start
        if self.latest_starts.get(record.id) != latest:
            self.latest_starts[record.id] = latest
            heappush(self.queue, (latest, record.id))

    def take(self, before: float) -> Iterator[str]:
        """Remove the jobs whose latest start lies before a time, one by one."""
        while self.queue:
            latest, job = self.queue[0]
            is_current = self.latest_starts.get(job) == latest
            if is_current and latest >= before:
                return
            heappop(self.queue)
            if is_current:
                del self.latest_starts[job]
                yield job

    def forget(self, job: str) -> None:
        self.latest_starts.pop(job, None)


@dataclass(slots=True)
class NativeJobs:
    """Jobs that were handed over by batch systems."""

    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Those that have not ended: cluster to id there to id here."""
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Those that cannot be planned; each is logged once."""

    def follow(self, record: JobRecord) -> None:
        """Know a job by its id there until it has ended."""
        if not record.origin:
            return
        if record.is_ended:
            self.forget(record)
        else:
            self.jobs.setdefault(record.origin, {})[record.foreign] = record.id

    def forget(self, record: JobRecord) -> None:
        """Drop a job, unless its id there is another one's by now."""
        there = self.jobs.get(record.origin, {})
        if there.get(record.foreign) == record.id:
            del there[record.foreign]


@dataclass(slots=True)
class Presence:
    """Clusters that are not here now, and those that have yet to be heard of."""

    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Next number and last acknowledged one of the orders to clusters that are not here now."""
    identities: dict[str, str] = field(default_factory=dict)
    """Of the executors' states of clusters that are not here now."""
    unreconciled: set[str] = field(default_factory=set)
    """Clusters not heard of since the store was restored from a backup."""
    restored: str = ""
    """Names the restoration; empty: there was none."""
    told: dict[str, str] = field(default_factory=dict)
    """Of each cluster the restoration since which its executor has said what it had started."""
    gathers_until: float = 0.0
    """Until when rounds wait, after a start, for clusters that were here before."""
    unknown: set[str] = field(default_factory=set)
    """Clusters that spoke without being configured; each is logged once."""


@dataclass(slots=True)
class Learning:
    """Figures that were learnt from jobs that have ended or started."""

    history: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Base times of finished runs, by user and program or name; the newest last."""
    ratios: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Real by planned run times, by the keys of `history`; the newest key last."""
    runs: dict[str, tuple[SizedRun, ...]] = field(default_factory=dict)
    """Processes and base times of finished runs, by the keys of `history`."""
    waits: dict[str, tuple[ClaimWait, ...]] = field(default_factory=dict)
    """By cluster, how long claims waited in its queue: the newest last."""
    promises: dict[str, tuple[Promise, ...]] = field(default_factory=dict)
    """Expected starts that jobs were given which have not started."""
    calibration: Calibration = field(default_factory=Calibration)
    """How wrong such expected starts were."""
    notes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What policies noted for their next round."""


@dataclass(slots=True)
class Sharing:
    """Projects, and their use."""

    tree: ProjectTree = field(default_factory=lambda: ProjectTree({}))
    usage: dict[ProjectUser, Usage] = field(default_factory=dict)
    """Decayed, of jobs that have ended."""
    days: dict[ProjectUser, dict[int, float]] = field(default_factory=dict)
    """Processor-seconds of ended jobs by day, as far back as a limit looks."""


@dataclass(slots=True)
class FollowedPlan:
    """The newest plan, and what has become free or ready since somebody followed it."""

    plan: Plan | None = None
    time: float = 0.0
    """Time of its snapshot."""
    unseen: list[Deferred | Placement] = field(default_factory=list)
    """Its starts and reasons of waiting jobs that are not in `findings` yet, the next one last."""
    order: PlanOrder | None = None
    """The order of its work on each node."""
    freed: set[str] = field(default_factory=set)
    """Nodes on which work of ours has ended, or what was planned there waits no more."""
    has_ended: bool = False
    """Work did, on one of them."""
    begun: int = 0
    """Starts along it, since a round ended."""
    roomy: dict[str, None] = field(default_factory=dict)
    """Nodes that had free slots when they were looked at last."""
    newcomers: dict[str, Precedence | None] = field(default_factory=dict)
    """Pending jobs that the plan does not know, or knows as they were; their places in `ranked`."""
    arrived: list[str] = field(default_factory=list)
    """Those of them that have not been looked at."""
    last_turn: float = 0.0
    """When some were, seconds."""
    room: int = 0
    """So many more may be then."""
    ranked: list[tuple[Precedence, str]] = field(default_factory=list)
    """Those that were, in the order of their turns, with some that wait no more."""
    turn_of: Callable[[JobRecord], Precedence] | None = None
    """The place of a newcomer among the jobs of the latest snapshot; None: by its arrival."""
    ripe: dict[tuple[str, str], None] = field(default_factory=dict)
    """Workflow and task: those that became ready."""
    later: dict[tuple[str, str], float] = field(default_factory=dict)
    """Workflow and task: those whose data are under way, and when they arrive."""

    def follow(self, old: JobRecord | None, record: JobRecord, *, frees: bool) -> None:
        """Note nodes that a job has left, if it `frees` them, and what has no place in the plan."""
        was_pending = old is not None and old.state is JobState.PENDING
        is_same = old is not None and old.job is record.job and old.batch is record.batch
        if record.flow or record.rest is not None:
            pass
        elif record.state is not JobState.PENDING:
            self.newcomers.pop(record.id, None)
        elif not was_pending or not is_same:
            self.newcomers[record.id] = None
            self.arrived.append(record.id)
        if self.order is None or old is None:
            return
        if frees and old.is_placed and not record.is_placed:
            self.freed.update(node for part in old.parts for node in part.nodes)
            self.has_ended |= record.is_ended or bool(record.flow)
        planned = self.order.placements.get((record.id, ""))
        is_planned = record.is_placed or (record.state is JobState.PENDING and is_same)
        if planned is not None and not is_planned:
            self.freed.update(planned.nodes)
            self.order.drop((record.id, ""))


def narrowest(job: Job) -> int:
    """Processes of one start of a job, at the least."""
    match job:
        case RigidJob(procs=procs):
            return procs
        case MoldableJob(min_procs=procs):
            return procs
        case WorkflowJob(tasks=tasks):
            return max((task.min_procs for task in tasks), default=1)
        case DivisibleJob():
            return 1
