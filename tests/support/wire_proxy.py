"""A proxy between two ZeroMQ peers that loses, delays, repeats and reorders what it carries.

It stands where a ROUTER is expected, and has one DEALER with the same identity for each peer, so
both sides take it for the other. A frame is carried whole or not at all, as ZeroMQ does; the
faults are those of peers that are cut off and come back, and of messages that arrive twice.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import zmq

POLL_MS = 5


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares of messages, and seconds.

    Attributes
    ----------
    drop, repeat, late : float
        Share of the messages that are lost, arrive twice, or come after later ones.
    delay_s : float
        At most, for those that are late.
    """

    drop: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    delay_s: float = 0.5


@dataclass(order=True)
class _Carried:
    at: float
    number: int
    peer: bytes = field(compare=False)
    is_up: bool = field(compare=False)
    frames: list[bytes] = field(compare=False)


class WireProxy:
    """Carries messages between peers at `front` and the ROUTER at `back`, in a thread.

    Attributes
    ----------
    faults : Faults
        May be changed at any time.
    is_cut : bool
        Nothing is carried; what arrives meanwhile is lost.
    counts : Counter
        Messages ``carried``, ``dropped``, ``repeated`` and ``late``.
    """

    def __init__(self, front: str, back: str, *, seed: int = 0) -> None:
        self.faults = Faults()
        self.is_cut = False
        self.counts: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._back = back
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.LINGER, 0)
        self._front.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._front.bind(front)
        self._peers: dict[bytes, zmq.Socket[bytes]] = {}
        self._late: list[_Carried] = []
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close every connection."""
        self._stop.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        while not self._stop.is_set():
            ready = dict(poller.poll(POLL_MS))
            if self._front in ready:
                peer, *frames = self._front.recv_multipart()
                if peer not in self._peers:
                    poller.register(self._open(peer), zmq.POLLIN)
                self._take(peer, frames, is_up=True)
            for peer, socket in self._peers.items():
                if socket in ready:
                    self._take(peer, socket.recv_multipart(), is_up=False)
            now = time.monotonic()
            while self._late and self._late[0].at <= now:
                late = heapq.heappop(self._late)
                self._carry(late.peer, late.frames, is_up=late.is_up)

    def _open(self, peer: bytes) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        if peer[:1] != b"\0":  # an identity that the ROUTER made up is no identity to give
            socket.setsockopt(zmq.IDENTITY, peer)
        socket.connect(self._back)
        self._peers[peer] = socket
        return socket

    def _take(self, peer: bytes, frames: list[bytes], *, is_up: bool) -> None:
        faults, dice = self.faults, self._dice
        if faults == Faults() and not self.is_cut:
            # The dice wait for the first fault: how many messages come before it is chance.
            self._carry(peer, frames, is_up=is_up)
            return
        if self.is_cut or dice.random() < faults.drop:
            self.counts["dropped"] += 1
            return
        copies = 1
        if dice.random() < faults.repeat:
            self.counts["repeated"] += 1
            copies = 2
        for _ in range(copies):
            if dice.random() < faults.late:
                self.counts["late"] += 1
                at = time.monotonic() + dice.uniform(0.0, faults.delay_s)
                carried = _Carried(at, next(self._numbers), peer, is_up, frames)
                heapq.heappush(self._late, carried)
            else:
                self._carry(peer, frames, is_up=is_up)

    def _carry(self, peer: bytes, frames: list[bytes], *, is_up: bool) -> None:
        if self.is_cut:
            self.counts["dropped"] += 1
            return
        self.counts["carried"] += 1
        if is_up:
            self._peers[peer].send_multipart(frames)
        else:
            self._front.send_multipart([peer, *frames])
