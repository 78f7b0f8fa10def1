"""The executor's state machine: orders from the daemon, news from the launcher.

It never decides to start anything: a part starts after a `Start` order that names its job
and attempt, and only if its claim still stands. An order that was carried out before is
answered with the present state of its part. Orders of an older epoch than the newest heard
are refused: they come from a daemon that has been replaced.

Notes
-----
`SaveProgress` is on disk before the order's acknowledgement goes out, so an order is never
carried out a second time after a restart, and none is acknowledged that was not. While it cannot
be written, an older number is acknowledged, and no part is removed: should the orders be sent
again after a crash, the part is there to show that it has run.

A launcher may fail at any effect, having carried it out or not. A claim is given up, and its part
refused; so is a part that cannot be told of its job's nodes. A start is tried again for
`START_WITHIN_S`, then its part is ended, so that a job never runs in half; an end or a removal is
tried again until it succeeds. Starts and ends that are owed are part of the progress, so that a
restart does not lose them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coalloc.core.base.messages import (
    ABILITIES,
    Abort,
    Arrange,
    Dismiss,
    Forget,
    Hasten,
    Hello,
    Limit,
    Numbered,
    Order,
    Ping,
    Prepare,
    Report,
    Start,
    TurnedAway,
    Welcome,
)
from coalloc.core.executor.effects import (
    ArrangePart,
    ClaimPart,
    DismissJob,
    EffectFailed,
    EndPart,
    ExecutorEffect,
    ExecutorEvent,
    ExecutorLogLine,
    ExecutorTicked,
    HastenPart,
    LimitPart,
    MessageReceived,
    PartEffect,
    PartNews,
    ProgressUnwritten,
    RemovePart,
    RenewLeases,
    SaveProgress,
    SendStatement,
    StartPart,
    TellStarted,
)
from coalloc.model.sites.parts import PART_ENDED, PartKey, PartReport, PartState
from coalloc.model.values import replace

LAPSED = "lease over: the daemon is silent"
HELD = frozenset({PartState.PREPARING, PartState.READY})
"""Claims that hold nodes, or may: they lapse with the lease. One that waits keeps its turn."""
UNGRANTED = frozenset({PartState.WAITING, PartState.PREPARING})
"""Claims that may be in a queue: one is preparing until it is heard that it waits."""
START_WITHIN_S = 10.0
"""A start that fails is tried again for so long, seconds; then its part is ended."""
HELLO_EVERY_S = 1.0
"""A hello has the orders sent again; one that waits for its answer is not repeated, seconds."""


Retried = HastenPart | StartPart | EndPart | RemovePart


@dataclass(slots=True)
class ExecutorState:
    """State of one executor."""

    cluster: str
    identity: str = ""
    version: str = ""
    abilities: tuple[str, ...] = ABILITIES
    store: str = ""
    epoch: int = 0
    last_seq: int = 0
    parts: dict[PartKey, PartReport] = field(default_factory=dict)
    let_go: dict[PartKey, float] = field(default_factory=dict)
    """When this run of the executor was told to start them; that they have, it may hear later."""
    undone: dict[Retried, None] = field(default_factory=dict)
    base_seq: int = 0
    """The number before the first that the daemon keeps for us."""
    kept_seq: int | None = None
    """The last order that is on disk, while later ones are not."""
    welcomed: bool = False
    last_heard: float = float("-inf")
    last_said: float = float("-inf")
    last_hello: float = float("-inf")
    silent: bool = False
    turned_away: bool = False
    lease_s: float = 60.0

    def recall(self, kept: SaveProgress) -> None:
        """Go on where the executor before this one has stopped."""
        self.store, self.epoch, self.last_seq = kept.store, kept.epoch, kept.last_seq
        why = "its end failed before the executor was restarted"
        starts = (StartPart(key=key) for key in kept.starts)
        ends = (EndPart(key=key, reason=why) for key in kept.ends)
        self.undone = dict.fromkeys((*starts, *ends))


class ExecutorCore:
    """`handle(event, now) -> effects` of one cluster's executor."""

    def __init__(self, state: ExecutorState, *, report_every_s: float = 2.0) -> None:
        self.state = state
        self.report_every_s = report_every_s
        self._out: list[ExecutorEffect] = []

    def hello(self, now: float) -> list[ExecutorEffect]:
        state = self.state
        state.last_said = state.last_hello = now
        hello = Hello(
            cluster=state.cluster,
            identity=state.identity,
            store=state.store,
            last_seq=self._written(),
            parts=tuple(state.parts.values()),
            version=state.version,
            abilities=state.abilities,
        )
        return [SendStatement(statement=hello)]

    def handle(self, event: ExecutorEvent, now: float) -> list[ExecutorEffect]:
        """Take in one event; the caller carries out the effects, in order."""
        self._out = []
        match event:
            case MessageReceived(message=Welcome() as welcome):
                self._welcomed(welcome, now)
            case MessageReceived(message=Ping(epoch=epoch, known=known)):
                if epoch == self.state.epoch:
                    self.state.last_heard = now
                    self._out.append(RenewLeases())
                if epoch > self.state.epoch or (epoch == self.state.epoch and not known):
                    self._ask_welcome(now)
            case MessageReceived(message=TurnedAway(why=why)):
                if not self.state.turned_away:
                    self._log("turned_away", "warning", why=why)
                self.state.turned_away = True
            case MessageReceived(message=Numbered() as numbered):
                self._ordered(numbered, now)
            case PartNews(report=report):
                self._news(report, now)
            case ExecutorTicked():
                self._ticked(now)
            case EffectFailed(effect=effect, why=why):
                self._failed(effect, why, now)
            case ProgressUnwritten(kept=kept):
                same = kept is not None and kept.store == self.state.store
                last = kept.last_seq if kept is not None and same else 0
                self.state.kept_seq = max(self.state.base_seq, last)
                self._report(now)
        return self._out

    def _welcomed(self, welcome: Welcome, now: float) -> None:
        state = self.state
        if welcome.store == state.store and welcome.epoch < state.epoch:
            self._log("old_daemon_refused", "warning", epoch=welcome.epoch, known=state.epoch)
            return
        if (welcome.store, welcome.epoch) != (state.store, state.epoch):
            self._end_unstarted()
        if welcome.store != state.store:
            if state.store:
                self._log("daemon_store_changed", "warning", store=welcome.store)
            state.store, state.last_seq = welcome.store, welcome.base_seq - 1
        state.base_seq = welcome.base_seq - 1
        state.last_seq = max(state.last_seq, state.base_seq)
        if not state.welcomed or welcome.epoch != state.epoch or state.silent:
            self._log("daemon_connected", "info", epoch=welcome.epoch, parts=len(state.parts))
        state.silent = state.turned_away = False
        state.epoch, state.lease_s = welcome.epoch, welcome.lease_s
        state.welcomed, state.last_heard = True, now
        state.last_hello = float("-inf")
        self._save()
        self._out.append(RenewLeases())
        if welcome.recall:
            removals = (each for each in state.undone if isinstance(each, RemovePart) and each.how)
            self._out.append(TellStarted(owed=tuple((*r.key.start, r.how) for r in removals)))

    def _ordered(self, numbered: Numbered, now: float) -> None:
        state = self.state
        if not state.welcomed or numbered.epoch != state.epoch:
            if self._ask_welcome(now):
                self._log("order_refused", "warning", epoch=numbered.epoch, known=state.epoch)
            return
        state.last_heard = now
        if numbered.seq <= state.last_seq:
            self._report(now, numbered.order.job)
            return
        if numbered.seq > state.last_seq + 1:
            if self._ask_welcome(now):
                expected = state.last_seq + 1
                self._log("orders_missed", "warning", expected=expected, got=numbered.seq)
            return
        self._carry_out(numbered.order, now)
        state.last_seq = numbered.seq
        self._save()
        self._report(now, numbered.order.job)

    def _ask_welcome(self, now: float) -> bool:
        """Say hello, unless an answer to the last one may still come; whether it was said."""
        if now - self.state.last_hello < HELLO_EVERY_S:
            return False
        self._out += self.hello(now)
        return True

    def _carry_out(self, order: Order, now: float) -> None:
        match order:
            case Prepare():
                key, parts = order.key, self.state.parts
                newest = {each.job: each.attempt for each in order.keys}
                if any(k.attempt > newest.get(k.job, k.attempt) for k in parts):
                    refusal = {"reason": "superseded", "detail": "a newer attempt is here"}
                    for each in order.keys:
                        parts.setdefault(each, each.report(PartState.REFUSED, **refusal))
                elif key not in parts:
                    pack = key.pack if order.members else ""
                    for each in order.keys:
                        parts[each] = each.report(PartState.PREPARING, pack=pack)
                    self._out.append(ClaimPart(order=order))
            case Dismiss(foreign=foreign):
                self._out.append(DismissJob(foreign=foreign))
            case _:
                starts = {(order.job, order.attempt)}
                if isinstance(order, Forget):
                    starts.update(order.others)
                for key in [key for key in self.state.parts if key.start in starts]:
                    self._change(order, key, now)

    def _change(self, order: Order, key: PartKey, now: float) -> None:
        """Carry out an order on one part, where that is as far as the order supposes."""
        part = self.state.parts[key].state
        match order:
            case Arrange() if part in HELD:
                self._out.append(ArrangePart(key=key, order=order))
            case Hasten() if part in UNGRANTED:
                self._out.append(HastenPart(key=key))
            case Limit(time_limit=limit_s, instead_of=before) if part not in PART_ENDED:
                self._out.append(LimitPart(key=key, limit_s=limit_s, instead_of=before))
            case Start(at=at) if part in HELD:
                self.state.undone.pop(EndPart(key=key, reason=LAPSED), None)  # it spoke
                self._let_go(key, now)
                self._out.append(StartPart(key=key, at=at))
            case Abort(reason=reason, claim_only=claim_only) if part not in PART_ENDED:
                runs = part is PartState.RUNNING or key in self.state.let_go
                if not (runs and claim_only):
                    self.state.undone.pop(StartPart(key=key), None)
                    self._out.append(EndPart(key=key, reason=reason))
            case Forget() if part in PART_ENDED:
                report = self.state.parts.pop(key)
                self.state.let_go.pop(key, None)
                self._remove(report)

    def _let_go(self, key: PartKey, now: float) -> None:
        """Note that a part was told to start, and with it those behind it."""
        self.state.let_go.setdefault(key, now)
        if pack := self.state.parts[key].pack:
            for each, report in self.state.parts.items():
                if report.pack == pack:
                    self.state.let_go.setdefault(each, now)

    def _news(self, report: PartReport, now: float) -> None:
        """Take in what the launcher says; an end is final."""
        key = report.key
        old = self.state.parts.get(key)
        if old is None and report.state in PART_ENDED:
            self._remove(report)  # its claim had failed, and it was forgotten before it ended
        if old is None or old.state in PART_ENDED or old == report:
            return
        self.state.parts[key] = report
        if report.is_behind:
            return  # How the first of its pack is says the same.
        self._out.append(
            SendStatement(
                statement=Report(
                    cluster=self.state.cluster, last_seq=self._written(), parts=(report,)
                )
            )
        )
        self.state.last_said = now

    def _remove(self, report: PartReport) -> None:
        """Remove a part, as soon as it is on disk that its orders were carried out."""
        how = "" if report.state is PartState.REFUSED else str(report.state)
        removal = RemovePart(key=report.key, how=how)
        if self.state.kept_seq is None:
            self._out.append(removal)
        else:
            self.state.undone[removal] = None

    def _failed(self, effect: ClaimPart | PartEffect, why: str, now: float) -> None:
        """Take in that the launcher has failed at an effect; it may have been carried out."""
        match effect:
            case ClaimPart(order=order):
                refusal = {"reason": "executor_failed", "detail": why}
                for each in order.keys:
                    self._news(each.report(PartState.REFUSED, **refusal), now)
                self._out.append(EndPart(key=order.key, reason="its claim failed"))
            case ArrangePart(key=key):
                self._out.append(EndPart(key=key, reason=f"it could not be arranged: {why}"))
            case StartPart(key=key) if now - self.state.let_go.get(key, now) >= START_WITHIN_S:
                self._out.append(EndPart(key=key, reason=f"its start failed: {why}"))
            case LimitPart(key=key, instead_of=before) if key in self.state.parts:
                refused = replace(
                    self.state.parts[key], time_limit=before, limit_refused=why or "refused"
                )
                self._news(refused, now)
            case HastenPart() | StartPart() | EndPart() | RemovePart():
                owed = StartPart(key=effect.key) if isinstance(effect, StartPart) else effect
                self.state.undone[owed] = None
                self._save()

    def _try_again(self, now: float) -> None:
        state = self.state
        for effect in list(state.undone):
            match effect:
                case StartPart(key=key):
                    part = state.parts.get(key)
                    if part is not None and part.state in HELD:
                        if not state.welcomed:
                            continue  # another daemon may have been put in its place
                        self._let_go(key, now)
                        self._out.append(effect)
                case HastenPart(key=key):
                    part = state.parts.get(key)
                    if part is not None and part.state in UNGRANTED:
                        self._out.append(effect)
                case RemovePart() if state.kept_seq is not None:
                    continue
                case _:
                    self._out.append(effect)
            del state.undone[effect]

    def _end_unstarted(self) -> None:
        """End what a former daemon has had started, in vain: the next may not know of it."""
        state = self.state
        for effect in [each for each in state.undone if isinstance(each, StartPart)]:
            del state.undone[effect]
            part = state.parts.get(effect.key)
            if part is not None and part.state in HELD:
                why = "its start failed, and the daemon was replaced"
                self._out.append(EndPart(key=effect.key, reason=why))

    def _ticked(self, now: float) -> None:
        state = self.state
        self._try_again(now)
        if state.welcomed:
            self._save()
        if now - state.last_heard > state.lease_s:
            if state.welcomed and not state.silent:
                state.silent = True
                self._log("daemon_silent", "warning", seconds=round(now - state.last_heard, 1))
            for key, report in state.parts.items():
                if report.state in HELD and key not in state.let_go:
                    self._out.append(EndPart(key=key, reason=LAPSED))
        if now - state.last_said >= self.report_every_s:
            if state.welcomed and now - state.last_heard <= state.lease_s:
                self._report(now)
            else:
                self._out += self.hello(now)

    def _report(self, now: float, job: str | None = None) -> None:
        state = self.state
        if job is None:
            state.last_said = now
        parts = tuple(p for p in state.parts.values() if job is None or p.job == job)
        report = Report(cluster=state.cluster, last_seq=self._written(), parts=parts)
        self._out.append(SendStatement(statement=report))

    def _written(self) -> int:
        """The last order that is carried out, and on disk as soon as this is said."""
        return self.state.last_seq if self.state.kept_seq is None else self.state.kept_seq

    def progress(self) -> SaveProgress:
        """Progress that a restart has to know."""
        state = self.state
        return SaveProgress(
            store=state.store,
            epoch=state.epoch,
            last_seq=state.last_seq,
            starts=tuple(e.key for e in state.undone if isinstance(e, StartPart)),
            ends=tuple(e.key for e in state.undone if isinstance(e, EndPart)),
        )

    def _save(self) -> None:
        self.state.kept_seq = None
        self._out.append(self.progress())

    def _log(self, event: str, level: str, **fields: object) -> None:
        self._out.append(ExecutorLogLine(event=event, fields=fields, level=level))
