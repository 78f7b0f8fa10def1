"""The daemon's three sockets: clients, executors, watchers.

A frame that is no message is dropped and counted by kind of fault; a client whose frame
could at least be read as JSON with an ``id`` gets a refusal. The first fault of each peer
is logged, the rest only counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import zmq
from msgspec import Struct
from msgspec.structs import replace

from coalloc.core.base.messages import Numbered, Statement, Streamed, TurnedAway
from coalloc.core.base.requests import Refused
from coalloc.model.settings import DaemonConfig
from coalloc.wire.answers import Answer, Refusal
from coalloc.wire.authenticator import ZapAuthenticator
from coalloc.wire.codec import ToExecutor, decode_from_executor, encode_message
from coalloc.wire.contexts import new_context
from coalloc.wire.curve import CurveServer, KeyPair
from coalloc.wire.frames import (
    LONGEST_ID,
    WireError,
    check_texts,
    check_values,
    decode_object,
    encode_answer,
    id_of,
)
from coalloc.wire.publisher import Publisher
from coalloc.wire.sockets import AsyncSocket, OnFrames

PEERS_REMEMBERED = 10_000
CLIENTS, EXECUTORS, WATCHERS = "clients", "executors", "watchers"
"""The sockets' names, and in CURVE's terms their domains."""
KEYED_CLIENT_HWM = 1000
"""Requests of one connection that may lie here unread, where users are told apart."""
EXECUTORS_VALUES = 1_000_000
"""Of one statement: some tens of thousands of nodes, and what runs on them."""
FLOOD_AT_ONCE = 200
"""Dropped before the socket rests: connections get their turns, so that all of a flood's wait."""
SHORT_BYTES = 1 << 16
"""A longer frame that is refused unread is not even searched for its id."""


class Origin(Struct, frozen=True, kw_only=True):
    """Address of an answer: a client's connection and its request's id."""

    peer: bytes
    request: str
    key: str = ""
    """The public key that asked; empty without CURVE."""


class ExecutorPeer(NamedTuple):
    """An executor's connection, and the public key that it has shown; empty without CURVE."""

    connection: bytes
    key: str


class Guard(Protocol):
    """Says who may do what, where users are told apart by their keys."""

    pair: KeyPair

    def admits(self, domain: str, key: str) -> bool:
        """Whether a key may connect to a socket."""

    def handshaken(self, domain: str, outcome: str) -> None:
        """A handshake has ended."""

    def refusal(self, key: str, size: int) -> Refused | None:
        """Reason not to read a client's frame of this many bytes; None: it is.

        Without a message it is not even to be answered.
        """

    def is_live(self, key: str) -> bool:
        """Whether a client's key still may be answered."""

    def may_speak_for(self, key: str, cluster: str) -> bool:
        """Whether a key is that of the cluster's executor."""

    def statement_refused(self, key: str, cluster: str) -> None:
        """A key that may not has spoken for a cluster."""


OnRequest = Callable[[Origin, Mapping[str, Any]], None]
OnStatement = Callable[[Statement | Streamed, ExecutorPeer], None]
OnFault = Callable[[str, str, str, bool], None]
"""Kind of socket, kind of fault, what was wrong, whether it is this peer's first."""


class Server:
    """Owns the sockets; hands over requests, each within limits, and statements.

    Without a guard there is no CURVE: the sockets are the daemon's own user's only.
    """

    def __init__(
        self,
        config: DaemonConfig,
        *,
        guard: Guard | None = None,
        on_request: OnRequest,
        on_statement: OnStatement,
        on_fault: OnFault,
    ) -> None:
        self.config = config
        self.faults: Counter[str] = Counter()
        self.max_values = config.max_values
        self._guard = guard
        self._on_request, self._on_statement, self._on_fault = on_request, on_statement, on_fault
        self._faulty: set[tuple[str, bytes]] = set()
        self._context = new_context()
        self._gate: ZapAuthenticator | None = None
        max_bytes = config.max_message_bytes
        self._clients = self._port(CLIENTS, self._from_client, max_bytes)
        # Executors are ours: a reading of thousands of nodes may be longer than a client's request.
        self._executors = self._port(EXECUTORS, self._from_executor, max(max_bytes, 64 << 20))
        self._publisher = Publisher(
            config.publish_endpoint,
            self._listening(WATCHERS),
            None if guard is None else guard.admits,
            None if guard is None else partial(guard.handshaken, WATCHERS),
            name=WATCHERS,
        )

    def _listening(self, domain: str) -> CurveServer | None:
        return None if self._guard is None else CurveServer(pair=self._guard.pair, domain=domain)

    def _port(self, domain: str, on_frames: OnFrames, max_bytes: int) -> AsyncSocket:
        guard = self._guard
        return AsyncSocket(
            self._context,
            zmq.ROUTER,
            on_frames,
            max_bytes=max_bytes,
            receive_hwm=10_000 if guard is None or domain == EXECUTORS else KEYED_CLIENT_HWM,
            security=self._listening(domain),
            on_handshake=None if guard is None else partial(guard.handshaken, domain),
            name=domain,
        )

    @property
    def watch_seq(self) -> int:
        return self._publisher.watch_seq

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._guard is not None:
            self._gate = ZapAuthenticator(self._context, (CLIENTS, EXECUTORS), self._guard.admits)
            self._gate.start()
        for port, endpoint in (
            (self._clients, self.config.endpoint),
            (self._executors, self.config.executor_endpoint),
        ):
            port.bind(endpoint)
            port.attach(loop)
        self._publisher.open(loop)

    def close(self) -> None:
        for port in (self._clients, self._executors):
            port.close()
        self._publisher.close()
        if self._gate is not None:
            self._gate.stop()
        self._context.term()

    @property
    def listeners(self) -> tuple[AsyncSocket | Publisher, ...]:
        """The three, each of which others find by an end point."""
        return self._clients, self._executors, self._publisher

    def key_changed(self, key: str) -> None:
        """A key may do less than before: end what it could still listen to."""
        self._publisher.cut_off(key)

    def answer(self, origin: Origin, answer: Answer | Mapping[str, Any]) -> None:
        """Reply to a client; one that has gone is not waited for, one revoked since is not told."""
        guard = self._guard
        if guard is not None and not isinstance(answer, Refusal) and not guard.is_live(origin.key):
            self.faults["answer_withheld"] += 1
        elif not self._clients.send([origin.peer, encode_answer(origin.request, answer)]):
            self.faults["answer_undeliverable"] += 1

    def tell(self, cluster: str, peer: ExecutorPeer, message: Numbered | ToExecutor) -> bool:
        """Send to an executor; False if it is gone, cannot take it, or has lost its right to."""
        if self._guard is not None and not self._guard.may_speak_for(peer.key, cluster):
            return False
        return self._executors.send([peer.connection, encode_message(message)])

    def turn_away(self, cluster: str, peer: ExecutorPeer, why: str) -> None:
        """Refuse a connection that would speak for a cluster, and count it as a fault."""
        self.tell(cluster, peer, TurnedAway(why=why))
        error = WireError("second_executor", f"{cluster}: {why}")
        self._fault("executor", peer.connection, error)

    def publish(self, topic: str, body: Mapping[str, Any]) -> None:
        self._publisher.publish(topic, body)

    def _from_client(self, frames: list[bytes]) -> None:
        origin = Origin(peer=frames[0], request="", key=self._clients.sender)
        try:
            if len(frames) != 2:
                raise WireError("bad_frames", f"expected 1 frame, got {len(frames) - 1}")
            refused = self._guard and self._guard.refusal(origin.key, len(frames[1]))
            if refused and not refused.message:
                self.faults["client_flood"] += 1
                if self.faults["client_flood"] % FLOOD_AT_ONCE == 0:
                    self._clients.rest()  # so that a flood costs little time
                return
            if refused and len(frames[1]) > SHORT_BYTES:
                self._refuse(origin, refused)
                return
            check_values(frames[1], self.max_values)
            body = decode_object(frames[1])
            request_id = body.get("id")
            if not isinstance(request_id, str) or len(request_id) > LONGEST_ID:
                raise WireError("bad_shape", "id: is missing or not a text")
            origin = replace(origin, request=request_id)
            if refused:
                self._refuse(origin, refused)
                return
            check_texts(frames[1], body)
            self._on_request(origin, body)
        except WireError as error:
            self._fault("client", origin.peer, error)
            if error.code == "too_many_values":
                origin = replace(origin, request=id_of(frames[1]))
            self._refuse(origin, Refused(code="bad_request", message=str(error)))

    def _refuse(self, origin: Origin, refused: Refused) -> None:
        self.answer(origin, Refusal(code=refused.code, message=refused.message))

    def _from_executor(self, frames: list[bytes]) -> None:
        peer = ExecutorPeer(frames[0], self._executors.sender)
        try:
            if len(frames) != 2:
                raise WireError("bad_frames", f"expected 1 frame, got {len(frames) - 1}")
            check_values(frames[1], EXECUTORS_VALUES)
            statement = decode_from_executor(frames[1])
            if self._guard is not None and not self._guard.may_speak_for(
                peer.key, statement.cluster
            ):
                self._guard.statement_refused(peer.key, statement.cluster)
                raise WireError("not_allowed", f"cluster: not this key's: {statement.cluster!r}")
        except WireError as error:
            self._fault("executor", peer.connection, error)
            return
        self._on_statement(statement, peer)

    def _fault(self, where: str, peer: bytes, error: WireError) -> None:
        self.faults[f"{where}_{error.code}"] += 1
        first = (where, peer) not in self._faulty
        if first:
            if len(self._faulty) >= PEERS_REMEMBERED:
                self._faulty.clear()
            self._faulty.add((where, peer))
        self._on_fault(where, error.code, str(error), first)
