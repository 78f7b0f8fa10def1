"""The socket of the watchers.

What is published goes to every subscriber alike, and ZeroMQ ends no single connection. So only
operators may watch where users are told apart, and where one of them loses that right, all
connections end: who still may watch connects again by itself, is greeted, sees that something is
missing, and asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from coalloc.wire.authenticator import Admits, ZapAuthenticator
from coalloc.wire.contexts import new_context
from coalloc.wire.curve import CurveServer, OnHandshake
from coalloc.wire.frames import PROTOCOL, encode
from coalloc.wire.sockets import AsyncSocket

MAX_SUBSCRIPTION_BYTES = 1024


class Publisher:
    """An XPUB socket with numbered publications; with `security`, every key must be admitted."""

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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port: AsyncSocket | None = None
        self._gate: ZapAuthenticator | None = None
        self._keys: set[str] = set()

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind and begin to greet."""
        self._loop = loop
        self._context = new_context()
        if self._security is not None and self._admits is not None:
            self._gate = ZapAuthenticator(self._context, (self._security.domain,), self._admits)
            self._gate.start()
        self._port = AsyncSocket(
            self._context,
            zmq.XPUB,
            self._subscribed,
            max_bytes=MAX_SUBSCRIPTION_BYTES,
            security=self._security,
            on_handshake=self._on_handshake,
            name=self.name,
        )
        try:
            self._port.bind(self.endpoint)
        except OSError:
            self.close()
            raise
        self._port.attach(loop)

    def close(self) -> None:
        """End every connection; on return the end point is free."""
        if self._port is None:
            return
        self._port.close()
        self._port = None
        self._keys.clear()
        if self._gate is not None:
            self._gate.stop()
            self._gate = None
        self._context.term()

    @property
    def path(self) -> Path | None:
        is_file = self.endpoint.startswith("ipc://")
        return Path(self.endpoint.removeprefix("ipc://")) if is_file else None

    def is_there(self) -> bool:
        """Whether who comes now finds the socket."""
        return self._port is not None and self._port.is_there()

    def restore(self) -> None:
        """Listen once more, where the file is gone or nobody listens; raises `OSError`."""
        if self._port is not None:
            self._port.restore()
        elif self._loop is not None:
            self.open(self._loop)

    def cut_off(self, key: str) -> None:
        """End the connections of a key, and with them all others; those come back that may."""
        if key in self._keys:
            self.close()
            with suppress(OSError):  # whoever looks after the sockets' files tries again
                self.restore()

    def publish(self, topic: str, body: Mapping[str, Any]) -> None:
        self.watch_seq += 1
        frame = encode({"watch_seq": self.watch_seq, **body})
        if self._port is not None:
            self._port.send([topic.encode(), frame])

    def _subscribed(self, frames: list[bytes]) -> None:
        """A subscription: greet it, so that a watcher knows where the stream stands."""
        if self._port is None or not frames or frames[0][:1] != b"\x01":
            return
        self._keys.add(self._port.sender)
        welcome = {"watch_seq": self.watch_seq, "welcome": True, "protocol": PROTOCOL}
        self._port.send([frames[0][1:], encode(welcome)])
