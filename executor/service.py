"""The executor's loop: one cluster's adapter between the daemon and the batch system.

Readings run in a thread of their own with a time limit, so that a batch system that hangs
delays nothing else. Orders and the launcher's news go through `coalloc.core.executor.machine`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from structlog.stdlib import BoundLogger

import coalloc
from coalloc.adapters.base import Adapter, AdapterError
from coalloc.adapters.runner import durable
from coalloc.core.base.messages import (
    STAGES,
    Goodbye,
    Numbered,
    Ping,
    Read,
    Statement,
    Stream,
    Streamed,
    TurnedAway,
    Welcome,
)
from coalloc.core.executor.effects import (
    ExecutorEffect,
    ExecutorEvent,
    ExecutorTicked,
    MessageReceived,
    PartNews,
)
from coalloc.core.executor.machine import ExecutorCore, ExecutorState
from coalloc.core.executor.turn import carry_out
from coalloc.executor.access import OPEN_ACCESS, ExecutorAccess
from coalloc.executor.actions import LauncherActions, ProgressFile, in_words, kept_identity
from coalloc.executor.staging import Stager
from coalloc.executor.started import StartedFile
from coalloc.executor.streams import PartStreams
from coalloc.model.sites.parts import PartKey, PartReport
from coalloc.runtime.logs import RateLimit
from coalloc.wire.codec import decode_for_executor, encode_message
from coalloc.wire.contexts import new_context
from coalloc.wire.curve import REFUSED, SUCCEEDED
from coalloc.wire.frames import WireError
from coalloc.wire.sockets import DEALER, AsyncSocket

TICK_S = 1.0
POLL_S = 0.25
"""Between looks at the launcher where it cannot call for attention, seconds."""
LONGEST_PAUSE = 0.5
"""From one reading to the next, at most this share of the age at which one is stale."""
READ_ANYWAY_S = 300.0
"""From one reading to the next while another executor reads the same machine."""
SLOW_PAUSE = 3.0
"""One that took so long is followed by the next no sooner than this multiple later."""
MAX_BYTES = 64 << 20
TROUBLES_TOLD_S = 60.0


class ExecutorService:
    """One cluster's executor.

    `state_dir` keeps the number of the last order carried out; a change of the wall clock does not
    touch `clock`, by which leases are measured; `access` has its key, and whose jobs it starts.
    `refused` is set when the daemon has refused its key, after which nothing more will be heard.
    """

    def __init__(
        self,
        cluster: str,
        adapter: Adapter,
        endpoint: str,
        state_dir: Path,
        log: BoundLogger,
        *,
        interval_s: float,
        timeout_s: float,
        max_age_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        access: ExecutorAccess = OPEN_ACCESS,
    ) -> None:
        if adapter.launcher is None:
            raise AdapterError(
                f"cluster {cluster}: its adapter only reads; nothing can be launched"
            )
        self.cluster, self.log, self.clock = cluster, log, clock
        self.reader, self.launcher = adapter.reader, adapter.launcher
        self._on_demand, self._due = adapter.on_demand, adapter.due
        self.interval_s, self.timeout_s = interval_s, timeout_s
        self._pause, self._longest_s = adapter.pause, max(interval_s, max_age_s * LONGEST_PAUSE)
        self._wanted, self._is_read = 0, False
        durable.make_folder(state_dir)
        state = ExecutorState(
            cluster=cluster, identity=kept_identity(state_dir), version=coalloc.__version__
        )
        is_own = access.security is None or access.owner  # a process of the jobs' user
        files, log_file = (adapter.files, access.owner), state_dir / "copy.log"
        self._stager = Stager(*files, state, self._say, log_file) if is_own else None
        own = {*state.abilities, *adapter.traits, *([STAGES] if self._stager else [])}
        state.abilities = tuple(sorted(own - adapter.lacks))
        progress = ProgressFile(state_dir / "progress.json", log)
        started = StartedFile(state_dir / "started")
        if progress.kept is not None:
            state.recall(progress.kept)
        for report in self.launcher.adopt():
            state.parts[report.key] = report
        self.core = ExecutorCore(state)
        self._context = new_context()
        self.refused = asyncio.Event()
        self._port = AsyncSocket(
            self._context,
            DEALER,
            self._received,
            max_bytes=MAX_BYTES,
            security=access.security,
            on_handshake=None if access.security is None else self._handshaken,
        )
        self._hands = LauncherActions(
            adapter, adapter.launcher, state, progress, started, access, self._say, log
        )
        self._troubles = RateLimit(TROUBLES_TOLD_S)
        self._endpoint = endpoint
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="read")
        self._tasks: list[asyncio.Task[None]] = []
        self._heard: list[Numbered | Welcome | Ping | TurnedAway] = []
        self._streams = adapter.streams and PartStreams(cluster, *adapter.streams, self._say)
        self._began = time.time() - time.monotonic()
        self._run = secrets.token_hex(4)
        self._complaint = ("", "")
        self._known: dict[PartKey, PartReport] = {}

    def open(self) -> None:
        """Connect and begin; the loop must be running."""
        loop = asyncio.get_running_loop()
        self._port.connect(self._endpoint)
        self._port.attach(loop)
        descriptor = self.launcher.fileno()
        if descriptor is not None:
            loop.add_reader(descriptor, self._look)
        adopted = len(self.core.state.parts)
        self.log.info("executor_started", cluster=self.cluster, adopted=adopted)
        now = self.clock()
        carry_out(self.core, self.core.hello(now), self._hands, now)
        self._tasks = [
            loop.create_task(self._reading()),
            loop.create_task(self._ticking()),
            loop.create_task(self._looking()),
            *([loop.create_task(self._streams.open())] if self._streams else ()),
            *([loop.create_task(self._stager.serve())] if self._stager else ()),
        ]

    async def close(self) -> None:
        """Say goodbye; the parts go on, and are adopted at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        descriptor = self.launcher.fileno()
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
        if self._streams is not None:
            self._streams.close()
        self._say(Goodbye(cluster=self.cluster))
        self._port.close()
        self._context.term()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.launcher.close()
        self.log.info("executor_stopped", cluster=self.cluster, parts=len(self.core.state.parts))

    def _received(self, frames: list[bytes]) -> None:
        try:
            if len(frames) != 1:
                raise WireError("bad_frames", f"expected 1 frame, got {len(frames)}")
            message = decode_for_executor(frames[0])
        except WireError as error:
            self.log.warning("message_dropped", fault=error.code, what=str(error)[:200])
            return
        if isinstance(message, Stream):
            self._stream(message)
            return
        self._heard.append(message)
        if len(self._heard) == 1:
            asyncio.get_running_loop().call_soon(self._take_in)

    def _take_in(self) -> None:
        """Carry out all that has arrived; one write to disk stands for all of it."""
        heard, self._heard = self._heard, []
        pings = [each for each in heard if isinstance(each, Ping)]
        if pings:
            self._wanted, self._is_read = pings[-1].wanted, pings[-1].read
            if self._stager is not None and pings[-1].epoch == self.core.state.epoch:
                self._stager.wish(pings[-1].stages)
            if self._on_demand is not None:
                self._on_demand(self._wanted)
        self._turn(MessageReceived(message=message) for message in heard)

    def _turn(self, events: Iterable[ExecutorEvent]) -> None:
        """Take these in and do what follows; one that fails costs none of the others."""
        now = self.clock()
        effects: list[ExecutorEffect] = []
        for event in events:
            try:
                effects += self.core.handle(event, now)
            except Exception as error:
                self._trouble("event_failed", error, kind=type(event).__name__)
        carry_out(self.core, effects, self._hands, now)

    def _trouble(self, event: str, error: Exception, **fields: object) -> None:
        """Log what went wrong, where it happens again and again once a minute."""
        why = in_words(error)
        if count := self._troubles.once_per(f"{event} {why}"):
            known = isinstance(error, AdapterError | OSError)
            self.log.error(event, why=why, count=count, exc_info=None if known else error, **fields)

    def _handshaken(self, outcome: str) -> None:
        if outcome == REFUSED:
            self.refused.set()
        elif outcome != SUCCEEDED and self._troubles.once_per(outcome):
            self.log.warning("handshake_failed", outcome=outcome, endpoint=self._endpoint)

    def _stream(self, wish: Stream) -> None:
        key = PartKey(job=wish.job, attempt=wish.attempt, part=wish.part)
        known = self._known.get(key)
        if self._streams is not None:
            self._streams.wish(wish, key, is_over=known is not None and known.is_ended)
        else:
            self._say(Streamed(cluster=self.cluster, number=wish.number, gone=True))

    def _say(self, statement: Statement | Streamed) -> None:
        self._port.send([encode_message(statement)])

    def _look(self) -> None:
        try:
            reports = self.launcher.poll()
            news = [report for report in reports if self._known.get(report.key) is not report]
        except Exception as error:
            self._trouble("poll_failed", error)
            return
        self._known = {report.key: report for report in reports}
        changed = list[tuple[PartReport, dict[str, Any]]]()
        for report in news:
            before = self.core.state.parts.get(report.key)
            is_usual = report.pack and not (report.exit_code or report.detail)
            if before is not None and before.state is not report.state and not is_usual:
                fields: dict[str, Any] = {"job": report.job, "attempt": report.attempt}
                if report.is_ended:
                    fields["exit_code"] = report.exit_code
                    fields |= {"reason": report.reason, "detail": report.detail}
                changed.append((report, fields))
        self._turn(PartNews(report=report) for report in news)
        for report in news:
            if report.is_ended and self._streams is not None:
                self._streams.end(report.key)
        for report, fields in changed:  # afterwards: a job may wait for the turn
            self.log.info(f"part_{report.state}", **fields)

    async def _looking(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(POLL_S)

    async def _ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._turn([ExecutorTicked()])

    def _complain(self, event: str, why: str) -> None:
        """Log what is wrong with the readings, when that changes; empty: nothing."""
        if (event, why) == self._complaint:
            return
        self._complaint = event, why
        if event:
            self.log.warning(event, why=why)
        else:
            self.log.info("reading_succeeded")

    def _act(self) -> None:
        """Do what the reading has shown to be due; an act that fails costs no other."""
        for act in self._due():
            try:
                act.run()
            except Exception as error:
                self._trouble("act_failed", error, act=act.what)

    def _tell(self, **said: Any) -> None:
        self._say(Read(cluster=self.cluster, sent=time.time(), **said))

    async def _reading(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            at, epoch = self._began + began, self.core.state.epoch
            pending = loop.run_in_executor(self._threads, self.reader.read)
            try:
                # Not wait_for: in Python 3.11 it loses a cancellation that comes with the answer.
                async with asyncio.timeout(self.timeout_s):
                    reading = await asyncio.shield(pending)
                acting = loop.run_in_executor(self._threads, self._act)
                # What is claimed by this reading may count on them; no longer than that.
                await asyncio.wait({acting}, timeout=self.timeout_s)
                self._tell(reading=reading, at=at, run=self._run, epoch=epoch)
                self._complain("", "")
                await acting
            except TimeoutError:
                error = f"no answer within {self.timeout_s:g} s"
                self._complain("reading_late", error)
                self._tell(error=error)
                with contextlib.suppress(Exception):
                    await pending  # One reader at a time: a hung batch system is not asked again.
            except Exception as failure:
                why = in_words(failure)
                self._complain("reading_failed", why)
                self._tell(error=why)
            took_s = loop.time() - began
            await asyncio.sleep(max(0.0, self.interval_s - took_s))
            while loop.time() - began < self._interval_s(took_s):
                await asyncio.sleep(min(TICK_S, self.interval_s))

    def _interval_s(self, took_s: float) -> float:
        """From one reading to the next, seconds: as usual, or longer; work that comes ends that."""
        is_idle = not self._wanted and all(p.is_ended for p in self.core.state.parts.values())
        if is_idle and self._is_read:
            return READ_ANYWAY_S
        wanted_s = max(self.interval_s * self._pause(is_idle), SLOW_PAUSE * took_s)
        return min(wanted_s, self._longest_s)
