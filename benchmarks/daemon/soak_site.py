"""A site for the soak: the real cores, journal and store, in virtual time, under random faults.

Between daemon and executors messages are lost; each process ends in mid-air now and then and starts
from what is on disk; the disk fills up for a while, by a limit on what the operating system lets
this process write. Users send a submit again, with its token, until it is acknowledged.
"""

from __future__ import annotations

import heapq
import itertools
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.settings import core_settings

from coalloc.core.base.effects import (
    AppendEvent,
    DropOrders,
    Effect,
    Reply,
    ResendOrders,
    SendOrder,
    SendWelcome,
    Solve,
    Wake,
)
from coalloc.core.base.events import (
    CoreEvent,
    Requested,
    Solved,
    StatementReceived,
    StorageLost,
    StorageReturned,
    Ticked,
    TokenRecalled,
)
from coalloc.core.base.messages import Numbered, Ping, Read, Statement, Welcome
from coalloc.core.base.requests import Done, Submit
from coalloc.core.coordinator import Coordinator
from coalloc.core.executor import effects as effects_there
from coalloc.core.executor import machine as there
from coalloc.daemon.outbox import Delivery
from coalloc.daemon.solver.planner import plainly
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.writer import without_submits
from coalloc.model.event_kinds import EventKind
from coalloc.model.settings import ClusterConfig, TriggerConfig
from coalloc.model.sites.parts import Launch, PartKey, PartReport, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading

HOUR_S = 3600.0
READ_EVERY_S = 120.0
TEND_EVERY_S = 900.0
RETRY_S = 60.0
LOST = 0.02
"""Of the messages between daemon and executors, and of the answers to users."""
CRASH_EVERY_S = 4.0 * HOUR_S
FULL_EVERY_S = 30.0 * HOUR_S
FULL_FOR_S = HOUR_S
LAUNCH = Launch(argv=("true",))
ENDED = {PartState.FINISHED, PartState.REFUSED, PartState.LOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job of the log: when it is submitted, how wide it is, how long it runs, seconds."""

    at: float
    procs: int
    run_s: float


class SoakSite:
    """Daemon, executors and users; time jumps from event to event.

    Attributes
    ----------
    ends, runs : Counter of str
        How often each job has ended, by what was committed, and how often it was started.
    faults : Counter of str
        What has happened.
    """

    def __init__(
        self,
        path: Path,
        jobs: Sequence[Arrival],
        nodes: dict[str, int],
        *,
        keep_events: int,
        seed: int,
    ) -> None:
        self.path, self.nodes, self.keep_events = path, nodes, keep_events
        self.dice = random.Random(seed)
        self.now = 0.0
        self.is_calm = False
        self.acknowledged: dict[str, str] = {}
        self.ends: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._progress = {name: there.ExecutorState(cluster=name) for name in nodes}
        self._parts: dict[tuple[str, PartKey], PartReport] = {}
        self._unwritten: list[Effect] = []
        self._full_until = 0.0
        self.executors: dict[str, there.ExecutorCore] = {}
        self._settings = core_settings(
            clusters=tuple(ClusterConfig(name=name, link_gbps=10.0) for name in nodes),
            trigger=(TriggerConfig(kind="queue_length"), TriggerConfig(kind="job_finished")),
            min_interval_s=0.0,
            keep_ended=200,
            prepare_timeout_s=600.0,
            lease_s=1200.0,
            max_age_s=10.0 * READ_EVERY_S,
        )
        self._start_daemon()
        for name in nodes:
            self._start_executor(name)
        for n, job in enumerate(jobs):
            self._at(job.at, lambda n=n, job=job: self._submit(f"t{n}", job))  # type: ignore[misc]
        self._every(READ_EVERY_S, self._read)
        self._every(TEND_EVERY_S, self._tend)
        self._every(CRASH_EVERY_S, self._crash)
        self._every(FULL_EVERY_S, self._fill)

    def run_until(self, end: float) -> None:
        """Carry out what is due until then, seconds."""
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, call = heapq.heappop(self._agenda)
            call()

    def _at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), call))

    def _soon(self, call: Callable[[], None]) -> None:
        self._at(self.now, call)

    def _every(self, period: float, call: Callable[[], None]) -> None:
        def again() -> None:
            call()
            self._at(self.now + period * self.dice.uniform(0.5, 1.5), again)

        self._at(self.now + period, again)

    def _start_daemon(self) -> None:
        self.store = Store(self.path)
        memory = recall(self.store, self._settings.daemon.keep_ended)
        self.core = Coordinator(self._settings, memory.remembered)
        self.delivery = Delivery(self._deliver, lambda _: LAUNCH, epoch=self.core.state.epoch)
        self.delivery.restore(memory.outbox)
        self._unwritten = []

    def _start_executor(self, name: str) -> None:
        kept = self._progress[name]
        state = there.ExecutorState(
            cluster=name,
            identity=name,
            store=kept.store,
            epoch=kept.epoch,
            last_seq=kept.last_seq,
        )
        state.parts = {key: part for (at, key), part in self._parts.items() if at == name}
        self.executors[name] = there.ExecutorCore(state, report_every_s=READ_EVERY_S)
        self._obey(name, self.executors[name].hello(self.now))

    def _crash(self) -> None:
        """One of them ends in mid-air, and starts from its disk."""
        if self.is_calm or self._full_until > self.now:
            return  # a daemon does not start on a full disk
        victim = self.dice.choice(["daemon", *self.nodes])
        self.faults[f"crashes of {'the daemon' if victim == 'daemon' else 'executors'}"] += 1
        if victim != "daemon":
            self._start_executor(victim)
            return
        self.store.close()
        self._start_daemon()
        for name, core in self.executors.items():
            self._obey(name, core.hello(self.now))

    def _fill(self) -> None:
        if not self.is_calm:
            self.faults["full disks"] += 1
            self._full_until = self.now + FULL_FOR_S

    def _submit(self, token: str, job: Arrival) -> None:
        """Ask until there is an answer."""
        if token in self.acknowledged:
            return
        self._at(self.now + RETRY_S, lambda: self._submit(token, job))
        if self._unwritten:
            self.faults["submits refused"] += 1
            return
        fields = {"kind": "rigid", "procs": job.procs, "base_time": max(job.run_s, 1.0)}
        command = Submit(token=token, job={**fields, "proc_gbps": 0.001}, launch=LAUNCH)
        known = self.store.job_of_token("ann", token)
        if known is not None:
            self._offer(TokenRecalled(user="ann", token=token, job=known))
        event = Requested(origin=token, user="ann", uid=1, gid=1, operator=True, command=command)
        self._offer(event)

    def _read(self) -> None:
        for name, size in self.nodes.items():
            nodes = tuple(NodeReading(name=f"{name}{n}") for n in range(1, size + 1))
            reading = ClusterReading(cluster=name, nodes=nodes)
            self._say(Read(cluster=name, reading=reading, at=self.now))
            self._deliver(name, Ping(epoch=self.core.state.epoch))
            self._obey(name, self.executors[name].handle(effects_there.ExecutorTicked(), self.now))
        for name, left in self.delivery.waiting().items():
            if left:
                self.delivery.pump(name)
        self._offer(Ticked())

    def _tend(self) -> None:
        if self._full_until > self.now:
            return
        while self.store.prune(self.keep_events, 500) >= 500:
            pass
        while self.store.compact(128):
            pass

    def _offer(self, event: CoreEvent) -> None:
        self._carry_out(self.core.handle(event, self.now))

    def _carry_out(self, effects: list[Effect]) -> None:
        if self._unwritten:
            self._unwritten += effects
            return
        try:
            self._commit(effects)
        except StoreError:
            self._keep(effects)
            return
        for effect in effects:
            self._speak(effect)

    def _commit(self, effects: list[Effect]) -> None:
        with no_space(self._full_until > self.now):
            self.store.commit(effects)

    def _keep(self, effects: list[Effect]) -> None:
        """As the service does: no submits, no rounds, the rest is written when it can be."""
        self.faults["commits refused"] += 1
        kept, lost, _ = without_submits(effects)
        kept += self.core.handle(StorageLost(jobs=tuple(lost)), self.now)
        self._unwritten = [*kept, Wake(at=self.now)]
        self._at(self.now + RETRY_S, self._write_again)

    def _write_again(self) -> None:
        if not self._unwritten:
            return
        try:
            self._commit(self._unwritten)
        except StoreError:
            self._at(self.now + RETRY_S, self._write_again)
            return
        effects, self._unwritten = self._unwritten, []
        for effect in effects:
            self._speak(effect)
        self._offer(StorageReturned())

    def _speak(self, effect: Effect) -> None:
        match effect:
            case SendOrder(cluster=cluster, seq=seq, order=order):
                self.delivery.add(cluster, seq, order)
            case DropOrders(cluster=cluster, through_seq=seq):
                self.delivery.done(cluster, seq)
            case ResendOrders(cluster=cluster, from_seq=seq):
                self.delivery.replay(cluster, seq)
            case SendWelcome(cluster=cluster, base_seq=base):
                state = self.core.state
                welcome = Welcome(
                    store=state.store,
                    epoch=state.epoch,
                    base_seq=base,
                    lease_s=self._settings.start.lease_s,
                )
                self._deliver(cluster, welcome)
            case Reply(origin=str(token), answer=Done(body=body)) if not self._is_lost():
                job = str(body["job"])
                assert self.acknowledged.setdefault(token, job) == job, "two jobs of one token"
            case AppendEvent(kind=EventKind.JOB_ENDED, job=job):
                self.ends[job] += 1
            case Solve(round=number, snapshot=snapshot):
                answer = Solved(round=number, plan=plainly(snapshot), solve_s=0.0)
                epoch = self.core.state.epoch
                self._soon(lambda: self._offer(answer) if self._is_epoch(epoch) else None)
            case Wake(at=at):
                self._at(max(at, self.now), lambda: self._offer(Ticked()))
            case _:
                pass

    def _is_epoch(self, epoch: int) -> bool:
        return self.core.state.epoch == epoch

    def _is_lost(self) -> bool:
        lost = not self.is_calm and self.dice.random() < LOST
        self.faults["messages lost"] += lost
        return lost

    def _deliver(self, cluster: str, message: Numbered | Welcome | Ping) -> bool:
        if not self._is_lost():
            self._soon(lambda: self._hear_order(cluster, message))
        return True

    def _hear_order(self, cluster: str, message: Numbered | Welcome | Ping) -> None:
        heard = effects_there.MessageReceived(message=message)
        self._obey(cluster, self.executors[cluster].handle(heard, self.now))

    def _say(self, statement: Statement) -> None:
        if not self._is_lost():
            self._soon(lambda: self._offer(StatementReceived(statement=statement)))

    def _obey(self, cluster: str, effects: list[effects_there.ExecutorEffect]) -> None:
        for effect in effects:
            match effect:
                case effects_there.ClaimPart(order=order):
                    key = order.key
                    self._soon(lambda key=key: self._news(cluster, key, PartState.READY))  # type: ignore[misc]
                case effects_there.StartPart(key=key):
                    self._begin(cluster, key)
                case effects_there.EndPart(key=key):
                    self._news(cluster, key, PartState.REFUSED)
                case effects_there.RemovePart(key=key):
                    self._parts.pop((cluster, key), None)
                case effects_there.SaveProgress(store=store, epoch=epoch, last_seq=last):
                    self._progress[cluster] = there.ExecutorState(
                        cluster=cluster, store=store, epoch=epoch, last_seq=last
                    )
                case effects_there.SendStatement(statement=statement):
                    self._say(statement)
                case _:
                    pass

    def _begin(self, cluster: str, key: PartKey) -> None:
        before = self._parts.get((cluster, key))
        if before is None or before.state is not PartState.READY:
            return
        job, part = key.job, key.part
        self.runs[job] += part == 0
        self._news(cluster, key, PartState.RUNNING)
        record = self.core.state.jobs.get(job)
        run_s = getattr(record.job, "base_time", 1.0) if record is not None else 1.0
        self._at(self.now + run_s, lambda: self._news(cluster, key, PartState.FINISHED))

    def _news(self, cluster: str, key: PartKey, state: PartState) -> None:
        before = self._parts.get((cluster, key))
        if before is not None and before.state in ENDED:
            return
        if state is PartState.READY and before is not None:
            return
        job, attempt, part = key.job, key.attempt, key.part
        began = None if before is None else before.started
        report = PartReport(
            job=job,
            attempt=attempt,
            part=part,
            state=PartState.FINISHED if state is PartState.REFUSED and began is not None else state,
            exit_code=0 if state is PartState.FINISHED else None,
            started=self.now if state is PartState.RUNNING else began,
            ended=self.now if state in ENDED else None,
            reason="exited" if state is PartState.FINISHED else "",
        )
        self._parts[cluster, key] = report
        news = effects_there.PartNews(report=report)
        self._obey(cluster, self.executors[cluster].handle(news, self.now))


@contextmanager
def no_space(is_full: bool) -> Iterator[None]:
    """While it is full, no file of this process may grow."""
    if not is_full:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
