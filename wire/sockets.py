"""ZeroMQ sockets in an asyncio loop: every waiting message is handed over, no send blocks.

Notes
-----
The descriptor of a ZeroMQ socket is edge-triggered: after any receive or send the socket's
events must be looked at again, or a message may lie there unnoticed. HWM and LINGER are set
before bind or connect; set afterwards they do not apply.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import zmq

from coalloc.wire.contexts import Context
from coalloc.wire.curve import CurveServer, Handshakes, OnHandshake, Security

OnFrames = Callable[[list[bytes]], None]

DEALER = zmq.DEALER
MAX_FRAMES_AT_ONCE, MAX_DRAIN_S = 2000, 0.01
"""Taken from one socket before others get their turn, and for how long, seconds."""
REST_S = 0.005
SEND_HWM = 10_000
"""Messages that may lie in one connection's queue to its peer."""


FileId = tuple[int, int]
"""Device and inode; a listening socket keeps its inode from being given to another file."""


def make_folder(path: Path, *, is_shared: bool) -> None:
    """Make a socket's folder, which others may pass only to a shared socket."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if is_shared else 0o700)


def file_id(path: Path) -> FileId | None:
    """Identify the file of this name; None: there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class AsyncSocket:
    """One socket; `on_frames` gets messages, `on_handshake` how each handshake ended.

    A frame longer than `max_bytes` ends its sender's connection, in whose queue `receive_hwm`
    messages may lie unread. A listener with `security` is open to every user of the machine.
    """

    def __init__(
        self,
        context: Context,
        kind: int,
        on_frames: OnFrames,
        *,
        max_bytes: int,
        receive_hwm: int = 10_000,
        security: Security | None = None,
        on_handshake: OnHandshake | None = None,
        name: str = "",
    ) -> None:
        self.name = name
        """For the log."""
        self.path: Path | None = None
        """Of its file, where it listens on an ipc end point."""
        self._file: FileId | None = None
        self.socket = context.socket(kind)
        self.on_frames = on_frames
        self.sender = ""
        """While `on_frames` runs: the public key that sent them; empty without CURVE."""
        self._is_shared = isinstance(security, CurveServer)
        self._on_handshake = on_handshake
        self._handshakes: Handshakes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._again: asyncio.Handle | None = None
        self._resting: asyncio.TimerHandle | None = None
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, SEND_HWM)
        self.socket.setsockopt(zmq.RCVHWM, receive_hwm)
        self.socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        if security is not None:
            security.apply(self.socket)
        if on_handshake is not None:
            self._handshakes = Handshakes(self.socket)
        if kind == zmq.ROUTER:
            # Nobody takes over another's connection by giving his own the same identity.
            self.socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
            self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if kind == zmq.XPUB:
            self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)

    def bind(self, endpoint: str) -> None:
        """Listen; an ipc socket is its owner's only, or with CURVE everybody's."""
        path = endpoint.removeprefix("ipc://")
        if path != endpoint:
            self.path = Path(path)
            make_folder(self.path, is_shared=self._is_shared)
        old = os.umask(0o111 if self._is_shared else 0o177)
        try:
            self.socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise OSError(error.errno, error.strerror, path) from error
        finally:
            os.umask(old)
        if self.path is not None:
            self._file = file_id(self.path)

    def is_there(self) -> bool:
        """Whether a listener on an ipc end point is found by its path."""
        return self.path is None or file_id(self.path) == self._file

    def restore(self) -> None:
        """Listen once more where the file is gone; raises `OSError`.

        The listener that lost its file stays, one descriptor without a name: with it ZeroMQ would
        end the connections that came through it.
        """
        if self.path is not None:
            self.bind(f"ipc://{self.path}")

    def connect(self, endpoint: str) -> None:
        """Talk to a listener, now or when it appears."""
        self.socket.connect(endpoint)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to hand over messages."""
        self._loop = loop
        loop.add_reader(self.socket.fileno(), self._drain)
        if self._handshakes is not None and self._on_handshake is not None:
            self._handshakes.attach(loop, self._on_handshake)
        self._soon()

    def close(self, linger_ms: int = 200) -> None:
        """Hand over nothing more, and close."""
        if self._loop is not None:
            with suppress(ValueError, zmq.ZMQError):
                self._loop.remove_reader(self.socket.fileno())
            self._loop = None
        if self._resting is not None:
            self._resting.cancel()
        if self._handshakes is not None:
            self._handshakes.close()
            self._handshakes = None
        self.socket.close(linger=linger_ms)

    def rest(self) -> None:
        """Leave what comes in where it is for `REST_S`; its senders have to wait as well."""
        if self._loop is not None and self._resting is None:
            self._resting = self._loop.call_later(REST_S, self._rested)

    def _rested(self) -> None:
        self._resting = None
        self._drain()

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send without blocking; False if the peer is gone or full."""
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except (zmq.Again, zmq.ZMQError):
            return False
        finally:
            self._soon()
        return True

    def _soon(self) -> None:
        if self._loop is not None and (self._again is None or self._again.cancelled()):
            self._again = self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._again = None
        end = time.perf_counter() + MAX_DRAIN_S
        for _ in range(MAX_FRAMES_AT_ONCE):
            if self.socket.closed or self._resting is not None:
                return
            try:
                frames = self._received()
            except zmq.ZMQError:
                return
            self.on_frames(frames)
            if time.perf_counter() > end:
                break
        self._soon()

    def _received(self) -> list[bytes]:
        if not self._is_shared:
            return self.socket.recv_multipart(zmq.NOBLOCK)
        frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        try:
            self.sender = str(frames[-1].get("User-Id"))
        except zmq.ZMQError:  # some frames are ZeroMQ's own
            self.sender = ""
        return [frame.bytes for frame in frames]
