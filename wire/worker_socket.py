"""The socket on which a client's process gives calls to its workers, who share one key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import zmq

from coalloc.wire.authenticator import ZapAuthenticator
from coalloc.wire.client import MAX_BYTES
from coalloc.wire.contexts import new_context
from coalloc.wire.curve import CurveServer, new_pair
from coalloc.wire.frames import decode_object, encode
from coalloc.wire.sockets import AsyncSocket

DOMAIN = "workers"


class WorkerSocket:
    """Listens on a port of its own; `on_message` gets each worker's connection and message."""

    def __init__(self, on_message: Callable[[bytes, dict[str, Any]], None]) -> None:
        self.pair, self.workers_pair = new_pair(), new_pair()
        self._context = new_context()
        admitted = self.workers_pair.public
        self._gate = ZapAuthenticator(self._context, (DOMAIN,), lambda _, key: key == admitted)
        self._socket = AsyncSocket(
            self._context,
            zmq.ROUTER,
            lambda frames: on_message(frames[0], decode_object(frames[-1])),
            max_bytes=MAX_BYTES,
            security=CurveServer(pair=self.pair, domain=DOMAIN),
            name=DOMAIN,
        )

    def open(self) -> int:
        """Listen, in the running loop; returns the port."""
        self._gate.start()
        self._socket.socket.bind("tcp://*:*")
        self._socket.attach(asyncio.get_running_loop())
        endpoint = self._socket.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return int(endpoint.rpartition(":")[2])

    def send(self, connection: bytes, message: Mapping[str, Any]) -> bool:
        """Tell a worker; False if it has gone."""
        return self._socket.send([connection, encode(message)])

    async def close(self) -> None:
        self._socket.close()
        self._gate.stop()
        await asyncio.sleep(0.0)  # the gate ends
        self._context.term()
