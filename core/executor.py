"""The executor's state machine: orders from the daemon, news from the launcher.

It never decides to start anything: a part starts after a `Start` order that names its job
and attempt, and only if its claim still stands. An order that was carried out before is
answered with the present state of its part. Orders of an older epoch than the newest heard
are refused: they come from a daemon that has been replaced.

Notes
-----
`SaveProgress` is on disk before the order's acknowledgement goes out, so an order is never
carried out a second time after a restart, and none is acknowledged that was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coalloc.core.messages import (
    Abort,
    Dismiss,
    Forget,
    Hello,
    Numbered,
    Order,
    PartReport,
    Ping,
    Prepare,
    Report,
    Start,
    Statement,
    TurnedAway,
    Welcome,
)
from coalloc.core.records import PART_ENDED, PartState

HELLO_EVERY_S = 1.0
"""A hello has the orders sent again; one that waits for its answer is not repeated, seconds."""
Key = tuple[str, int, int]
"""Job, attempt, part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A message of the daemon arrived."""

    message: Numbered | Welcome | Ping | TurnedAway


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNews:
    """The launcher says how a part is."""

    report: PartReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time passed."""


ExecutorEvent = Heard | PartNews | Ticked


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPart:
    """Claim the nodes and hold the processes at the barrier."""

    order: Prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPart:
    """Open the barrier."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPart:
    """Release the claim or end the processes."""

    key: Key
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePart:
    """Remove what is kept of an ended part."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissJob:
    """Cancel a job of the batch system's own that was handed over."""

    foreign: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLeases:
    """The daemon is there: claims stand for another lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveProgress:
    """Write the number of the last order carried out, before anything is said of it."""

    store: str
    epoch: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Send a statement to the daemon."""

    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Write a log line."""

    event: str
    fields: Mapping[str, object]
    level: str = "info"


ExecutorEffect = (
    ClaimPart
    | StartPart
    | EndPart
    | RemovePart
    | DismissJob
    | RenewLeases
    | SaveProgress
    | Say
    | Tell
)


@dataclass(slots=True)
class ExecutorState:
    """What one executor knows."""

    cluster: str
    identity: str = ""
    store: str = ""
    epoch: int = 0
    last_seq: int = 0
    parts: dict[Key, PartReport] = field(default_factory=dict)
    let_go: set[Key] = field(default_factory=set)
    """Told to start by this run of the executor, which may hear later than that that they have."""
    welcomed: bool = False
    last_heard: float = float("-inf")
    last_said: float = float("-inf")
    last_hello: float = float("-inf")
    silent: bool = False
    turned_away: bool = False
    lease_s: float = 60.0


class ExecutorCore:
    """`handle(event, now) -> effects` of one cluster's executor."""

    def __init__(self, state: ExecutorState, *, report_every_s: float = 2.0) -> None:
        self.state = state
        self.report_every_s = report_every_s
        self._out: list[ExecutorEffect] = []

    def hello(self, now: float) -> list[ExecutorEffect]:
        """Begin or resume a conversation."""
        state = self.state
        state.last_said = state.last_hello = now
        hello = Hello(
            cluster=state.cluster,
            identity=state.identity,
            store=state.store,
            last_seq=state.last_seq,
            parts=tuple(state.parts.values()),
        )
        return [Say(statement=hello)]

    def handle(self, event: ExecutorEvent, now: float) -> list[ExecutorEffect]:
        """Take in one event; the caller carries out the effects, in order."""
        self._out = []
        match event:
            case Heard(message=Welcome() as welcome):
                self._welcomed(welcome, now)
            case Heard(message=Ping(epoch=epoch, known=known)):
                if epoch == self.state.epoch:
                    self.state.last_heard = now
                    self._out.append(RenewLeases())
                if epoch > self.state.epoch or (epoch == self.state.epoch and not known):
                    self._ask_welcome(now)
            case Heard(message=TurnedAway(why=why)):
                if not self.state.turned_away:
                    self._tell("turned_away", "warning", why=why)
                self.state.turned_away = True
            case Heard(message=Numbered() as numbered):
                self._ordered(numbered, now)
            case PartNews(report=report):
                self._news(report, now)
            case Ticked():
                self._ticked(now)
        return self._out

    def _welcomed(self, welcome: Welcome, now: float) -> None:
        state = self.state
        if welcome.store == state.store and welcome.epoch < state.epoch:
            self._tell("old_daemon_refused", "warning", epoch=welcome.epoch, known=state.epoch)
            return
        if welcome.store != state.store:
            if state.store:
                self._tell("daemon_store_changed", "warning", store=welcome.store)
            state.store, state.last_seq = welcome.store, welcome.base_seq - 1
        state.last_seq = max(state.last_seq, welcome.base_seq - 1)
        if not state.welcomed or welcome.epoch != state.epoch or state.silent:
            self._tell("daemon_connected", "info", epoch=welcome.epoch, parts=len(state.parts))
        state.silent = state.turned_away = False
        state.epoch, state.lease_s = welcome.epoch, welcome.lease_s
        state.welcomed, state.last_heard = True, now
        state.last_hello = float("-inf")
        self._save()
        self._out.append(RenewLeases())

    def _ordered(self, numbered: Numbered, now: float) -> None:
        state = self.state
        if not state.welcomed or numbered.epoch != state.epoch:
            if self._ask_welcome(now):
                self._tell("order_refused", "warning", epoch=numbered.epoch, known=state.epoch)
            return
        state.last_heard = now
        if numbered.seq <= state.last_seq:
            self._report(now, numbered.order.job)
            return
        if numbered.seq > state.last_seq + 1:
            if self._ask_welcome(now):
                expected = state.last_seq + 1
                self._tell("orders_missed", "warning", expected=expected, got=numbered.seq)
            return
        self._carry_out(numbered.order)
        state.last_seq = numbered.seq
        self._save()
        self._report(now, numbered.order.job)

    def _ask_welcome(self, now: float) -> bool:
        """Say hello, unless an answer to the last one may still come; whether it was said."""
        if now - self.state.last_hello < HELLO_EVERY_S:
            return False
        self._out += self.hello(now)
        return True

    def _carry_out(self, order: Order) -> None:
        match order:
            case Prepare():
                self._prepare(order)
            case Start(job=job, attempt=attempt):
                for key in self._keys(job, attempt):
                    if self.state.parts[key].state in {PartState.READY, PartState.PREPARING}:
                        self.state.let_go.add(key)
                        self._out.append(StartPart(key=key))
            case Abort(job=job, attempt=attempt, reason=reason):
                for key in self._keys(job, attempt):
                    if self.state.parts[key].state not in PART_ENDED:
                        self._out.append(EndPart(key=key, reason=reason))
            case Forget(job=job, attempt=attempt):
                for key in self._keys(job, attempt):
                    if self.state.parts[key].state in PART_ENDED:
                        del self.state.parts[key]
                        self.state.let_go.discard(key)
                        self._out.append(RemovePart(key=key))
            case Dismiss(foreign=foreign):
                self._out.append(DismissJob(foreign=foreign))

    def _keys(self, job: str, attempt: int) -> list[Key]:
        return [key for key in self.state.parts if key[:2] == (job, attempt)]

    def _prepare(self, order: Prepare) -> None:
        state = self.state
        key = (order.job, order.attempt, order.part)
        if key in state.parts:
            return
        report = PartReport(
            job=order.job,
            attempt=order.attempt,
            part=order.part,
            state=PartState.PREPARING,
        )
        newer = [k for k in state.parts if k[0] == order.job and k[1] > order.attempt]
        if newer:
            report = replace(
                report,
                state=PartState.REFUSED,
                reason="superseded",
                detail="a newer attempt is here",
            )
        state.parts[key] = report
        if not newer:
            self._out.append(ClaimPart(order=order))

    def _news(self, report: PartReport, now: float) -> None:
        """Take in what the launcher says; an end is final."""
        key = (report.job, report.attempt, report.part)
        old = self.state.parts.get(key)
        if old is None or old.state in PART_ENDED or old == report:
            return
        self.state.parts[key] = report
        self._out.append(
            Say(
                statement=Report(
                    cluster=self.state.cluster, last_seq=self.state.last_seq, parts=(report,)
                )
            )
        )
        self.state.last_said = now

    def _ticked(self, now: float) -> None:
        state = self.state
        if now - state.last_heard > state.lease_s:
            if state.welcomed and not state.silent:
                state.silent = True
                self._tell("daemon_silent", "warning", seconds=round(now - state.last_heard, 1))
            for key, report in state.parts.items():
                is_held = report.state in {PartState.PREPARING, PartState.READY}
                if is_held and key not in state.let_go:
                    self._out.append(EndPart(key=key, reason="lease over: the daemon is silent"))
        if now - state.last_said >= self.report_every_s:
            if state.welcomed and now - state.last_heard <= state.lease_s:
                self._report(now)
            else:
                self._out += self.hello(now)

    def _report(self, now: float, job: str | None = None) -> None:
        """Say how all parts are, or those of one job."""
        state = self.state
        if job is None:
            state.last_said = now
        parts = tuple(p for p in state.parts.values() if job is None or p.job == job)
        report = Report(cluster=state.cluster, last_seq=state.last_seq, parts=parts)
        self._out.append(Say(statement=report))

    def _save(self) -> None:
        state = self.state
        self._out.append(
            SaveProgress(store=state.store, epoch=state.epoch, last_seq=state.last_seq)
        )

    def _tell(self, event: str, level: str, **fields: object) -> None:
        self._out.append(Tell(event=event, fields=fields, level=level))
