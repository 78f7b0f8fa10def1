"""Both cores under a seeded scheduler: lost, doubled, late messages, and crashes.

Real cores, no sockets: the network, the disks and the launchers are a few dictionaries. A
crash of the daemon comes before its write or after it and before its messages; a crash of an
executor keeps what was written and the parts' own folders, as the real ones do. After every
step the promises are checked; a failing seed replays exactly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from coalloc.core.coordinator import Coordinator, Remembered
from coalloc.core.effects import (
    Drop,
    Effect,
    Greet,
    Reply,
    Resend,
    SaveJob,
    SaveMeta,
    SaveToken,
    Send,
    Solve,
)
from coalloc.core.events import Disconnected, Event, Requested, Solved, Stated, Ticked
from coalloc.core.executor import (
    ClaimPart,
    EndPart,
    ExecutorCore,
    ExecutorEffect,
    ExecutorState,
    Heard,
    Key,
    PartNews,
    RemovePart,
    SaveProgress,
    Say,
    StartPart,
)
from coalloc.core.executor import Ticked as ExecutorTicked
from coalloc.core.messages import (
    Numbered,
    Order,
    PartReport,
    Ping,
    Prepare,
    Read,
    Statement,
    Welcome,
)
from coalloc.core.records import PART_ENDED, JobRecord, Launch, PartState
from coalloc.core.requests import Done, Submit
from coalloc.core.settings import ClusterSettings, Settings, Trigger
from tests.site import first_fit, reading

NODES = {"a": 2, "b": 2}
LEASE_S = 20.0


@dataclass
class Part:
    """A part's folder and processes: they outlive their executor."""

    order: Prepare
    state: PartState = PartState.PREPARING
    started: float | None = None
    ends: float = 0.0
    code: int | None = None
    reason: str = ""
    settled: bool = False

    def report(self) -> PartReport:
        return PartReport(
            job=self.order.job,
            attempt=self.order.attempt,
            part=self.order.part,
            state=self.state,
            exit_code=self.code,
            started=self.started,
            ended=self.ends if self.state is PartState.FINISHED else None,
            reason=self.reason,
        )


@dataclass
class Disk:
    """What the daemon has written."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    outbox: dict[str, dict[int, Order]] = field(default_factory=dict)
    epoch: int = 0

    def write(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SaveJob(record=record):
                    self.jobs[record.id] = record
                case SaveToken(user=user, token=token, job=job):
                    self.tokens[user, token] = job
                case SaveMeta(key=key, value=value):
                    self.meta[key] = value
                case Send(cluster=cluster, seq=seq, order=order):
                    self.outbox.setdefault(cluster, {})[seq] = order
                case Drop(cluster=cluster, through_seq=through):
                    box = self.outbox.get(cluster, {})
                    self.outbox[cluster] = {s: o for s, o in box.items() if s > through}


class World:
    """Daemon, two executors, a client and the network between them.

    Parameters
    ----------
    seed : int
    faults : float
        Chance of a fault at each step.
    """

    def __init__(self, seed: int, faults: float = 0.15) -> None:
        self.dice = random.Random(seed)
        self.faults = faults
        self.now = 1000.0
        self.beaten = 0.0
        self.disk = Disk()
        self.parts: dict[str, dict[Key, Part]] = {name: {} for name in NODES}
        self.progress: dict[str, ExecutorState] = {n: ExecutorState(cluster=n) for n in NODES}
        self.executors: dict[str, ExecutorCore | None] = dict.fromkeys(NODES)
        self.down: list[tuple[str, Numbered | Welcome | Ping]] = []
        self.up: list[Statement] = []
        self.readied: dict[tuple[str, int], dict[int, int]] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.acknowledged: dict[str, str] = {}
        self.wanted: dict[str, int] = {}
        self.daemon: Coordinator | None = None
        self.boot()
        for name in NODES:
            self.boot_executor(name)

    def boot(self) -> None:
        """Start the daemon from its disk."""
        disk = self.disk
        disk.epoch += 1
        past = Remembered(
            jobs=list(disk.jobs.values()),
            tokens=dict(disk.tokens),
            seqs={n: int(disk.meta.get(f"seq.{n}", "1")) for n in NODES},
            unacked={n: min(box) for n, box in disk.outbox.items() if box},
            epoch=disk.epoch,
            store="s",
            last_job=int(disk.meta.get("last_job", "0")),
        )
        settings = Settings(
            clusters=tuple(ClusterSettings(name=name) for name in NODES),
            triggers=(
                Trigger(kind="queue_length"),
                Trigger(kind="job_finished"),
                Trigger(kind="cluster_returned"),
            ),
            min_interval_s=0.0,
            prepare_timeout_s=8.0,
            lease_s=LEASE_S,
            backoff_first_s=0.5,
            backoff_max_s=4.0,
            keep_ended=10_000,
        )
        self.daemon = Coordinator(settings, past)

    def boot_executor(self, name: str) -> None:
        """Start an executor from what it wrote and from its parts' folders."""
        kept = self.progress[name]
        state = ExecutorState(
            cluster=name, store=kept.store, epoch=kept.epoch, last_seq=kept.last_seq
        )
        for key, part in self.parts[name].items():
            state.parts[key] = part.report()
        core = ExecutorCore(state)
        self.executors[name] = core
        self.carry_out(name, core.hello(self.now))

    def tell(self, event: Event) -> None:
        """One step of the daemon: handle, write, then speak; it may crash in between."""
        if self.daemon is None:
            return
        effects = self.daemon.handle(event, self.now)
        if self.chance(0.03):
            self.daemon = None
            return
        self.disk.write(effects)
        if self.chance(0.03):
            self.daemon = None
            return
        solves = [effect for effect in effects if isinstance(effect, Solve)]
        for effect in effects:
            self.speak(effect)
        for solve in solves:
            plan = first_fit(solve.snapshot)
            self.tell(Solved(round=solve.round, plan=plan, solve_s=0.0))

    def speak(self, effect: Effect) -> None:
        epoch = self.disk.epoch
        match effect:
            case Send(cluster=cluster, seq=seq, order=order):
                self.down.append((cluster, Numbered(epoch=epoch, seq=seq, order=order)))
            case Greet(cluster=cluster, base_seq=base):
                welcome = Welcome(store="s", epoch=epoch, base_seq=base, lease_s=LEASE_S)
                self.down.append((cluster, welcome))
            case Resend(cluster=cluster, from_seq=first):
                for seq, order in sorted(self.disk.outbox.get(cluster, {}).items()):
                    if seq >= first:
                        self.down.append((cluster, Numbered(epoch=epoch, seq=seq, order=order)))
            case Reply(origin=token, answer=Done(body={"job": job})):
                self.acknowledged[str(token)] = job

    def hear(self, name: str, message: Numbered | Welcome | Ping) -> None:
        core = self.executors[name]
        if core is not None:
            self.carry_out(name, core.handle(Heard(message=message), self.now))

    def carry_out(self, name: str, effects: list[ExecutorEffect]) -> None:
        """An executor's effects, in order; it may crash before any of them."""
        parts = self.parts[name]
        for effect in effects:
            if self.chance(0.01):
                self.executors[name] = None
                return
            match effect:
                case ClaimPart(order=order):
                    key = (order.job, order.attempt, order.part)
                    if key not in parts:
                        parts[key] = self.claimed(name, order)
                case StartPart(key=key):
                    self.start(name, parts[key])
                case EndPart(key=key):
                    end(parts[key], self.now)
                case RemovePart(key=key):
                    parts.pop(key, None)
                case SaveProgress(store=store, epoch=epoch, last_seq=last_seq):
                    kept = self.progress[name]
                    kept.store, kept.epoch, kept.last_seq = store, epoch, last_seq
                case Say(statement=statement):
                    self.up.append(statement)

    def claimed(self, name: str, order: Prepare) -> Part:
        """The launcher's answer to a claim."""
        return Part(order)

    def read(self, name: str) -> Read:
        """What a cluster's reader says now."""
        return Read(cluster=name, reading=reading(name, NODES[name]))

    def start(self, name: str, part: Part) -> None:
        """The barrier opens; a second time changes nothing."""
        if part.state is not PartState.READY:
            return
        order = part.order
        assert self.all_ready(order), f"{order.job} started before every part was ready"
        part.state, part.started = PartState.RUNNING, self.now
        part.ends = self.now + self.dice.choice([0.0, 1.0, 5.0])
        self.starts[order.job, order.part] = self.starts.get((order.job, order.part), 0) + 1

    def code_of(self, order: Prepare) -> int:
        """Exit code of a part's processes."""
        return 0

    def all_ready(self, order: Prepare) -> bool:
        """Every process of this attempt has been at a barrier."""
        return sum(self.readied.get((order.job, order.attempt), {}).values()) == order.size

    def chance(self, odds: float) -> bool:
        return self.faults > 0.0 and self.dice.random() < odds * self.faults / 0.15

    def step(self) -> None:
        """Something happens, somewhere."""
        self.now += self.dice.choice([0.0, 0.01, 0.1, 1.0])
        match self.dice.randrange(6):
            case 0 | 1:
                for _ in range(self.dice.randrange(12)):
                    self.deliver_down()
                    self.deliver_up()
            case 2:
                self.launchers_move()
            case 3:
                self.client_asks()
            case 4:
                self.beat()
            case _:
                for _ in range(20):
                    self.deliver_down()
                    self.deliver_up()
        self.fail_somewhere()
        self.check()

    def deliver_down(self) -> None:
        if self.down:
            cluster, message = self.down.pop(self.pick(len(self.down)))
            if self.chance(0.1):
                return
            if self.chance(0.1):
                self.down.append((cluster, message))
            self.hear(cluster, message)

    def deliver_up(self) -> None:
        if self.up:
            statement = self.up.pop(self.pick(len(self.up)))
            if self.chance(0.1):
                return
            if self.chance(0.1):
                self.up.append(statement)
            self.tell(Stated(statement=statement))

    def pick(self, count: int) -> int:
        """Mostly the oldest; out of order when faults are about."""
        return self.dice.randrange(count) if self.chance(0.3) else 0

    def launchers_move(self) -> None:
        for name, parts in self.parts.items():
            for part in parts.values():
                if part.state is PartState.PREPARING:
                    part.state = PartState.READY
                    order = part.order
                    seen = self.readied.setdefault((order.job, order.attempt), {})
                    seen[order.part] = sum(order.nodes.values())
                elif part.state is PartState.RUNNING and part.ends <= self.now:
                    part.state, part.code = PartState.FINISHED, self.code_of(part.order)
            core = self.executors[name]
            if core is not None:
                for part in list(parts.values()):
                    news = PartNews(report=part.report())
                    self.carry_out(name, core.handle(news, self.now))

    def client_asks(self) -> None:
        """A new submit, or the resend of one that was not answered."""
        unanswered = [token for token in self.wanted if token not in self.acknowledged]
        if not unanswered and len(self.wanted) < 12:
            unanswered = [f"t{len(self.wanted)}"]
            self.wanted[unanswered[0]] = self.dice.choice([1, 1, 2, 3, 4])
        if not unanswered:
            return
        token = unanswered[0]
        command = self.submit_of(token)
        self.tell(Requested(origin=token, user="u", uid=1, gid=1, operator=False, command=command))

    def submit_of(self, token: str) -> Submit:
        """What the client wants under this token; the same each time."""
        job = {"kind": "rigid", "procs": self.wanted[token], "base_time": 5.0}
        return Submit(token=token, job=job, launch=Launch(argv=("x",)))

    def beat(self) -> None:
        if self.now - self.beaten < 1.0:
            return
        self.beaten = self.now
        self.tell(Ticked())
        for name in NODES:
            core = self.executors[name]
            if core is not None:
                self.carry_out(name, core.handle(ExecutorTicked(), self.now))
                self.up.append(self.read(name))
            if self.chance(0.02):
                self.tell(Disconnected(cluster=name))
            if self.daemon is not None:
                known = self.daemon.state.clusters[name].connected
                self.down.append((name, Ping(epoch=self.disk.epoch, known=known)))

    def fail_somewhere(self) -> None:
        if self.chance(0.01):
            self.daemon = None
        if self.chance(0.01):
            self.executors[self.dice.choice(list(NODES))] = None
        if self.daemon is None and self.dice.random() < 0.2:
            self.boot()
        for name, core in self.executors.items():
            if core is None and self.dice.random() < 0.2:
                self.boot_executor(name)

    def check(self) -> None:
        """The promises that hold at every instant."""
        doubled = {
            key: count for key, count in self.starts.items() if count > self.runs_allowed(key[0])
        }
        assert not doubled, f"started twice: {doubled}"
        for name, parts in self.parts.items():
            busy: dict[str, int] = {}
            for part in parts.values():
                if part.state is PartState.RUNNING:
                    for node, count in part.order.nodes.items():
                        busy[node] = busy.get(node, 0) + count
            over = {node: count for node, count in busy.items() if count > 1}
            assert not over, f"two processes on one slot of {name}: {over}"
        for token, job in self.acknowledged.items():
            assert job in self.disk.jobs, f"{token} was acknowledged, and {job} is not on disk"

    def runs_allowed(self, job: str) -> int:
        """How often the processes of a job may have been started by now."""
        return 1

    def settle(self, steps: int = 4000) -> None:
        """Faults stop; everything must come to an end."""
        self.faults = 0.0
        if self.daemon is None:
            self.boot()
        for name, core in self.executors.items():
            if core is None:
                self.boot_executor(name)
        for _ in range(steps):
            self.step()
            if len(self.acknowledged) == 12 and self.is_over():
                return
        states = {job: str(record.state) for job, record in self.disk.jobs.items()}
        raise AssertionError(f"not settled: {states}, {len(self.acknowledged)} acknowledged")

    def is_over(self) -> bool:
        living = [
            part
            for parts in self.parts.values()
            for part in parts.values()
            if part.state not in PART_ENDED
        ]
        return not living and all(record.is_ended for record in self.disk.jobs.values())


def end(part: Part, now: float) -> None:
    """Release the claim, or end the processes."""
    if part.state in {PartState.PREPARING, PartState.READY}:
        part.state, part.reason = PartState.REFUSED, "aborted"
    elif part.state is PartState.RUNNING:
        part.state, part.reason, part.code, part.ends = PartState.FINISHED, "aborted", 143, now
