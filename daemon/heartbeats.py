"""Which executors are there: what they say goes to the core, and silence is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable

from coalloc.core.demand import wanted_slots
from coalloc.core.events import Disconnected, Event, Stated
from coalloc.core.messages import Goodbye, Hello, Ping, Statement
from coalloc.core.state import State
from coalloc.daemon.outbox import Delivery
from coalloc.wire.server import Server

PING_EVERY_S = 2.0
SILENT_S = 12.0
"""An executor not heard of for this long is disconnected, seconds."""


class Contacts:
    """The daemon's side of every executor's connection.

    Parameters
    ----------
    offer : callable
        Puts an event before the core.
    later : callable
        Calls something after so many seconds.
    """

    def __init__(
        self,
        state: State,
        server: Server,
        delivery: Delivery,
        offer: Callable[[Event], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._state, self._server, self._delivery = state, server, delivery
        self._offer, self._later = offer, later
        self._heard: dict[str, float] = {}

    def hear(self, statement: Statement) -> None:
        """An executor has said something."""
        self._heard[statement.cluster] = time.monotonic()
        self._offer(Stated(statement=statement))
        cluster = self._state.clusters.get(statement.cluster)
        if cluster is not None and not cluster.connected and not isinstance(statement, Hello):
            # It has not noticed that this is a new daemon, or that it was given up as silent.
            self._server.tell(statement.cluster, Ping(epoch=self._state.epoch, known=False))
        if isinstance(statement, Goodbye):
            self._server.forget(statement.cluster)

    def beat(self) -> None:
        """Renew leases, push what waits, notice executors that fell silent; again and again."""
        now = time.monotonic()
        for name, cluster in self._state.clusters.items():
            if not cluster.connected:
                continue
            if now - self._heard.get(name, now) > SILENT_S:
                self._server.forget(name)
                self._offer(Disconnected(cluster=name))
                continue
            wanted = wanted_slots(self._state, name)
            self._server.tell(name, Ping(epoch=self._state.epoch, wanted=wanted))
            if name in self._delivery.waiting():
                self._delivery.pump(name)
        self._later(PING_EVERY_S, self.beat)
