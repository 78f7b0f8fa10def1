"""The socket of the watchers.

What is published goes to every subscriber alike, so that a key which has been revoked is kept from
it by ending its connections. One that may come back does so by itself, sees that something is
missing, and asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import zmq

from coalloc.wire.authenticator import Admits, ZapAuthenticator
from coalloc.wire.curve import CurveServer, OnHandshake
from coalloc.wire.frames import PROTOCOL, encode
from coalloc.wire.sockets import AsyncSocket, new_context
from coalloc.wire.subscription_limits import FloodGuard, Subscriptions

MAX_SUBSCRIPTION_BYTES = 1024
SUBSCRIPTIONS_UNREAD = 2
"""Of one connection that may lie here: ZeroMQ takes what does into its tree before anybody counts
it, and goes on while more comes. With room for ten it took fifty thousand at once; with room for
one, none comes through CURVE."""


class Publisher:
    """An XPUB socket with numbered publications.

    Parameters
    ----------
    security : Listening, optional
        None: no CURVE.
    admits : callable, optional
        Asked about every key; with `security` only.
    """

    def __init__(
        self,
        endpoint: str,
        security: CurveServer | None = None,
        admits: Admits | None = None,
        on_handshake: OnHandshake | None = None,
        *,
        name: str = "",
    ) -> None:
        self.endpoint, self.name = endpoint, name
        self.watch_seq = 0
        self._security, self._admits, self._on_handshake = security, admits, on_handshake
        self._port: AsyncSocket | None = None
        self._gate: ZapAuthenticator | None = None
        self._guard: FloodGuard | None = None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind and begin to greet."""
        self._context = new_context()
        self._subscriptions = Subscriptions()
        if self._security is not None and self._admits is not None:
            self._gate = ZapAuthenticator(self._context, (self._security.domain,), self._admits)
            self._gate.start()
        self._port = AsyncSocket(
            self._context,
            zmq.XPUB,
            self._subscribed,
            max_bytes=MAX_SUBSCRIPTION_BYTES,
            receive_hwm=SUBSCRIPTIONS_UNREAD,
            security=self._security,
            on_handshake=self._on_handshake,
            name=self.name,
        )
        self._port.bind(self.endpoint)
        self._port.attach(loop)
        self._guard = FloodGuard(self.endpoint, self._busy_since)
        self._guard.start()

    @property
    def ports(self) -> tuple[AsyncSocket, ...]:
        """The socket, while it is open."""
        return () if self._port is None else (self._port,)

    def close(self) -> None:
        """End every connection; on return the end point is free."""
        if self._port is None:
            return
        if self._guard is not None:
            self._guard.stop()
            self._guard = None
        self._port.close()
        self._port = None
        if self._gate is not None:
            self._gate.stop()
            self._gate = None
        self._context.term()

    def _busy_since(self) -> float | None:
        return self._port.busy_since if self._port is not None else None

    def cut_off(self, key: str) -> None:
        """End the connections of a key; those come back that still may."""
        if self._port is not None:
            self._subscriptions.end_all(key)

    def publish(self, topic: str, body: Mapping[str, Any]) -> None:
        """Tell every watcher that asked for this topic."""
        self.watch_seq += 1
        frame = encode({"watch_seq": self.watch_seq, **body})
        if self._port is not None:
            self._port.send([topic.encode(), frame])

    def _subscribed(self, frames: list[bytes]) -> None:
        """A subscription: greet it, so that a watcher knows where the stream stands."""
        if self._port is None or not frames or frames[0][:1] != b"\x01":
            return
        topic, port = frames[0][1:], self._port
        if not self._subscriptions.takes(port.descriptor, len(topic), port.sender):
            return
        if self._may_watch(port.sender):
            welcome = {"watch_seq": self.watch_seq, "welcome": True, "protocol": PROTOCOL}
            port.send([topic, encode(welcome)])
        else:
            self._subscriptions.end_all(port.sender)

    def _may_watch(self, key: str) -> bool:
        """Whether a key that has connected is still good: it may have been revoked since."""
        if self._security is None or self._admits is None:
            return True
        return self._admits(self._security.domain, key)
