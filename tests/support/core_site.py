"""A site for tests of the core: clusters that read well, executors that obey or do not."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from coalloc.core.base.effects import Effect, LogLine, Reply, SaveJob, SaveMeta, SendOrder, Solve
from coalloc.core.base.events import Requested, Solved, StatementReceived, Ticked
from coalloc.core.base.messages import SHAPES, Hello, Order, Read, Report
from coalloc.core.base.records import JobRecord
from coalloc.core.base.requests import Command, CommandAnswer, Done, Submit, SubmitWorkflow
from coalloc.core.base.state_tables import Maintenance
from coalloc.core.commands.reservations import META as RESERVED
from coalloc.core.commands.reservations import read_reserved
from coalloc.core.coordinator import Coordinator, StoredState
from coalloc.core.jobs.suitable_nodes import laid_out
from coalloc.model.cost import piece_time
from coalloc.model.jobs import DivisibleJob, Job, WorkflowJob
from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.settings import ClusterConfig, TriggerConfig
from coalloc.model.shape import ONE_SLOT, Room, most_procs, room_of, supplies, taken
from coalloc.model.sites.parts import Launch, PartReport, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from tests.support.settings import core_settings

HOUR = 3600.0


def reading(cluster: str, nodes: int, *, slots: int = 1, power: float = 1.0) -> ClusterReading:
    """A cluster of equal nodes named after it; of an owner's cluster, below its name."""
    stem = f"{cluster}/n" if "@" in cluster else cluster
    return ClusterReading(
        cluster=cluster,
        nodes=tuple(
            NodeReading(name=f"{stem}{i}", slots=slots, power=power) for i in range(1, nodes + 1)
        ),
    )


def first_fit(snapshot: Snapshot) -> Plan:
    """Start what fits now, in arrival order, node by node; for tests only.

    Divisible jobs get what is left then, a few chunks now and the others an hour later.
    """
    home = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    free = {
        node.name: node.slots
        for cluster, node in snapshot.nodes()
        if node.state == "up" and not cluster.stale
    }
    for busy in snapshot.running:
        for name, count in busy.nodes.items():
            if name in free:
                free[name] -= count
    rooms = Rooms(snapshot, free)
    placements, deferred = [], []
    for job in snapshot.queue:
        if isinstance(job, DivisibleJob):
            continue
        if isinstance(job, WorkflowJob) and not free:
            deferred.append(Deferred(job=job.id, reason=Reason.INSUFFICIENT, detail="no nodes"))
            continue
        if isinstance(job, WorkflowJob):
            placements += _tasks_in_turn(job, snapshot.time, free, rooms)
            continue
        procs = getattr(job, "procs", 1)
        nodes: dict[str, int] = {}
        named = {n: c for n, c in free.items() if job.clusters is None or home[n] in job.clusters}
        if job.shape != ONE_SLOT:
            nodes = laid_out(job.shape, procs, {name: rooms.takes(job, name) for name in named})
            named = {}
        for name, count in named.items():
            take = min(count, procs - sum(nodes.values()))
            if take > 0:
                nodes[name] = take
        if job.held or job.earliest > snapshot.time or job.after or sum(nodes.values()) < procs:
            deferred.append(Deferred(job=job.id, reason=Reason.INSUFFICIENT, detail="no room"))
            continue
        for name, count in nodes.items():
            free[name] -= rooms.take(job, name, count)
        end = snapshot.time + getattr(job, "base_time", 1.0)
        placements.append(Placement(job=job.id, start=snapshot.time, end=end, nodes=nodes))
    for job in snapshot.queue:
        if isinstance(job, DivisibleJob):
            found = _chunks_in_turn(job, snapshot, free, rooms)
            placements += found
            if not found:
                deferred.append(Deferred(job=job.id, reason=Reason.INSUFFICIENT, detail="no room"))
    return Plan(
        policy="first-fit",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0, deferred=len(deferred)),
        placements=tuple(placements),
        deferred=tuple(deferred),
    )


class Rooms:
    """Memory and resources beside the free slots of nodes."""

    def __init__(self, snapshot: Snapshot, free: Mapping[str, int]) -> None:
        self._free = free
        self._nodes = {node.name: node for _, node in snapshot.nodes()}
        self._held: dict[str, list[tuple[float, Mapping[str, int]]]] = {}
        for busy in snapshot.running:
            for name, slots in busy.nodes.items():
                if (node := self._nodes.get(name)) is None:
                    continue
                share = (node.memory_mb or 0) * slots // node.slots
                held = busy.memory_mb.get(name, share), supplies(busy.resources.get(name, {}))
                self._held.setdefault(name, []).append(held)

    def takes(self, job: Job, name: str, *, idle: bool = False) -> int:
        """Processes of a job that a node takes beside what it has, or when it is idle."""
        _, memory, resources = room_of(self._nodes[name])
        if idle:
            return most_procs(job.shape, job.memory_mb_per_proc, self._nodes[name])
        if job.shape == ONE_SLOT:
            return max(0, self._free[name])
        left = Counter(resources)
        for held_mb, held in self._held.get(name, ()):
            memory -= held_mb
            left.subtract(held)
        room = Room(max(0, self._free[name]), memory, left)
        return most_procs(job.shape, job.memory_mb_per_proc, self._nodes[name], room)

    def take(self, job: Job, name: str, procs: int) -> int:
        """Have a node hold processes of a job; their slots."""
        use = taken(job.shape, job.memory_mb_per_proc, self._nodes[name], procs)
        self._held.setdefault(name, []).append((use.memory_mb, use.resources))
        return use.slots


def _tasks_in_turn(
    job: WorkflowJob, time: float, free: dict[str, int], rooms: Rooms
) -> list[Placement]:
    """Tasks of one process: now where that is possible, else one after the other, node by node."""
    waits = {edge.child for edge in job.edges}
    done = {one.task for one in job.started if one.end <= time}
    waits -= {c for c in waits if all(e.parent in done for e in job.edges if e.child == c)}
    out, later = [], time
    for turn, task in enumerate(job.tasks):
        mine = replace(job, shape=job.shape if task.shape is None else task.shape)
        now = next((name for name in free if rooms.takes(mine, name)), None)
        if task.id not in waits and now is not None and job.earliest <= time and not job.after:
            free[now] -= rooms.take(mine, now, 1)
            start, node = time, now
        else:
            later += HOUR
            able = [name for name in free if rooms.takes(mine, name, idle=True)] or list(free)
            start, node = later, able[turn % len(able)]
        placement = Placement(
            job=job.id, task=task.id, start=start, end=start + task.work, nodes={node: 1}
        )
        out.append(placement)
    return out


def _chunks_in_turn(
    job: DivisibleJob, snapshot: Snapshot, free: dict[str, int], rooms: Rooms
) -> list[Placement]:
    """Two chunks for each process of one now, on as many nodes as are free; the rest later."""
    time, left = snapshot.time, job.chunks
    if job.held or job.after or job.earliest > time or not free:
        return []
    home = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    nodes = {name: 1 for name in free if rooms.takes(job, name)}
    nodes = {name: 1 for name in nodes if home[name] == home[next(iter(nodes))]}
    out = []
    if nodes:
        now = min(left, 2 * len(nodes))
        left -= now
        for name in nodes:
            free[name] -= rooms.take(job, name, 1)
        end = time + piece_time(job.chunk_s, now, len(nodes), 1.0)
        out.append(Placement(job=job.id, start=time, end=end, nodes=nodes, chunks=now))
    if left:
        able = [name for name in free if rooms.takes(job, name, idle=True)] or list(free)
        start, node = time + HOUR, able[0]
        end = start + piece_time(job.chunk_s, left, 1, 1.0)
        out.append(Placement(job=job.id, start=start, end=end, nodes={node: 1}, chunks=left))
    return out


def workflow(token: str, tasks: str, edges: str = "", **fields: Any) -> SubmitWorkflow:
    """The submit of tasks ``a b c`` with edges ``a>b b>c``, each of 100 s."""
    pairs = (edge.split(">") for edge in edges.split())
    job = {
        "kind": "workflow",
        "tasks": [{"id": name, "work": 100.0} for name in tasks.split()],
        "edges": [{"from": parent, "to": child} for parent, child in pairs],
        **fields.pop("job", {}),
    }
    launch = fields.pop("launch", Launch(argv=("run", "{task}")))
    return SubmitWorkflow(token=token, job=job, launch=launch, **fields)


class Site:
    """A coordinator with its clusters; time moves only when told to.

    Attributes
    ----------
    effects : list
        Everything the core wanted, in order.
    orders : list of (cluster, order)
    """

    plan_of = staticmethod(first_fit)

    def __init__(
        self,
        clusters: Mapping[str, int] | None = None,
        *,
        slots: int = 1,
        remembered: StoredState | None = None,
        solving: bool = True,
        accounts: Mapping[str, Mapping[str, str]] | None = None,
        owners: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.sizes = dict(clusters or {"a": 2, "b": 2})
        settings.setdefault(
            "trigger", (TriggerConfig(kind="queue_length"), TriggerConfig(kind="job_finished"))
        )
        settings.setdefault("min_interval_s", 0.0)
        self.settings = core_settings(
            clusters=tuple(
                ClusterConfig(
                    name=name,
                    owner=(owners or {}).get(name, ""),
                    accounts=dict((accounts or {}).get(name, {})),
                )
                for name in self.sizes
            ),
            **settings,
        )
        self.core = Coordinator(self.settings, remembered)
        self.state = self.core.state
        self.now = 1000.0
        self.solving = solving
        self.effects: list[Effect] = []
        self.orders: list[tuple[str, int, Order]] = []
        self.answers: list[CommandAnswer] = []
        self.pending_solves: list[Solve] = []
        for name, size in self.sizes.items():
            self.do(StatementReceived(statement=Hello(cluster=name, abilities=(SHAPES,))))
            self.do(
                StatementReceived(
                    statement=Read(cluster=name, reading=reading(name, size, slots=slots))
                )
            )

    def do(self, event: Any) -> list[Effect]:
        """Hand in an event; solves are answered at once if `solving`."""
        effects = self.core.handle(event, self.now)
        self.effects += effects
        for effect in effects:
            match effect:
                case SendOrder(cluster=cluster, seq=seq, order=order):
                    self.orders.append((cluster, seq, order))
                case Reply(answer=answer):
                    self.answers.append(answer)
                case Solve():
                    if self.solving:
                        plan = self.plan_of(effect.snapshot)
                        self.do(Solved(round=effect.round, plan=plan, solve_s=0.0))
                    else:
                        self.pending_solves.append(effect)
        return effects

    def wait(self, seconds: float) -> None:
        """Let time pass; clusters are read again."""
        self.now += seconds
        for name, cluster in self.state.clusters.items():
            if cluster.connected and cluster.reading is not None:
                self.do(StatementReceived(statement=Read(cluster=name, reading=cluster.reading)))
        self.do(Ticked())

    def ask(self, command: Command, *, user: str = "ann", operator: bool = False) -> CommandAnswer:
        """A client's request and its answer."""
        before = len(self.answers)
        self.do(
            Requested(origin="client", user=user, uid=1, gid=1, operator=operator, command=command)
        )
        assert len(self.answers) == before + 1
        return self.answers[-1]

    def submit(self, procs: int = 1, *, user: str = "ann", **kwargs: Any) -> str:
        """Submit a rigid job; returns its id."""
        token = kwargs.pop("token", f"t{len(self.answers)}")
        fields = {"kind": "rigid", "procs": procs, "base_time": 100.0, **kwargs.pop("job", {})}
        launch = Launch(argv=(kwargs.pop("program", "work"),))
        answer = self.ask(Submit(token=token, job=fields, launch=launch, **kwargs), user=user)
        assert isinstance(answer, Done), answer
        return str(answer.body["job"])

    def submit_workflow(
        self, tasks: str, edges: str = "", *, user: str = "ann", **fields: Any
    ) -> str:
        """Submit tasks ``a b c`` with edges ``a>b b>c``, each of 100 s; returns the job's id."""
        command = workflow(f"t{len(self.answers)}", tasks, edges, **fields)
        answer = self.ask(command, user=user)
        assert isinstance(answer, Done), answer
        return str(answer.body["job"])

    def job(self, job: str) -> JobRecord:
        """A job's record."""
        return self.state.jobs[job]

    def say(self, job: str, state: PartState, *, cluster: str = "", **fields: Any) -> None:
        """Executors report on the parts of a job, those of one cluster or all."""
        record = self.job(job)
        for part in record.parts:
            if cluster in {"", part.cluster}:
                report = PartReport(
                    job=job, attempt=record.attempt, part=part.index, state=state, **fields
                )
                self.report(part.cluster, report)

    def report(self, cluster: str, *parts: PartReport) -> None:
        """An executor reports; it has carried out every order."""
        last = self.state.clusters[cluster].next_seq - 1
        self.do(StatementReceived(statement=Report(cluster=cluster, last_seq=last, parts=parts)))

    def run(self, job: str) -> None:
        """Take a placed job to running."""
        self.say(job, PartState.READY)
        self.say(job, PartState.RUNNING, started=self.now)

    def finish(self, job: str, code: int = 0) -> None:
        """End a running job."""
        self.say(
            job,
            PartState.FINISHED,
            exit_code=code,
            started=self.now,
            ended=self.now,
            reason="exited",
        )

    def orders_for(self, job: str, kind: type[Any]) -> list[tuple[str, Any]]:
        """Orders of one kind about a job."""
        return [(c, o) for c, _, o in self.orders if isinstance(o, kind) and o.job == job]

    def notes(self, event: str) -> list[Mapping[str, Any]]:
        """The fields of log lines of one kind."""
        return [e.fields for e in self.effects if isinstance(e, LogLine) and e.event == event]

    def saved(self) -> dict[str, JobRecord]:
        """Every job as it was last written."""
        return {e.record.id: e.record for e in self.effects if isinstance(e, SaveJob)}

    def restarted(self, **settings: Any) -> Site:
        """The same site after a crash of the daemon: what was written, and nothing else."""
        state = self.state
        meta = {e.key: e.value for e in self.effects if isinstance(e, SaveMeta)}
        remembered = StoredState(
            maintenance=Maintenance(reserved=read_reserved(meta.get(RESERVED, ""))),
            jobs=list(self.saved().values()),
            tokens=dict(state.tokens),
            seqs={name: c.next_seq for name, c in state.clusters.items()},
            unacked={name: c.acked_seq + 1 for name, c in state.clusters.items()},
            epoch=state.epoch + 1,
            last=dataclasses.replace(state.last),
        )
        return Site(self.sizes, remembered=remembered, **settings)


def solves(site: Site) -> list[Solve]:
    """The rounds that it has asked a solver for."""
    return [effect for effect in site.effects if isinstance(effect, Solve)]


def patient(*arguments: Any, **settings: Any) -> Site:
    """A site whose executors may take their time."""
    return Site(*arguments, prepare_timeout_s=1e9, **settings)
