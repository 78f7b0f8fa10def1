"""Everything the daemon's core knows, and the few ways to change it.

Mutable, but changed only inside `coordinator.handle`; whatever it holds of a job or a part
is frozen and replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush
from typing import Any

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.composites import ChunkPool, WorkflowState
from coalloc.core.base.effects import AppendEvent, Effect, LogLine, SaveJob, SaveMeta, SendOrder
from coalloc.core.base.messages import Abort, Dismiss, Forget, Order, Withdraw
from coalloc.core.base.plan_order import PlanOrder
from coalloc.core.base.projects import ProjectTree
from coalloc.core.base.records import NOT_STARTED, WAITING, JobRecord, JobState, Outlook, Wait
from coalloc.core.base.round_control import Aside, Isolation, RoundControl
from coalloc.core.base.speedup_fit import Run
from coalloc.core.base.start_intervals import Calibration, Promise
from coalloc.core.base.usage import Owner, Usage
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import DivisibleJob, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.reserved import Reserved
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
    coallocated: int = 0
    why: str = ""
    """How the policy failed."""
    search: Isolation | None = None
    """For the jobs with which the policy fails."""
    attempts: int = 0
    """Of such searches in this round."""


@dataclass(slots=True)
class State:
    """The daemon's memory; `out` collects the effects of the event being handled."""

    settings: Config
    rounds: RoundControl
    epoch: int = 1
    store: str = ""
    drained: dict[str, str] = field(default_factory=dict)
    """Clusters and nodes that an operator has drained, with the reason given."""
    reserved: dict[str, Reserved] = field(default_factory=dict)
    """Reservations of operators, by name."""
    reserved_due: float | None = None
    """When the first of them ends, and we are called."""
    backing_off: set[str] = field(default_factory=set)
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    """Jobs that rounds plan or hold back: a workflow or a divisible job until it has ended, none
    of its tasks or pieces."""
    placed: dict[str, None] = field(default_factory=dict)
    """What occupies nodes: jobs, and tasks and pieces in place of theirs."""
    ended: dict[str, None] = field(default_factory=dict)
    """May be forgotten, the oldest first: not the tasks of a workflow that lives."""
    composites: dict[str, WorkflowState | ChunkPool] = field(default_factory=dict)
    """The workflows and divisible jobs that have not ended."""
    meeting: set[str] = field(default_factory=set)
    """Where the ranks of the placed jobs meet."""
    dependents: dict[str, dict[str, None]] = field(default_factory=dict)
    """The waiting jobs that depend on a job."""
    native_jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Jobs that were handed over and have not ended: cluster to id there to id here."""
    pending_jobs: int = 0
    pending_procs: int = 0
    """Of pending jobs only: one that is held asks for no round."""
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    outlook: dict[str, Outlook] = field(default_factory=dict)
    promises: dict[str, tuple[Promise, ...]] = field(default_factory=dict)
    """Expected starts that jobs were given which have not started."""
    calibration: Calibration = field(default_factory=Calibration)
    """How wrong such expected starts were."""
    passed_over: dict[str, int] = field(default_factory=dict)
    aside: dict[str, Aside] = field(default_factory=dict)
    """What rounds leave out."""
    limited: dict[str, str] = field(default_factory=dict)
    """Jobs that the latest round left out because of a limit, which it says in words."""
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Next number and last acknowledged one of the orders to clusters that are not here now."""
    identities: dict[str, str] = field(default_factory=dict)
    """Of the executors' states of clusters that are not here now."""
    refused_there: set[tuple[str, str]] = field(default_factory=set)
    """Handed jobs that cannot be planned; each is logged once."""
    unreconciled: set[str] = field(default_factory=set)
    """Clusters not heard of since the store was restored from a backup."""
    gathers_until: float = 0.0
    """Until when rounds wait, after a start, for clusters that were here before."""
    unknown_clusters: set[str] = field(default_factory=set)
    """Clusters that spoke without being configured; each is logged once."""
    history: dict[str, tuple[float, ...]] = field(default_factory=dict)
    ratios: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Real by planned run times, by the keys of `history`; the newest key last."""
    runs: dict[str, tuple[Run, ...]] = field(default_factory=dict)
    """Processes and base times of finished runs, by the keys of `history`."""
    waits: dict[str, tuple[Wait, ...]] = field(default_factory=dict)
    """By cluster, how long claims waited in its queue: the newest last."""
    tree: ProjectTree = field(default_factory=lambda: ProjectTree({}))
    usage: dict[Owner, Usage] = field(default_factory=dict)
    """Decayed, of jobs that have ended."""
    days: dict[Owner, dict[int, float]] = field(default_factory=dict)
    """Processor-seconds of ended jobs by day, as far back as a limit looks."""
    prioritised: set[str] = field(default_factory=set)
    """Waiting jobs to which an operator has given a priority."""
    throttled: set[str] = field(default_factory=set)
    """Waiting members of arrays of which only so many run at once."""
    latest_starts: dict[str, float] = field(default_factory=dict)
    """Of jobs that have a deadline and have not started: when they still could."""
    deadline_queue: list[tuple[float, str]] = field(default_factory=list)
    """The same as a heap, in which some are out of date."""
    deadline_due: float | None = None
    """The first of them, when we are called."""
    last_job: int = 0
    last_event: int = 0
    last_round: int = 0
    round: RoundState | None = None
    plan: Plan | None = None
    notes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What policies noted for their next round."""
    plan_time: float = 0.0
    plan_order: PlanOrder | None = None
    """What the plan has next on each node, where it places tasks of workflows."""
    freed: set[str] = field(default_factory=set)
    """Nodes on which work of ours has ended since somebody looked at the lanes."""
    ripe: dict[tuple[str, str], None] = field(default_factory=dict)
    """Workflow and task: those that became ready since then."""
    later: dict[tuple[str, str], float] = field(default_factory=dict)
    """Workflow and task: those whose data are under way, and when they arrive."""
    suitable: dict[tuple[object, ...], dict[str, int] | None] = field(default_factory=dict)
    out: list[Effect] = field(default_factory=list)

    def put(self, record: JobRecord) -> None:
        """Replace the record of a job, and have it written."""
        self.index(record)
        self.out.append(SaveJob(record=record))

    def index(self, record: JobRecord) -> None:
        """Take a record into the tables, without writing it."""
        old = self.jobs.get(record.id)
        self._uncount(old)
        self.jobs[record.id] = record
        self._follow(record)
        for table, belongs in (
            (self.waiting, self._is_planned(record)),
            (self.placed, record.is_placed and record.id not in self.composites),
            (self.ended, record.is_ended and record.flow not in self.composites),
        ):
            if belongs:
                table[record.id] = None
            else:
                table.pop(record.id, None)
        self._count(record)
        if (
            old is not None
            and old.is_placed
            and not record.is_placed
            and self.plan_order is not None
        ):
            self.freed.update(node for part in old.parts for node in part.nodes)
        if not record.is_waiting:
            self.outlook.pop(record.id, None)
            self.passed_over.pop(record.id, None)
            self.aside.pop(record.id, None)
            self.limited.pop(record.id, None)
        if record.priority and record.id in self.waiting:
            self.prioritised.add(record.id)
        else:
            self.prioritised.discard(record.id)
        if record.throttle and record.id in self.waiting:
            self.throttled.add(record.id)
        else:
            self.throttled.discard(record.id)
        self._keep_deadline(record)
        if record.origin and not record.is_ended:
            self.native_jobs.setdefault(record.origin, {})[record.foreign] = record.id
        elif record.origin:
            self._unhand(record)

    def index_all(self, records: Sequence[JobRecord]) -> None:
        """Take in the records of a store, in arrival order, at a start.

        Most are waiting jobs that nothing else refers to, and belong in two tables only.
        """
        for record in records:
            if (
                record.state not in WAITING
                or record.flow
                or record.origin
                or record.needs
                or record.priority
                or record.throttle
                or record.finish_by is not None
            ):
                self.index(record)
            elif isinstance(record.job, RigidJob):
                self.jobs[record.id] = record
                self.waiting[record.id] = None
                if record.state is JobState.PENDING:
                    self.pending_jobs += 1
                    self.pending_procs += record.job.procs
            else:
                self.index(record)
            if record.not_before and record.is_waiting:
                self.backing_off.add(record.id)
        if records:
            self.last_job = max(self.last_job, arrival(records[-1].id)[0])

    def _is_planned(self, record: JobRecord) -> bool:
        return record.id in self.composites or (record.is_waiting and not record.flow)

    def _follow(self, record: JobRecord) -> None:
        """Keep the tables of workflows and divisible jobs."""
        if record.flow:
            flow = self.composites.get(record.flow)
            if flow is not None:
                self.ripe.update(((flow.id, task), None) for task in flow.take(record))
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

    def _keep_deadline(self, record: JobRecord) -> None:
        if record.finish_by is None or record.state not in NOT_STARTED:
            self.latest_starts.pop(record.id, None)
            return
        latest = record.latest_start
        if self.latest_starts.get(record.id) != latest:
            self.latest_starts[record.id] = latest
            heappush(self.deadline_queue, (latest, record.id))

    def _unhand(self, record: JobRecord) -> None:
        there = self.native_jobs.get(record.origin, {})
        if there.get(record.foreign) == record.id:
            del there[record.foreign]

    def _count(self, record: JobRecord) -> None:
        if record.is_waiting:
            for _, needed in record.needs:
                self.dependents.setdefault(needed, {})[record.id] = None
        if record.is_placed and record.rendezvous:
            self.meeting.add(record.rendezvous)
        if record.state is JobState.PENDING and not record.flow:
            self.pending_jobs += 1
            self.pending_procs += procs_of(record)

    def _uncount(self, record: JobRecord | None) -> None:
        if record is None:
            return
        for _, needed in record.needs:
            others = self.dependents.get(needed, {})
            others.pop(record.id, None)
            if not others:
                self.dependents.pop(needed, None)
        if record.is_placed:
            self.meeting.discard(record.rendezvous)
        if record.state is JobState.PENDING and not record.flow:
            self.pending_jobs -= 1
            self.pending_procs -= procs_of(record)

    def remove(self, job: str) -> None:
        """Drop a job from memory."""
        record = self.jobs.pop(job, None)
        self._uncount(record)
        if record is not None and record.origin:
            self._unhand(record)
        for table in (self.waiting, self.placed, self.ended):
            table.pop(job, None)
        self.composites.pop(job, None)
        self.outlook.pop(job, None)
        self.promises.pop(job, None)
        self.passed_over.pop(job, None)
        self.aside.pop(job, None)
        self.limited.pop(job, None)
        self.backing_off.discard(job)
        self.prioritised.discard(job)
        self.throttled.discard(job)
        self.latest_starts.pop(job, None)

    def send(self, cluster: str, order: Order) -> None:
        """Put an order into a cluster's outbox.

        An abort, a forget, a dismissal or a withdrawal that is still under way is not sent
        again: an executor repeats what it knows until it has carried them out.
        """
        target = self.clusters[cluster]
        if isinstance(order, Abort | Forget | Dismiss | Withdraw):
            asked = (type(order).__name__, order.job, order.attempt)
            if target.asked.get(asked, 0) > target.acked_seq:
                return
            target.asked[asked] = target.next_seq
        self.out.append(SendOrder(cluster=cluster, seq=target.next_seq, order=order))
        target.next_seq += 1
        self.out.append(SaveMeta(key=f"seq.{cluster}", value=str(target.next_seq)))

    def save_drained(self) -> None:
        """Have the drained clusters and nodes written."""
        self._refresh_drained()
        listed = (f"{name}\t{reason}" for name, reason in sorted(self.drained.items()))
        self.out.append(SaveMeta(key="drained", value="\n".join(listed)))

    def _refresh_drained(self) -> None:
        for cluster in self.clusters.values():
            if cluster.reading is not None:
                names = {node.name for node in cluster.reading.nodes}
                cluster.drained_nodes = names & self.drained.keys()

    def save_paused(self) -> None:
        """Have written whether rounds are paused."""
        self.out.append(SaveMeta(key="paused", value="1" if self.rounds.paused else ""))

    def emit(self, now: float, kind: EventKind, job: str = "", /, **fields: Any) -> None:
        """Append to the event stream."""
        self.last_event += 1
        self.out.append(
            AppendEvent(seq=self.last_event, time=now, kind=kind, job=job, fields=fields)
        )

    def log(self, event: str, /, level: str = "info", **fields: Any) -> None:
        """Write a log line."""
        self.out.append(LogLine(event=event, fields=fields, level=level))

    def waiting_records(self) -> Iterator[JobRecord]:
        """Waiting jobs in arrival order."""
        return (self.jobs[job] for job in sorted(self.waiting, key=arrival))

    def placed_records(self) -> Iterator[JobRecord]:
        """Jobs that occupy nodes."""
        return (self.jobs[job] for job in self.placed)

    def node_cluster(self) -> Mapping[str, str]:
        """Every node's cluster."""
        return {
            node.name: name
            for name, cluster in self.clusters.items()
            if cluster.reading is not None
            for node in cluster.reading.nodes
        }


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


def arrival(job: str) -> tuple[int, int]:
    """Sort key of a job's id: by number, then by array index or place in the workflow."""
    number, _, index = job.replace(".", "_").partition("_")
    return int(number), int(index or 0)


def procs_of(record: JobRecord) -> int:
    """Processes a waiting job asks for, at the least."""
    match record.job:
        case RigidJob(procs=procs):
            return procs
        case MoldableJob(min_procs=procs):
            return procs
        case WorkflowJob(tasks=tasks):
            return max(task.min_procs for task in tasks)
        case _:
            return 1
