"""The connection between a part's runner and its nodes: authentication, and lines of text.

::

    node    hello NODE NONCE
    runner  prove NONCE PROOF
    node    prove PROOF
    runner  wait                                where it is not yet known what the node is to run
    runner  spec {...}                          the part, as far as this node's processes go
    node    1 {...}, 2 {...}, 3 {...}           a record of `runner.status` (READY, RUN, END)
    runner  go | renew | limit SECONDS | abort - TEXT | cancel SIGNAL GRACE | over CODE
    runner  stream {...}                        a wish of who reads its streams (`runner.streams`)
    node    stream {...}                        the answer
    node    member {...}                        the end of a member of an array (`runner.pack`)
    runner  kept PLACE | drop PLACE TEXT        it is on record; it is to end, or not to begin

Each side proves that it holds the part's key, which travels with the batch job and nowhere else:
any other at the port learns nothing and starts nothing.

A claim that waits in the queue has no runner. Its wrappers ask the executor's gate
(`adapters.batch.gate`) where to go, which has one made::

    node    granted CLAIM
    gate    at PORT | gone

Imports the standard library only: it runs on the nodes.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from contextlib import closing, suppress
from typing import Any

try:  # hashlib loads OpenSSL, which takes longer than all the rest of the wrapper
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

LONGEST_LINE = 16 << 20
SEND_LIMIT_S = 5
LONGEST_WAIT_S = 30 * 86_400.0
"""For the other parts of the job; the batch system ends the claim before."""
KEEPALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 15),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)
"""A node without power is noticed after half a minute."""


class TalkError(Exception):
    """The other side is not who it should be, or is gone."""


class GivenUpError(TalkError):
    """The part is over: its nodes are not wanted any more."""


def nonce() -> str:
    """A number nobody has used before."""
    return os.urandom(16).hex()


def proof(key: str, side: str, *parts: str) -> str:
    """Proof of the key for a nonce."""
    said = " ".join([side, *parts]).encode(errors="surrogateescape")
    return blake2b(said, key=bytes.fromhex(key), digest_size=32).hexdigest()


def is_proof(given: str, key: str, side: str, *parts: str) -> bool:
    """Whether it was said by a holder of the key."""
    # Digests of digests: how long the comparison takes says nothing about the proof.
    blind = os.urandom(32)
    ours, theirs = (
        blake2b(text.encode(errors="replace"), key=blind).digest()
        for text in (proof(key, side, *parts), given)
    )
    return ours == theirs


class LineConnection:
    """A socket that carries lines; it is made blocking, with a time limit for sending."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_LIMIT_S, 0))
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, value in KEEPALIVE:
                sock.setsockopt(*option, value)
        self.sock = sock
        self.unread = b""

    def fileno(self) -> int:
        return self.sock.fileno()

    def say(self, *words: str) -> None:
        """Send a line. Raises `OSError`."""
        self.sock.sendall(" ".join(words).encode(errors="surrogateescape") + b"\n")

    def heard(self) -> list[str]:
        """Every line that has come; `TalkError` where the other side is gone, or says too much."""
        self._receive()
        *lines, self.unread = self.unread.split(b"\n")
        return [line.decode(errors="surrogateescape") for line in lines]

    def wait_line(self, limit_s: float) -> str:
        """The next line. Raises `TalkError`."""
        end = time.monotonic() + limit_s
        while b"\n" not in self.unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise TalkError(f"no answer within {limit_s:g} s")
            self._receive()
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode(errors="surrogateescape")

    def _receive(self) -> None:
        """Take in what has come; of one who is gone, that is heard of once all lines are read."""
        try:
            for chunk in iter(lambda: self.sock.recv(1 << 16, socket.MSG_DONTWAIT), b""):
                self.unread += chunk
                if len(self.unread) > LONGEST_LINE:
                    raise TalkError("a line is too long")
        except BlockingIOError:
            return
        except OSError as error:
            raise TalkError(str(error.strerror)) from error
        if b"\n" not in self.unread:
            raise TalkError("the connection was closed")

    def close(self) -> None:
        self.sock.close()


def dial(host: str, port: int, relay: str, limit_s: float) -> LineConnection:
    """Connect, or have the relay do so that `adapters.ssh` has on a login node.

    ``ADDRESS,ADDRESS:PORT`` it is called; the first that answers is taken. Raises `OSError`.
    """
    if not relay:
        return LineConnection(socket.create_connection((host, port), limit_s))
    hosts, _, at = relay.rpartition(":")
    for each in hosts.split(","):
        with suppress(OSError):
            limit_each_s = limit_s / (hosts.count(",") + 1)
            connection = LineConnection(socket.create_connection((each, int(at)), limit_each_s))
            connection.say("to", str(port))
            return connection
    raise OSError("none of these addresses answers")


def port_of_runner(host: str, gate: int, relay: str, claim: str, limit_s: float) -> int:
    """Ask the gate where the runner of a granted claim listens. Raises `TalkError`."""
    try:
        with closing(dial(host, gate, relay, limit_s)) as connection:
            connection.say("granted", claim)
            word, _, port = connection.wait_line(limit_s).partition(" ")
    except OSError as error:
        raise TalkError(f"{host}:{gate}: {error}") from error
    if word == "gone":
        raise GivenUpError(f"{host}:{gate}: the claim was given up")
    if word != "at" or not port.isdecimal():
        raise TalkError(f"{host}:{gate}: {word!r} came in place of the runner's port")
    return int(port)


def connect(
    host: str, port: int, relay: str, key: str, node: str, limit_s: float
) -> tuple[LineConnection, Any]:
    """Connect from a node to its part's runner; returns the connection and the node's spec."""
    ours = nonce()
    try:
        connection = dial(host, port, relay, limit_s)
    except OSError as error:
        raise TalkError(f"{relay or host}:{port}: {error}") from error
    try:
        connection.say("hello", node, ours)
        words = connection.wait_line(limit_s).split(" ")
        if len(words) != 3 or not is_proof(words[2], key, "runner", ours, words[1], node):
            raise TalkError(f"{host}:{port}: who listens there does not hold the key")
        connection.say("prove", proof(key, "node", ours, words[1], node))
        word, _, text = connection.wait_line(limit_s).partition(" ")
        if word == "wait":
            word, _, text = connection.wait_line(LONGEST_WAIT_S).partition(" ")
        if word != "spec":
            raise TalkError(f"{host}:{port}: {word!r} came in place of the spec")
        return connection, json.loads(text)
    except (OSError, ValueError) as error:
        connection.close()
        raise TalkError(f"{host}:{port}: {error}") from error
    except TalkError:
        connection.close()
        raise
