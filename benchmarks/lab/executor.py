"""A cluster's executor over a virtual Slurm queue: the real core, and the runners' latencies.

A claim reaches the queue after `SUBMIT_S`. When it is granted, its wrappers call (`CALL_S`); with
its nodes arranged, they are ready after `READY_S`, and run `GO_S` after the start order. After the
last process has ended, its nodes are free in `LEAVE_S`. States and expected starts of claims that
wait are read every `interval_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.lab.clock import Clock
from benchmarks.lab.queue import QueuedJob, SlurmQueue, minutes
from coalloc.core.base.messages import Numbered, Ping, Prepare, Read, Statement, Welcome
from coalloc.core.executor.effects import (
    ArrangePart,
    ClaimPart,
    EndPart,
    ExecutorEffect,
    ExecutorEvent,
    ExecutorTicked,
    HastenPart,
    MessageReceived,
    PartNews,
    RemovePart,
    SaveProgress,
    StartPart,
)
from coalloc.core.executor.machine import ExecutorCore, ExecutorState
from coalloc.core.executor.turn import carry_out
from coalloc.model.sites.parts import PART_ENDED, PartKey, PartReport, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.snapshot import Running

SUBMIT_S, CALL_S, READY_S, GO_S, LEAVE_S, ORDER_S = 0.2, 0.3, 0.1, 0.03, 0.5, 0.15
BEFORE_S = 0.25
"""From the grant of a plain job to its first line, s."""
KEPT_WAITS = 12


@dataclass(eq=False)
class LabPart:
    """One part: its claim and its processes."""

    order: Prepare
    state: PartState = PartState.PREPARING
    job: QueuedJob | None = None
    nodes: Mapping[str, int] | None = None
    is_known: bool = False
    """That it was granted has been heard."""
    arranged: bool = False
    hastened: bool = False
    is_over: bool = False
    """Its end was asked for."""
    expected: float | None = None
    detail: str = ""
    is_next: bool = False
    started: float | None = None
    ended: float | None = None
    reason: str = ""

    @property
    def key(self) -> PartKey:
        return self.order.key

    def report(self) -> PartReport:
        queued, waits = self.order.queue is not None, self.state is PartState.WAITING
        return PartReport(
            job=self.order.job,
            attempt=self.order.attempt,
            part=self.order.part,
            state=self.state,
            exit_code=0 if self.state is PartState.FINISHED else None,
            started=self.started,
            ended=self.ended,
            reason=self.reason or ("others_first" if waits else ""),
            detail=self.detail if waits else "",
            nodes=self.nodes if queued and self.is_known and self.nodes else {},
            expected=self.expected if waits else None,
            is_next=waits and self.is_next,
        )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim that was granted: for a job of so many processes, and with how many of them."""

    job: str
    size: int
    width: int
    granted: float
    started: float | None
    freed: float


class LabExecutor:
    """One cluster's executor, its runners and its readings."""

    def __init__(
        self,
        queue: SlurmQueue,
        clock: Clock,
        say: Callable[[Statement], None],
        run_s: Callable[[str], float],
        interval_s: float,
        extra_s: float,
    ) -> None:
        self.extra_s = extra_s
        self.queue, self.clock, self.say_up, self.run_s = queue, clock, say, run_s
        self.interval_s = interval_s
        self.core = ExecutorCore(ExecutorState(cluster=queue.name, identity=queue.name))
        self.parts: dict[PartKey, LabPart] = {}
        self.claims: list[Claim] = []
        self.waited: list[tuple[float, int]] = []
        self.kept: SaveProgress | None = None

    def boot(self) -> None:
        self._carry_out(self.core.hello(self.clock.now))
        self.read()

    def read(self) -> None:
        """Read the cluster, and have the core look at its leases; again after the interval."""
        now, name = self.clock.now, self.queue.name
        local = [job for job in self.queue.running if not job.is_ours]
        reading = ClusterReading(
            cluster=name,
            nodes=tuple(NodeReading(name=n, slots=self.queue.cpus) for n in self.queue.free),
            running=tuple(
                Running(
                    id=f"{name}:{job.number}",
                    nodes=job.nodes,
                    start=min(now, job.granted or now),
                    end=max(now, job.ends_by),
                    ours=False,
                )
                for job in local
            ),
            waiting=sum(not job.is_ours for job in self.queue.waiting),
            waited=tuple(self.waited[-KEPT_WAITS:]),
            queues=True,
            keeps_places=self.queue.priority == "fcfs",
        )
        for part in self.parts.values():
            if part.state is PartState.WAITING and part.job is not None:
                part.expected, part.detail = part.job.expected, part.job.reason
                part.is_next = self.queue.is_next(part.job, now)
                self._news(part)
        self._carry_out(self.core.handle(ExecutorTicked(), now))
        self.say(Read(cluster=name, reading=reading, at=now, run="1", epoch=self.core.state.epoch))
        self.clock.after(self.interval_s, self.read)

    def hear(self, message: Numbered | Welcome | Ping) -> None:
        self._carry_out(self.core.handle(MessageReceived(message=message), self.clock.now))

    def _news(self, part: LabPart) -> None:
        self._carry_out(self.core.handle(PartNews(report=part.report()), self.clock.now))

    def _carry_out(self, effects: list[ExecutorEffect]) -> None:
        carry_out(self.core, effects, self, self.clock.now)

    # -- what the launcher does

    def perform(self, effect: ExecutorEffect) -> Iterable[ExecutorEvent]:
        match effect:
            case ClaimPart(order=order):
                part = self.parts[order.key] = LabPart(order)
                self.clock.after(SUBMIT_S, partial(self._claim, part))
            case ArrangePart(key=key):
                part = self.parts[key]
                part.arranged = True
                self.clock.after(READY_S, partial(self._ready, part))
            case HastenPart(key=key):
                self.clock.after(ORDER_S, partial(self._begin, self.parts[key]))
            case StartPart(key=key):
                self.clock.after(GO_S, partial(self._run, self.parts[key]))
            case EndPart(key=key):
                if key in self.parts:
                    self.clock.after(ORDER_S, partial(self._end, self.parts[key]))
            case RemovePart(key=key):
                self.parts.pop(key, None)
            case _:
                self.other(effect)
        return ()

    def other(self, effect: ExecutorEffect) -> None:
        """Carry out effects that only other versions of the core have."""
        if type(effect).__name__ == "WithdrawPart":
            part = self.parts.get(effect.key)  # type: ignore[attr-defined]
            if part is not None and part.state is PartState.WAITING:
                self.clock.after(ORDER_S, partial(self._end, part, "withdrawn", waits_only=True))

    def _claim(self, part: LabPart) -> None:
        order, now = part.order, self.clock.now
        if part.is_over:
            return
        terms = order.queue
        hold_s = 0.0 if terms is None else terms.hold_s
        limit_s = minutes(
            (order.time_limit or 60.0) + self.extra_s + (hold_s if self.extra_s else 0.0)
        )
        job = QueuedJob(
            number=0,
            width=order.procs,
            limit_s=limit_s,
            submitted=now,
            on_start=partial(self._granted, part),
            is_ours=True,
            nice_s=getattr(terms, "nice", 0) or 0.0,
        )
        part.job = job
        if (terms is None or terms.at_once) and self.queue.try_now(job, order.nodes, now):
            return
        if terms is None:
            self._refuse(part, "others_first")
            return
        job.begin = now + terms.begin_s if terms.begin_s >= 1.0 and not part.hastened else 0.0
        part.state = PartState.WAITING
        self._news(part)
        self.queue.submit(job, now)

    def _granted(self, part: LabPart, now: float, nodes: Mapping[str, int]) -> None:
        part.nodes = nodes
        self.clock.after(CALL_S, partial(self._called, part))

    def _called(self, part: LabPart) -> None:
        """The wrappers have called: that the part is granted is known."""
        if part.is_over:
            return
        order = part.order
        part.state, part.is_known = PartState.PREPARING, True
        self._news(part)
        is_whole = order.size == order.procs and dict(part.nodes or {}) == dict(order.nodes)
        if order.queue is None or is_whole:
            self.clock.after(READY_S, partial(self._ready, part))

    def _ready(self, part: LabPart) -> None:
        if not part.is_over and part.state is PartState.PREPARING:
            part.state = PartState.READY
            self._news(part)

    def _run(self, part: LabPart) -> None:
        if part.is_over or part.state is not PartState.READY:
            return
        part.state, part.started = PartState.RUNNING, self.clock.now
        self._news(part)
        self.clock.after(self.run_s(part.order.job), partial(self._end, part, ""))

    def _end(self, part: LabPart, reason: str = "aborted", *, waits_only: bool = False) -> None:
        """Its processes have ended, or are to; a claim is given back."""
        if part.state in PART_ENDED or (waits_only and part.is_known):
            return
        part.is_over, part.ended = True, self.clock.now
        if part.state is PartState.RUNNING:
            part.state, part.reason = PartState.FINISHED, reason or "exited"
        else:
            part.state, part.reason = PartState.REFUSED, reason
        job = part.job
        if job is not None and job.granted is not None:
            self.clock.after(LEAVE_S, partial(self._left, part, job))
        elif job is not None:
            self.queue.end(job, self.clock.now)
        self._news(part)

    def _left(self, part: LabPart, job: QueuedJob) -> None:
        assert job.granted is not None
        self.claims.append(
            Claim(
                job=part.order.job,
                size=part.order.size,
                width=job.width,
                granted=job.granted,
                started=part.started,
                freed=self.clock.now,
            )
        )
        self.queue.end(job, self.clock.now)

    def _refuse(self, part: LabPart, reason: str) -> None:
        part.is_over, part.state, part.reason = True, PartState.REFUSED, reason
        self._news(part)

    def _begin(self, part: LabPart) -> None:
        """A claim that was put off takes its turn."""
        part.hastened = True
        if part.job is not None and part.job.granted is None and not part.is_over:
            self.queue.update(part.job, self.clock.now, begin=0.0)

    # -- the rest of what an executor's turn needs

    def save(self, progress: SaveProgress) -> None:
        self.kept = progress

    def say(self, statement: Statement) -> None:
        self.say_up(statement)

    def explain(self, effect: ExecutorEffect, error: Exception) -> str:
        raise error
