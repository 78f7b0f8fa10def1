"""Everything the daemon's core knows, and the few ways to change it.

Mutable, but changed only inside `coordinator.handle`; whatever it holds of a job or a part
is frozen and replaced whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from coalloc.core.base import state_tables as tables
from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.composites import ChunkPool, WorkflowState
from coalloc.core.base.effects import AppendEvent, Effect, LogLine, SaveJob, SaveMeta, SendOrder
from coalloc.core.base.messages import MEMBERS, Abort, Dismiss, Forget, Order, Prepare
from coalloc.core.base.plain_jobs import Kind, is_plain, kind_of
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.round_control import Isolation, RoundControl
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import DivisibleJob, Job, WorkflowJob
from coalloc.model.settings import Config
from coalloc.model.snapshot import Snapshot

NOBODY = ""
"""The user to whom the tokens of native jobs belong: no client is called so."""
SPARE_TOKENS = 1000
"""Beyond two for each job in memory."""


@dataclass(slots=True)
class RoundState:
    """The round that is being solved."""

    number: int
    trigger: str
    policy: str
    started: float
    queued: int
    stale: int
    chain: list[str]
    snapshot: Snapshot
    committed: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    """Jobs that were changed since its snapshot."""
    touched: set[str] = field(default_factory=set)
    """Jobs that were not pending at some time since, or were dropped: all others wait still."""
    taken: set[str] = field(default_factory=set)
    """Nodes on which something was started meanwhile along the plan before."""
    coallocated: int = 0
    weights: dict[str, float] = field(default_factory=dict)
    """Of the jobs that wait here or in queues, as far as they were asked for."""
    heaviest: dict[str, float] = field(default_factory=dict)
    """By cluster: the greatest of those that wait in its queue."""
    why: str = ""
    """How the policy failed."""
    search: Isolation | None = None
    """For the jobs with which the policy fails."""
    attempts: int = 0
    """Of such searches in this round."""

    def count(self, started: JobRecord) -> None:
        self.coallocated += len(started.parts) > 1
        self.committed.add(started.id)


@dataclass(slots=True)
class State:
    """The daemon's memory; `out` collects the effects of the event being handled."""

    settings: Config
    rounds: RoundControl
    epoch: int = 1
    store: str = ""
    last: tables.LastNumbers = field(default_factory=tables.LastNumbers)
    clock_set_s: float = 0.0
    """By how much the clock was set ahead while daemons ran, in sum, seconds."""
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    """Jobs that rounds plan or hold back: a workflow or a divisible job until it has ended, none
    of its tasks or pieces."""
    plain: dict[str, Job] = field(default_factory=dict)
    """Those of them that are planned as they were submitted; see `plain_jobs`."""
    newest_submit: float = 0.0
    """Seconds."""
    placed: dict[str, None] = field(default_factory=dict)
    """What occupies nodes: jobs, and tasks and pieces in place of theirs."""
    ended: dict[str, None] = field(default_factory=dict)
    """May be forgotten, the oldest first: not the tasks of a workflow that lives."""
    composites: dict[str, WorkflowState | ChunkPool] = field(default_factory=dict)
    """The workflows and divisible jobs that have not ended."""
    array_changes: dict[str, list[JobRecord]] = field(default_factory=dict)
    """Long arrays that have changed in this step, with the members that have ended."""
    meeting: set[str] = field(default_factory=set)
    """Where the ranks of the placed jobs meet."""
    queued: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Claims that wait in the clusters' queues, by cluster and user."""
    holding: dict[str, dict[str, None]] = field(default_factory=dict)
    """By node: the placed jobs with a part there."""
    loading: dict[str, None] = field(default_factory=dict)
    """The placed jobs that load links."""
    dependents: dict[str, dict[str, None]] = field(default_factory=dict)
    """The waiting jobs that depend on a job."""
    of_kind: dict[Kind, dict[str, None]] = field(default_factory=dict)
    """By kind: the jobs that have not ended."""
    pending: tables.PendingCount = field(default_factory=tables.PendingCount)
    packs: tables.Packs = field(default_factory=tables.Packs)
    marked: tables.Marked = field(default_factory=tables.Marked)
    deadlines: tables.Deadlines = field(default_factory=tables.Deadlines)
    findings: tables.Findings = field(default_factory=tables.Findings)
    native: tables.NativeJobs = field(default_factory=tables.NativeJobs)
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    presence: tables.Presence = field(default_factory=tables.Presence)
    maintenance: tables.Maintenance = field(default_factory=tables.Maintenance)
    learning: tables.Learning = field(default_factory=tables.Learning)
    sharing: tables.Sharing = field(default_factory=tables.Sharing)
    round: RoundState | None = None
    schedule: tables.FollowedPlan = field(default_factory=tables.FollowedPlan)
    suitable: dict[tuple[object, ...], dict[str, Counter[tuple[int, int]]] | None] = field(
        default_factory=dict
    )
    """By what is asked of nodes, and by cluster: nodes by the processes that each takes when idle,
    and the slots of these."""
    out: list[Effect] = field(default_factory=list)
    _is_sorted: bool = True
    """The plain jobs are in the order of their arrival."""

    def put(self, record: JobRecord) -> None:
        """Replace the record of a job, and have it written."""
        self.index(record)
        self.out.append(SaveJob(record=record))

    def index(self, record: JobRecord) -> None:
        """Take a record into the tables, without writing it."""
        old = self.jobs.get(record.id)
        if old is not None:
            self._uncount(old)
        if self.round is not None and record.state is not JobState.PENDING:
            self.round.touched.add(record.id)
        self.jobs[record.id] = record
        self._follow(record)
        is_planned = record.is_waiting and not record.flow and record.rest is None
        is_planned |= record.id in self.composites
        self._look_at_plain(record, is_planned=is_planned)
        for table, belongs in (
            (self.waiting, is_planned),
            (self.placed, record.is_placed and record.id not in self.composites),
            (self.ended, record.is_ended and record.flow not in self.composites),
        ):
            if belongs:
                table[record.id] = None
            else:
                table.pop(record.id, None)
        self._count(record)
        if record.array and whole_id(record.array) in self.jobs:
            ends = self.array_changes.setdefault(record.array, [])
            if record.is_ended and old is not None and not old.is_ended and record.rest is None:
                ends.append(record)
        self.packs.follow(old, record)
        self.schedule.follow(old, record, frees=old is not None and not self.packs.lives(old.pack))
        if not record.is_waiting:
            self.findings.forget(record.id)
        self.marked.follow(record, is_planned=record.id in self.waiting)
        self.deadlines.follow(record)
        self.native.follow(record)

    def index_all(self, records: Sequence[JobRecord]) -> None:
        """Take in the records of a store, in arrival order, at a start."""
        for record in records:
            self.index(record)
            if record.not_before and record.is_waiting:
                self.marked.backing_off.add(record.id)
        if records:
            self.last.job = max(self.last.job, arrival(records[-1].id)[0])

    def _follow(self, record: JobRecord) -> None:
        if record.flow:
            flow = self.composites.get(record.flow)
            if flow is not None:
                self.schedule.ripe.update(((flow.id, task), None) for task in flow.take(record))
        elif isinstance(record.job, WorkflowJob | DivisibleJob):
            if record.is_ended:
                flow = self.composites.pop(record.id, None)
                if flow is not None:
                    self.ended.update((job, None) for job in flow.jobs() if job in self.jobs)
            elif record.id not in self.composites:
                self.composites[record.id] = (
                    WorkflowState.of(record.id, record.job)
                    if isinstance(record.job, WorkflowJob)
                    else ChunkPool.of(record.id, record.job)
                )

    def _look_at_plain(self, record: JobRecord, *, is_planned: bool) -> None:
        if not (is_planned and is_plain(record)):
            self.plain.pop(record.id, None)
            return
        if self.plain and record.id not in self.plain:
            self._is_sorted &= arrival(next(reversed(self.plain))) < arrival(record.id)
        self.plain[record.id] = record.job
        self.newest_submit = max(self.newest_submit, record.job.submitted)

    def _count(self, record: JobRecord) -> None:
        if record.is_waiting:
            for _, needed in record.needs:
                self.dependents.setdefault(needed, {})[record.id] = None
        if record.is_placed:
            self.meeting |= record.meeting_places
            self.queued.update(record.claims)
            for part in record.parts:
                for node, slots in part.held.items():
                    if slots:
                        self.holding.setdefault(node, {})[record.id] = None
            if record.link_gbps:
                self.loading[record.id] = None
        if not record.is_ended:
            self.of_kind.setdefault(kind_of(record), {})[record.id] = None
        self.pending.count(record, 1)

    def _uncount(self, record: JobRecord) -> None:
        for _, needed in record.needs:
            tables.drop(self.dependents, needed, record.id)
        tables.drop(self.of_kind, kind_of(record), record.id)
        if record.is_placed:
            self.meeting -= record.meeting_places
            self.queued.subtract(record.claims)
            for part in record.parts:
                for node in part.held:
                    self.holding.get(node, {}).pop(record.id, None)
            self.loading.pop(record.id, None)
        self.pending.count(record, -1)

    def remove(self, job: str) -> None:
        record = self.jobs.pop(job, None)
        if record is not None:
            self._uncount(record)
            self.packs.forget(record)
            self.native.forget(record)
        if self.round is not None:
            self.round.touched.add(job)
        self.plain.pop(job, None)
        for table in (self.waiting, self.placed, self.ended):
            table.pop(job, None)
        self.composites.pop(job, None)
        self.schedule.newcomers.pop(job, None)
        self.learning.promises.pop(job, None)
        self.findings.forget(job)
        self.marked.forget(job)
        self.deadlines.forget(job)

    def send(self, cluster: str, order: Order) -> None:
        """Put an order into a cluster's outbox.

        An abort, a forget or a dismissal that is still under way is not sent again: an executor
        repeats what it knows until it has carried them out.
        """
        target = self.clusters[cluster]
        is_several = isinstance(order, Forget) and bool(order.others)
        if isinstance(order, Abort | Forget | Dismiss) and not is_several:
            asked = (type(order).__name__, order.job, order.attempt)
            if target.is_asked(*asked):
                return
            target.asked[asked] = target.next_seq
            if isinstance(order, Forget) and MEMBERS in (target.abilities or ()):
                target.forgotten.append((order.job, order.attempt))
                return
        elif isinstance(order, Prepare):  # An abort that is still under way is not of this part.
            target.asked.pop((Abort.__name__, order.job, order.attempt), None)
        self.out.append(SendOrder(cluster=cluster, seq=target.next_seq, order=order))
        target.next_seq += 1
        self.out.append(SaveMeta(key=f"seq.{cluster}", value=str(target.next_seq)))

    def forget_together(self) -> None:
        """Send which ends of this step are to be forgotten, all of a cluster's in one order."""
        for name, target in self.clusters.items():
            if starts := target.forgotten:
                target.forgotten, (job, attempt) = [], starts[0]
                self.send(name, Forget(job=job, attempt=attempt, others=tuple(starts)))

    def save_drained(self) -> None:
        for cluster in self.clusters.values():
            names = {node.name for node in cluster.nodes}
            cluster.drained_nodes = names & self.maintenance.drained.keys()
        listed = (f"{name}\t{reason}" for name, reason in sorted(self.maintenance.drained.items()))
        self.out.append(SaveMeta(key="drained", value="\n".join(listed)))

    def emit(self, now: float, kind: EventKind, job: str = "", /, **fields: Any) -> None:
        self.last.event += 1
        self.out.append(
            AppendEvent(seq=self.last.event, time=now, kind=kind, job=job, fields=fields)
        )

    def log(self, event: str, /, level: str = "info", **fields: Any) -> None:
        self.out.append(LogLine(event=event, fields=fields, level=level))

    def tell(
        self, now: float, kind: EventKind, job: str = "", /, level: str = "info", **fields: Any
    ) -> None:
        """Append to the event stream, and write the same as a log line."""
        self.emit(now, kind, job, **fields)
        self.log(str(kind), level, **({"job": job} if job else {}), **fields)

    def is_usable(self, cluster: ClusterState, now: float) -> bool:
        """A cluster is there, as far as was read, and may get new work."""
        return not (cluster.drained or cluster.is_stale(now, self.settings.readings.max_age_s))

    def waiting_records(self, without: Collection[str] = ()) -> Iterator[JobRecord]:
        """In the order of their arrival, but for some; most have plain numbers, read at once."""
        is_any = len(without) < len(self.waiting)
        names = [job for job in self.waiting if job not in without] if is_any else []
        key = int if all(map(str.isdigit, names)) else arrival
        return (self.jobs[job] for job in sorted(names, key=key))

    def plain_jobs(self) -> dict[str, Job]:
        """A copy of those that are planned as they were submitted, in the order of arrival."""
        self._sort_plain()
        return self.plain.copy()

    def waiting_before(self, latest: tuple[int, int]) -> Iterator[str]:
        """Those that wait and have arrived before another, which most of a long queue have not."""
        self._sort_plain()
        yield from takewhile(lambda job: arrival(job) < latest, self.plain)
        special = (r.id for r in self.waiting_records(without=self.plain))
        yield from takewhile(lambda job: arrival(job) < latest, special)

    def _sort_plain(self) -> None:
        if not self._is_sorted:
            self.plain = {job: self.plain[job] for job in sorted(self.plain, key=arrival)}
            self._is_sorted = True

    def placed_records(self) -> Iterator[JobRecord]:
        return (self.jobs[job] for job in self.placed)

    def held_on(self, nodes: Iterable[str]) -> Iterator[JobRecord]:
        """Placed jobs with a part on one of these nodes, each once."""
        jobs = dict.fromkeys(job for node in nodes for job in self.holding.get(node, ()))
        return (self.jobs[job] for job in jobs)

    def node_cluster(self) -> Mapping[str, str]:
        return {n.name: name for name, cluster in self.clusters.items() for n in cluster.nodes}


def forget_tokens(state: State) -> None:
    """Drop the tokens of jobs that are no longer in memory, once they are the greater part.

    The store has all of them. Those of native jobs stay, since the core looks for them without
    asking the store.
    """
    if len(state.tokens) <= 2 * len(state.jobs) + SPARE_TOKENS:
        return
    known = {job.partition("_")[0] for job in state.jobs}
    state.tokens = {
        key: job for key, job in state.tokens.items() if key[0] == NOBODY or job in known
    }


def whole_id(number: str) -> str:
    """Id of the record of a long array as a whole."""
    return f"{number}_"


def arrival(job: str) -> tuple[int, int]:
    """Sort key of a job's id: by number, then by array index or place in the workflow."""
    if job.isdigit():
        return int(job), 0
    number, _, index = job.replace(".", "_").partition("_")
    return int(number), int(index or 0)
