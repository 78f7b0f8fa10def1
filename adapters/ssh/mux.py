"""Frames over one pair of descriptors, and the sockets whose bytes they carry, in one loop.

Both ends of a channel are one: the link here (`ssh.link`) and the agent on the login node
(`ssh.agent`), to which this text is sent. Any Python from 3.6 on runs it.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable

HEADER = struct.Struct("!cII")
"""Kind, number of what it is about, length of what follows."""
RUN, RAN, LISTEN, LISTENING = b"R", b"r", b"L", b"l"
OPEN, DATA, CLOSE = b"O", b"D", b"C"
PING, PONG, HELLO = b"P", b"p", b"H"
CHUNK = 1 << 16
FULL, TOO_MUCH = 1 << 20, 1 << 24
"""Bytes that wait for the other end, from which on no more is read; for one socket: it is stuck."""


class Mux:
    """Takes turns: reads what has come, writes what waits."""

    def __init__(self) -> None:
        self.in_fd = self.out_fd = -1
        self.heard = 0.0
        """When the other end was last heard, monotonic seconds."""
        self._in, self._out = bytearray(), bytearray()
        self._socks: dict[int, socket.socket] = {}
        self._unsent: dict[int, bytearray] = {}
        self._closing: set[int] = set()
        self._watched: dict[int, Callable[[], None]] = {}

    @property
    def is_attached(self) -> bool:
        """Whether there is another end."""
        return self.in_fd >= 0

    @property
    def carries(self) -> int:
        """Sockets whose bytes are carried."""
        return len(self._socks)

    def attach(self, in_fd: int, out_fd: int) -> None:
        """Speak over these from now on."""
        self.in_fd, self.out_fd, self.heard = in_fd, out_fd, time.monotonic()
        for fd in (in_fd, out_fd):
            os.set_blocking(fd, False)

    def detach(self) -> None:
        """The other end is gone, and with it all that was carried."""
        self.in_fd = self.out_fd = -1
        self._in, self._out = bytearray(), bytearray()
        for number in list(self._socks):
            self._drop(number)

    def watch(self, fd: int, act: Callable[[], None]) -> None:
        """Call this whenever the descriptor is readable."""
        self._watched[fd] = act

    def leave(self, fd: int) -> None:
        """Watch it no longer."""
        self._watched.pop(fd, None)

    def say(self, kind: bytes, number: int = 0, data: bytes = b"") -> None:
        """Send a frame, as soon as the other end takes it."""
        self._out += HEADER.pack(kind, number, len(data)) + data

    def carry(self, number: int, sock: socket.socket) -> None:
        """Carry a socket's bytes under this number, both ways."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socks[number], self._unsent[number] = sock, bytearray()

    def obey(self, kind: bytes, number: int, data: bytes) -> None:
        """Act on a frame that is about no socket."""
        raise NotImplementedError

    def turn(self, limit_s: float) -> None:
        """Wait for something, at most so long, and see to it."""
        poller = select.poll()
        for fd in self._watched:
            poller.register(fd, select.POLLIN)
        by_fd = {}
        for number, sock in self._socks.items():
            by_fd[sock.fileno()] = number
            wants = select.POLLOUT if self._unsent[number] else 0
            wants |= select.POLLIN if len(self._out) < FULL else 0
            poller.register(sock.fileno(), wants)
        if self.is_attached:
            poller.register(self.in_fd, select.POLLIN)
            if self._out:
                poller.register(self.out_fd, select.POLLOUT)
        for fd, event in poller.poll(max(0.0, limit_s) * 1e3):
            if fd == self.in_fd:
                self._read()
            elif fd in by_fd and by_fd[fd] in self._socks:
                self._see(by_fd[fd], event)
            elif fd in self._watched:
                self._watched[fd]()
        self._write()

    def _read(self) -> None:
        try:
            chunk = os.read(self.in_fd, 4 * CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.detach()
            return
        self.heard = time.monotonic()
        self._in += chunk
        while len(self._in) >= HEADER.size:
            kind, number, size = HEADER.unpack_from(self._in)
            if len(self._in) < HEADER.size + size:
                return
            data = bytes(self._in[HEADER.size : HEADER.size + size])
            del self._in[: HEADER.size + size]
            if kind == DATA:
                self._send(number, data)
            elif kind == CLOSE:
                self._close(number)
            else:
                self.obey(kind, number, data)

    def _write(self) -> None:
        try:
            while self._out and self.is_attached:
                del self._out[: os.write(self.out_fd, self._out[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.detach()

    def _see(self, number: int, event: int) -> None:
        if event & select.POLLOUT:
            self._send(number, b"")
        if event & ~select.POLLOUT and number in self._socks:
            try:
                chunk = self._socks[number].recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if chunk:
                self.say(DATA, number, chunk)
            else:
                self.say(CLOSE, number)
                self._drop(number)

    def _send(self, number: int, data: bytes) -> None:
        if number not in self._socks:
            return
        unsent = self._unsent[number]
        unsent += data
        try:
            while unsent:
                del unsent[: self._socks[number].send(unsent[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            unsent.clear()
            self._closing.add(number)
        if len(unsent) > TOO_MUCH or (not unsent and number in self._closing):
            self.say(CLOSE, number)
            self._drop(number)

    def _close(self, number: int) -> None:
        self._closing.add(number)
        self._send(number, b"")

    def _drop(self, number: int) -> None:
        self._unsent.pop(number, None)
        self._closing.discard(number)
        self._socks.pop(number).close()
