"""Heartbeats of executors: leases renewed, silence noticed; the core decides on presence."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from coalloc.core.base.events import Disconnected, StatementReceived
from coalloc.core.base.messages import Ping, Statement
from coalloc.core.base.state import State
from coalloc.core.jobs.twins import reader_of
from coalloc.core.starts.queued_claims import wanted_slots
from coalloc.core.starts.staging import wishes
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.outbox import Delivery
from coalloc.wire.server import ExecutorPeer

PING_EVERY_S = 2.0
SILENT_S = 12.0
"""An executor not heard of for this long is disconnected, seconds."""


class Heartbeats:
    """The daemon's side of executors' connections; `tell` returns whether a message went out."""

    def __init__(
        self,
        state: State,
        tell: Callable[[str, Ping], bool],
        delivery: Delivery,
        loop: CoreLoop,
    ) -> None:
        self._state, self._tell, self._delivery, self._loop = state, tell, delivery, loop
        self._heard: dict[Hashable, float] = {}

    def received(self, statement: Statement, peer: ExecutorPeer) -> None:
        self._heard[peer] = time.monotonic()
        self._loop.offer(StatementReceived(statement=statement, peer=peer))

    def tick(self) -> None:
        """Renew leases, push what waits, notice executors that fell silent; again and again."""
        now = time.monotonic()
        self._heard = {peer: at for peer, at in self._heard.items() if now - at <= SILENT_S}
        for name, cluster in self._state.clusters.items():
            if not cluster.connected:
                continue
            if cluster.peer not in self._heard:
                self._loop.offer(Disconnected(cluster=name))
                continue
            wanted = wanted_slots(self._state, name, time.time())
            stages = tuple(wishes(self._state, name))
            read = bool(reader_of(self._state, name, time.time()))
            ping = Ping(epoch=self._state.epoch, wanted=wanted, stages=stages, read=read)
            self._tell(name, ping)
            if name in self._delivery.waiting():
                self._delivery.pump(name)
        self._loop.later(PING_EVERY_S, self.tick)
