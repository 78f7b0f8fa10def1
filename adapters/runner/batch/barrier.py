"""The barrier's listening end: the nodes of one part, and what each has said.

Imports the standard library only, as the runner does.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from coalloc.adapters.runner.once import is_holder
from coalloc.adapters.runner.spec import NodeSpec
from coalloc.adapters.runner.status import END, READY, RUN
from coalloc.adapters.runner.talk import LineConnection, TalkError, is_proof, nonce, proof

AUTHENTICATION_LIMIT_S = 10.0
MOST_UNAUTHENTICATED = 256
LOOPBACK = "127.0.0.1"


class NodeWrapper:
    """One node's wrapper, if it is connected, and its records by step (READY, RUN, END)."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.connection: LineConnection | None = None
        self.records: dict[int, dict[str, Any]] = {}
        self.is_let_go = False
        self.finished: LineConnection | None = None  # on which it was told to hold no longer

    @property
    def count(self) -> int:
        """Processes that are started of this part on it."""
        if self.spec.get("once"):
            return 0 if self.is_holder else 1
        return len(self.spec["ranks"])

    @property
    def is_holder(self) -> bool:
        """It only holds slots of a command that is started on another."""
        return is_holder(self.spec)


class UnauthenticatedPeer:
    """A connection that has not yet proved that it holds the key."""

    def __init__(self, sock: socket.socket) -> None:
        self.connection = LineConnection(sock)
        self.until = time.monotonic() + AUTHENTICATION_LIMIT_S
        self.node = self.theirs = self.ours = ""


class Barrier:
    """Listens for a part's nodes, on one of `ports`, inclusive; (0, 0): any; of `host`, empty: all.

    `specs` has what each is told to run, by the batch system's node name; while it is empty,
    whoever comes waits to be told. Each has to hold `key`. Raises `OSError` where no port is free.
    """

    def __init__(
        self,
        specs: dict[str, NodeSpec],
        key: str,
        ports: tuple[int, int],
        poller: select.poll,
        host: str = "",
    ) -> None:
        self.nodes = {name: NodeWrapper(spec) for name, spec in specs.items()}
        self._key, self._poller = key, poller
        self._unauthenticated: dict[int, UnauthenticatedPeer] = {}
        self._hearers: dict[int, Callable[[], None]] = {}
        """By the descriptors that may be readable."""
        self.early: dict[str, LineConnection] = {}
        """Wrappers, by node, that have come before it was known what they are to run."""
        self.has_lost_early = False
        """One of those has gone again."""
        self.on_word: dict[str, Callable[[NodeWrapper, str], None]] = {}
        """Hearers of a node's words besides its records (`runner.talk`), by the word."""
        self.besides: Callable[[], dict[str, Any]] = dict
        """Further fields of a node's spec, as they are when it comes."""
        self.is_open = False
        """The processes were let go: a wrapper that comes for the first time comes too late."""
        self._sock = listening(ports, host)
        self._sock.setblocking(False)
        self._watch(self._sock.fileno(), self._accept)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def all_said(self, step: int) -> bool:
        return bool(self.nodes) and all(step in node.records for node in self.nodes.values())

    @property
    def missing(self) -> list[str]:
        """Names of the nodes that are not here and have not ended."""
        return [
            name
            for name, node in self.nodes.items()
            if node.connection is None and END not in node.records
        ]

    @property
    def is_broken(self) -> bool:
        """Whether a node that was here is not, though it has not ended."""
        return any(READY in self.nodes[name].records for name in self.missing)

    def brief(self, specs: dict[str, NodeSpec]) -> None:
        """Tell those that are here what to run, and from now on those that come."""
        self.nodes = {name: NodeWrapper(spec) for name, spec in specs.items()}
        early, self.early = self.early, {}
        for name, connection in early.items():
            if name in self.nodes:
                self._join(name, connection)
            else:
                self._drop(connection)

    def take(self, fd: int) -> bool:
        """Take in what has come over a descriptor; False if it is none of the barrier's."""
        if fd not in self._hearers:
            return False
        self._hearers[fd]()
        return True

    def listen(self) -> None:
        """Take in everything that has come from the nodes, and who has gone."""
        for node in self.nodes.values():
            if node.connection is not None:
                self._hear(node)

    def say(self, *words: str) -> None:
        """Tell every node that is here."""
        self.is_open = self.is_open or words[0] == "go"
        for node in self.nodes.values():
            if node.connection is not None:
                self.tell(node, *words)

    def let_go(self, code: int) -> None:
        """Let wrappers end that ended last, with this exit code, which becomes the batch job's."""
        for node in self.nodes.values():
            if END in node.records and not node.is_let_go:
                self._let_go(node, code)

    def finish_holders(self) -> None:
        """Let the nodes end that only hold slots, once the command has ended."""
        nodes = self.nodes.values()
        if not all(node.is_holder or END in node.records for node in nodes):
            return
        for node in nodes:
            if node.is_holder and END not in node.records and node.finished is not node.connection:
                node.finished = node.connection
                self.tell(node, "finish")

    def drop_unauthenticated(self) -> None:
        """Close the connections that have not proved the key in time."""
        now = time.monotonic()
        for peer in list(self._unauthenticated.values()):
            if now > peer.until:
                self._drop(peer.connection)

    def close(self) -> None:
        for peer in list(self._unauthenticated.values()):
            self._drop(peer.connection)
        for name in list(self.early):
            self._drop_early(name)
        for node in self.nodes.values():
            self._lose(node)
        with contextlib.suppress(KeyError):
            self._poller.unregister(self._sock)
        self._sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._sock.accept()
                if len(self._unauthenticated) >= MOST_UNAUTHENTICATED:
                    sock.close()
                    continue
                peer = UnauthenticatedPeer(sock)
                self._unauthenticated[sock.fileno()] = peer
                self._watch(sock.fileno(), partial(self._meet, peer))

    def _watch(self, fd: int, hearer: Callable[[], None]) -> None:
        self._hearers[fd] = hearer
        self._poller.register(fd, select.POLLIN)

    def _meet(self, peer: UnauthenticatedPeer) -> None:
        try:
            for line in peer.connection.heard():
                self._greet(peer, line.split(" "))
                if peer.connection.fileno() not in self._unauthenticated:
                    return
        except (OSError, TalkError):
            self._drop(peer.connection)

    def _greet(self, peer: UnauthenticatedPeer, words: list[str]) -> None:
        is_known = words[1:2] and (not self.nodes or words[1] in self.nodes)
        if words[0] == "hello" and len(words) == 3 and is_known:
            peer.node, peer.theirs, peer.ours = words[1], words[2], nonce()
            said = proof(self._key, "runner", peer.theirs, peer.ours, peer.node)
            peer.connection.say("prove", peer.ours, said)
            return
        about = (peer.theirs, peer.ours, peer.node)
        is_said = peer.node and words[0] == "prove" and len(words) == 2
        if not is_said or not is_proof(words[1], self._key, "node", *about):
            raise TalkError("the peer does not hold the key")
        if self.nodes and peer.node not in self.nodes:
            raise TalkError("the part has no such node")
        del self._unauthenticated[peer.connection.fileno()]
        if self.nodes:
            self._join(peer.node, peer.connection)
            return
        if peer.node in self.early:
            self._drop_early(peer.node)
        self.early[peer.node] = peer.connection
        self._hearers[peer.connection.fileno()] = partial(self._hear_early, peer.node)
        peer.connection.say("wait")

    def _join(self, name: str, connection: LineConnection) -> None:
        node = self.nodes[name]
        self._lose(node)
        node.connection = connection
        self._hearers[connection.fileno()] = partial(self._hear, node)
        spec = node.spec | {"is_open": self.is_open} | self.besides()
        self.tell(node, "spec", json.dumps(spec, separators=(",", ":")))

    def _hear_early(self, name: str) -> None:
        """Nothing is said before the spec: see whether it is still there."""
        try:
            self.early[name].heard()
        except TalkError:
            self.has_lost_early = True
            self._drop_early(name)

    def _drop_early(self, name: str) -> None:
        self._drop(self.early.pop(name))

    def _hear(self, node: NodeWrapper) -> None:
        assert node.connection is not None
        try:
            for line in node.connection.heard():
                word, _, text = line.partition(" ")
                if word in {str(READY), str(RUN), str(END)}:
                    node.records.setdefault(int(word), json.loads(text))
                if word in self.on_word:
                    self.on_word[word](node, text)
                if word == str(END) and not self.all_said(END):
                    self._let_go(node, 0)
        except (TalkError, ValueError):
            self._lose(node)

    def _let_go(self, node: NodeWrapper, code: int) -> None:
        node.is_let_go = True
        self.tell(node, "over", str(code))

    def tell(self, node: NodeWrapper, *words: str) -> None:
        if node.connection is None:
            return
        try:
            node.connection.say(*words)
        except OSError:
            self._lose(node)

    def _lose(self, node: NodeWrapper) -> None:
        if node.connection is not None:
            self._drop(node.connection)
            node.connection = None

    def _drop(self, connection: LineConnection) -> None:
        fd = connection.fileno()
        self._unauthenticated.pop(fd, None)
        self._hearers.pop(fd, None)
        with contextlib.suppress(KeyError):
            self._poller.unregister(fd)
        connection.close()


def listening(ports: tuple[int, int], host: str = "") -> socket.socket:
    """A socket that listens on the first free port, of all addresses or one. Raises `OSError`."""
    first, last = ports
    failure: OSError | None = None
    for port in range(first, last + 1):
        is_six = not host and socket.has_dualstack_ipv6()
        sock = socket.socket(socket.AF_INET6 if is_six else socket.AF_INET)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sock.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((host, port))
            sock.listen(1024)
        except OSError as error:
            sock.close()
            failure = error
            continue
        return sock
    raise failure or OSError(0, f"no port in {first}-{last}")
