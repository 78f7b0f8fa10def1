"""The daemon's three sockets: clients, executors, watchers.

A frame that is no message is dropped and counted by kind of fault; a client whose frame
could at least be read as JSON with an ``id`` gets a refusal. The first fault of each peer
is logged, the rest only counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import zmq

from coalloc.core.messages import Numbered, Ping, Statement, Welcome
from coalloc.daemon.wire.codec import decode_from_executor, encode_message
from coalloc.daemon.wire.frames import PROTOCOL, WireError, decode_object, encode
from coalloc.daemon.wire.sockets import Port, new_context

PEERS_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an answer goes: a client's connection and its request's id."""

    peer: bytes
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Addresses of the three sockets."""

    clients: str
    executors: str
    watchers: str


OnRequest = Callable[[Origin, Mapping[str, Any]], None]
OnStatement = Callable[[Statement], None]
OnFault = Callable[[str, str, str, bool], None]
"""Kind of socket, kind of fault, what was wrong, whether it is this peer's first."""


class Server:
    """Owns the sockets; hands over requests and statements."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        max_bytes: int,
        on_request: OnRequest,
        on_statement: OnStatement,
        on_fault: OnFault,
    ) -> None:
        self.endpoints = endpoints
        self.faults: Counter[str] = Counter()
        self.watch_seq = 0
        self._on_request, self._on_statement, self._on_fault = on_request, on_statement, on_fault
        self._faulty: set[tuple[str, bytes]] = set()
        self._peers: dict[str, bytes] = {}
        self._context = new_context()
        self._clients = Port(self._context, zmq.ROUTER, self._from_client, max_bytes=max_bytes)
        # Executors are ours: a reading of thousands of nodes may be longer than a client's request.
        self._executors = Port(
            self._context, zmq.ROUTER, self._from_executor, max_bytes=max(max_bytes, 64 << 20)
        )
        self._watchers = Port(self._context, zmq.XPUB, self._from_watcher, max_bytes=1024)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind and begin to listen."""
        for port, endpoint in (
            (self._clients, self.endpoints.clients),
            (self._executors, self.endpoints.executors),
            (self._watchers, self.endpoints.watchers),
        ):
            port.bind(endpoint)
            port.attach(loop)

    def close(self) -> None:
        """Close all three."""
        for port in (self._clients, self._executors, self._watchers):
            port.close()
        self._context.term()

    def answer(self, origin: Origin, body: Mapping[str, Any]) -> None:
        """Reply to a client; one that has gone is not waited for."""
        if not self._clients.send([origin.peer, encode({"id": origin.request, **body})]):
            self.faults["answer_undeliverable"] += 1

    def tell(self, cluster: str, message: Numbered | Welcome | Ping) -> bool:
        """Send to a cluster's executor; False if it is not there or cannot take it."""
        peer = self._peers.get(cluster)
        return peer is not None and self._executors.send([peer, encode_message(message)])

    def forget(self, cluster: str) -> None:
        """The cluster's executor is gone."""
        self._peers.pop(cluster, None)

    def publish(self, topic: str, body: Mapping[str, Any]) -> None:
        """Tell every watcher that asked for this topic."""
        self.watch_seq += 1
        frame = encode({"watch_seq": self.watch_seq, **body})
        self._watchers.send([topic.encode(), frame])

    def _from_client(self, frames: list[bytes]) -> None:
        peer = frames[0]
        request = ""
        try:
            if len(frames) != 2:
                raise WireError("bad_frames", f"expected 1 frame, got {len(frames) - 1}")
            body = decode_object(frames[1])
            request_id = body.get("id")
            if not isinstance(request_id, str) or len(request_id) > 200:
                raise WireError("bad_shape", "id: is missing or not a text")
            request = request_id
            self._on_request(Origin(peer=peer, request=request), body)
        except WireError as error:
            self._fault("client", peer, error)
            refusal = {"type": "refused", "code": "bad_request", "message": str(error)}
            self.answer(Origin(peer=peer, request=request), refusal)

    def _from_executor(self, frames: list[bytes]) -> None:
        peer = frames[0]
        try:
            if len(frames) != 2:
                raise WireError("bad_frames", f"expected 1 frame, got {len(frames) - 1}")
            statement = decode_from_executor(frames[1])
        except WireError as error:
            self._fault("executor", peer, error)
            return
        self._peers[statement.cluster] = peer
        self._on_statement(statement)

    def _from_watcher(self, frames: list[bytes]) -> None:
        """A subscription: greet it, so that a watcher knows where the stream stands."""
        if frames and frames[0][:1] == b"\x01":
            topic = frames[0][1:]
            welcome = {"watch_seq": self.watch_seq, "welcome": True, "protocol": PROTOCOL}
            self._watchers.send([topic, encode(welcome)])

    def _fault(self, where: str, peer: bytes, error: WireError) -> None:
        self.faults[f"{where}_{error.code}"] += 1
        first = (where, peer) not in self._faulty
        if first:
            if len(self._faulty) >= PEERS_REMEMBERED:
                self._faulty.clear()
            self._faulty.add((where, peer))
        self._on_fault(where, error.code, str(error), first)
