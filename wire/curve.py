"""CURVE: who may connect to a socket, and how each side learns that a handshake has failed.

A listener that has a key but no authenticator would accept everybody: so every socket enforces
its domain, which `ZapAuthenticator` answers for. A handshake that fails is told by the socket's
monitor alone: the refused side would otherwise wait for ever.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import zmq
from zmq.utils import z85

if TYPE_CHECKING:
    import asyncio

KEY_CHARACTERS = 40
"""A key of 32 bytes in Z85, the form in which files and the wire carry it."""
SUCCEEDED = "succeeded"
REFUSED = "refused"
"""The key is not known there, or may not use this socket."""
BROKEN = "broken"
"""The other side speaks no CURVE, or has another server's key."""
CLOSED = "closed"
"""The connection ended during the handshake."""

_numbers = itertools.count()
_MONITORED = struct.Struct("=Hi")
"""Number and value of an event, see zmq_socket_monitor(3)."""
_OUTCOMES = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: SUCCEEDED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: BROKEN,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: CLOSED,
}
_WATCHED = sum(_OUTCOMES)  # a bit each


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A CURVE key; its secret half appears in no text made of it."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveServer:
    """A socket that takes only connections that the gatekeeper admits to its domain."""

    pair: KeyPair
    domain: str

    def apply(self, socket: zmq.Socket[bytes]) -> None:
        """Before bind."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.pair.secret.encode())
        socket.setsockopt(zmq.ZAP_DOMAIN, self.domain.encode())
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveClient:
    """A socket that connects with a key, and only to the server of that public key."""

    pair: KeyPair
    server: str

    def apply(self, socket: zmq.Socket[bytes]) -> None:
        """Before connect."""
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.pair.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.pair.secret.encode())
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server.encode())


Security = CurveServer | CurveClient
OnHandshake = Callable[[str], None]


def is_supported() -> bool:
    """Whether the ZeroMQ that is loaded was built with CURVE."""
    return bool(zmq.has("curve"))


def new_pair() -> KeyPair:
    """A key that nobody has; its public half does not look like an option of a command."""
    while True:
        public, secret = zmq.curve_keypair()
        if not public.startswith(b"-"):
            return KeyPair(public=public.decode(), secret=secret.decode())


def public_of(secret: str) -> str:
    """The public half of a secret key; `ValueError`: it is no key."""
    try:
        return zmq.curve_public(secret.encode()).decode()
    except zmq.ZMQError as error:
        raise ValueError("is no key") from error


def is_key(text: object) -> bool:
    """Whether a text has the form of a key: eight groups of five, each a number of 32 bits."""
    if not isinstance(text, str) or len(text) != KEY_CHARACTERS:
        return False
    try:
        return bool(z85.decode(text))
    except (KeyError, ValueError, struct.error):
        return False


class Handshakes:
    """Ends of the handshakes of one socket; attach before bind or connect."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._watched = socket
        # not named after the descriptor, as pyzmq has it: a closed socket's name outlives that
        address = f"inproc://handshakes-{next(_numbers)}"
        socket.monitor(address, _WATCHED)
        self.monitor: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        # ZeroMQ's thread waits where no room is left, and with it every socket of the context
        self.monitor.setsockopt(zmq.RCVHWM, 0)
        self.monitor.connect(address)
        self._loop: asyncio.AbstractEventLoop | None = None

    def outcomes(self) -> Iterator[str]:
        """Ends since the last call; never waits."""
        while True:
            try:
                frames = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            # zmq.utils.monitor reads it, too, but imports asyncio, which clients need not
            number, _ = _MONITORED.unpack(frames[0])
            yield _OUTCOMES.get(number, CLOSED)

    def attach(self, loop: asyncio.AbstractEventLoop, on_handshake: OnHandshake) -> None:
        def look() -> None:
            for outcome in self.outcomes():
                on_handshake(outcome)

        self._loop = loop
        loop.add_reader(self.monitor.fileno(), look)
        loop.call_soon(look)

    def close(self) -> None:
        """Before the socket itself is closed."""
        if self._loop is not None:
            self._loop.remove_reader(self.monitor.fileno())
            self._loop = None
        self._watched.monitor(None, 0)
        self.monitor.close(0)
