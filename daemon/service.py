"""The daemon while it runs: what arrives goes to the core in batches, and is written first.

A batch is everything that had arrived when the loop came round. Its writes are one
transaction, and only when that is on disk do answers, orders and publications go out: that
is group commit, and why an acknowledged job cannot be lost.

While nothing can be written (disk full, read-only file system) submits are refused, no round
starts, and what happens to running work is kept in memory and written when space returns
(`coalloc.daemon.store.writer`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from structlog.stdlib import BoundLogger

import coalloc
from coalloc.core.base.effects import Effect, Reply
from coalloc.core.base.events import ClockSet, CoreEvent, Reconfigured, Requested, Ticked
from coalloc.core.base.requests import Refused
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.access.access import Access
from coalloc.daemon.access.own_clusters import with_own
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.heartbeats import Heartbeats
from coalloc.daemon.monitoring.metrics import DaemonMetrics
from coalloc.daemon.monitoring.notify import Notifier, UserMail
from coalloc.daemon.outbox import Delivery
from coalloc.daemon.queries.answers import Sources
from coalloc.daemon.queries.waiters import Waiters
from coalloc.daemon.queries.why import Explainer
from coalloc.daemon.replies import Replies
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.store.disk import disk_of
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.writer import Writer
from coalloc.daemon.streams import Streams
from coalloc.model.settings import Config
from coalloc.wire.answers import Health, SolverStatus
from coalloc.wire.server import Server

INTERNAL = Refused(code="internal", message="internal error; see the daemon's log")


STEP_S = 0.5
"""Smaller differences between two looks are a clock that is led back gently, seconds."""


def boot_time() -> float:
    """Seconds since the machine was booted, sleep among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockSteps:
    """Tells by how much the clock was set between two looks, against one that nobody sets."""

    def __init__(self, steady: Callable[[], float] = boot_time) -> None:
        self._steady = steady
        self._behind: float | None = None

    def step(self, now: float) -> float:
        """Seconds that the wall clock was set ahead since the last look; 0: it was not set."""
        behind = now - self._steady()
        last, self._behind = self._behind, behind
        step = 0.0 if last is None else behind - last
        return step if abs(step) >= STEP_S else 0.0


@dataclass(slots=True, kw_only=True)
class Service:
    """The core and everything around it, as `coalloc.daemon.assembly` puts it together."""

    config: Config
    log: BoundLogger
    clock: Callable[[], float]
    clock_steps: ClockSteps
    began: float
    access: Access | None
    """Tells users apart, in multi-user mode."""
    store: Store
    core: Coordinator
    loop: CoreLoop
    solver: SolverPool
    planner: RoundPlanner
    explainer: Explainer
    server: Server
    delivery: Delivery
    heartbeats: Heartbeats
    writer: Writer
    metrics: DaemonMetrics
    notifier: Notifier
    user_mail: UserMail
    replies: Replies
    sources: Sources
    waiters: Waiters
    streams: Streams
    is_stopping: bool = False

    def open(self) -> None:
        """Bind the sockets and begin; the loop must be running."""
        loop = asyncio.get_running_loop()
        self.loop.open(loop)
        self.server.open(loop)
        self.heartbeats.tick()
        self.streams.tick()
        self.loop.offer(Ticked())
        self.planner.costs.want()

    async def close(self) -> None:
        """Stop planning, hand in what is left, close the sockets."""
        self.is_stopping = True
        await self.planner.close()
        self.loop.close()
        self.server.close()
        self.notifier.close()
        self.user_mail.close()

    def reconfigure(self, config: Config) -> None:
        self.config = config
        self.notifier.config = self.user_mail.config = config.notify
        self.planner.rounds = config.rounds
        self.server.max_values = config.daemon.max_values
        if self.access is not None:
            self.access.configure(config.access)
        self.loop.offer(Reconfigured(settings=self._with_own()))

    def take_clusters(self) -> None:
        """Take in clusters that users have registered, or given up, since."""
        settings = self._with_own()
        if settings.clusters != self.core.state.settings.clusters:
            self.loop.offer(Reconfigured(settings=settings))

    def _with_own(self) -> Config:
        return self.config if self.access is None else with_own(self.config, self.access.table)

    def turn(self, batch: list[CoreEvent]) -> None:
        """Hand a batch to the core, and have its effects written and then carried out."""
        now = self.clock()
        if step := self.clock_steps.step(now):
            self.log.warning("clock_set", seconds=round(step, 3))
            batch = [ClockSet(seconds=step), *batch]
        effects: list[Effect] = []
        for event in batch:
            began = time.perf_counter()
            try:
                effects += (new := self.core.handle(event, now))
                spent, state = time.perf_counter() - began, self.core.state
                self.metrics.handled(event, new, spent, failed=state.round is None)
            except Exception:
                # One event must not end the service; what it did change is still written.
                self.log.exception("event_failed", kind=type(event).__name__)
                effects += self.core.take_partial()
                if isinstance(event, Requested):
                    effects.append(Reply(origin=event.origin, answer=INTERNAL))
            if isinstance(event, Requested):
                self.replies.charge(event.origin, began)
        self.writer.write(effects, now)

    def health(self) -> Health:
        """Figures of the service that its core does not know."""
        disk = disk_of(self.store.path.parent)
        return Health(
            writable=self.writer.is_writable,
            faults=dict(self.server.faults),
            orders_waiting=self.delivery.waiting(),
            solver=SolverStatus(is_warm=self.solver.is_warm, **self.solver.progress()),
            version=coalloc.__version__,
            began=self.began,
            policy=self.config.rounds.policy,
            disk_free_bytes=None if disk is None else disk[1],
        )
