"""Streams of a part: what its processes say until it is read, and what they are told.

A reader names the byte of each stream from which on it wants more, which acknowledges all before
it. Of a pipe or a terminal at most `CREDIT` bytes are kept that it has not acknowledged: a process
that says more waits, as before any full pipe, and a reader that comes again misses nothing. The
output files of other jobs are read as they are. Imports the standard library only, as the runner
does.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any

CREDIT = 256 << 10
CHUNK = 48 << 10
"""Of one stream in one answer, bytes."""
LOOK_S = 0.1
"""Between looks at a file of which more is wanted, seconds."""
READER_GONE_S, FOLLOWER_GONE_S = 60.0, 5.0
"""After the end, what was not read is kept for so long since the reader was last heard of, seconds:
of a pipe or a terminal; of files, which stay, and where the job was ended."""


class Buffer:
    """Bytes of a stream that were not acknowledged."""

    def __init__(self) -> None:
        self.first, self.kept = 0, bytearray()

    @property
    def room(self) -> int:
        return CREDIT - len(self.kept)

    def read(self, at: int) -> tuple[int, bytes]:
        """The offset and the bytes that follow `at`, before which all are let go."""
        done = min(max(0, at - self.first), len(self.kept))
        del self.kept[:done]
        self.first += done
        return self.first, bytes(self.kept[:CHUNK])


class Tail:
    """An output file, as far as it is written; `opened` opens it, which may fail until it is there.

    A negative offset counts from its present end.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        self._opened, self._fd = opened, -1

    def read(self, at: int) -> tuple[int, bytes]:
        """The offset and the bytes that follow `at`."""
        try:
            if self._fd < 0:
                self._fd = self._opened()
            at = max(0, os.fstat(self._fd).st_size + at) if at < 0 else at
            return at, os.pread(self._fd, CHUNK, at)
        except OSError:  # not made yet, or no file
            return max(0, at), b""


class Input:
    """Bytes for a process that it has not read."""

    def __init__(self) -> None:
        self.taken, self.left = 0, bytearray()

    def offer(self, at: int, chunk: bytes) -> int:
        """Take of a chunk that begins at `at` what is new, as far as there is room; all so far."""
        new = chunk[max(0, self.taken - at) :][: CREDIT - len(self.left)]
        self.left += new
        self.taken = max(self.taken, at) + len(new)
        return self.taken


class Streams:
    """The streams of a runner's processes.

    `say` answers the reader, `send` sends a signal to all processes, and `tails` are the output
    files of a job whose streams are not its client's.
    """

    def __init__(
        self, say: Callable[[dict[str, Any]], None], send: Callable[[int], None], kind: str = ""
    ) -> None:
        self._say, self._send, self._kind = say, send, kind
        self.ends: tuple[int, int, int] | None = None
        """The processes' own ends, until they are forked."""
        self.sources: dict[str, Buffer | Tail] = {}
        self._fds: dict[int, Buffer] = {}
        self._input, self._terminal = Input(), -1
        self._poller = select.poll()
        self._wanted: dict[str, Any] | None = None
        self._is_ended = self._is_told = False
        self._heard = time.monotonic() if kind else float("-inf")

    def open(self, uid: int | None) -> None:
        """Make pipes, or a terminal of this user's."""
        if self._kind == "pty":
            self._terminal, own = os.openpty()
            if uid is not None and os.geteuid() == 0:
                os.fchown(own, uid, -1)
            fds, self.ends = {"o": self._terminal}, (own, own, own)
        else:
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            fds, self.ends = {"o": out, "e": err}, (-1, out_end, err_end)
        for name, fd in fds.items():
            os.set_blocking(fd, False)
            self.sources[name] = self._fds[fd] = Buffer()

    def watch(self, poller: select.poll) -> None:
        """Leave their ends to the processes, and hear what they say from now on."""
        self._poller = poller
        for fd in set(self.ends or ()) - {-1}:
            os.close(fd)
        self.ends = None
        for fd in self._fds:
            self._watch(fd)

    @property
    def look_at(self) -> float:
        """Time of the next look for more, monotonic seconds."""
        now = time.monotonic()
        if self._is_ended:
            return now + LOOK_S
        is_file = self._wanted is not None and not self._kind
        return now + LOOK_S if is_file else float("inf")

    def take(self, fd: int) -> bool:
        """Read and write what can be; False if it is not a stream's."""
        if fd not in self._fds:
            return False
        self._feed()
        self._pump(fd)
        self.answer()
        return True

    def wish(self, wish: dict[str, Any]) -> None:
        """Do what the reader asks for; what it wants to read is answered once there is some."""
        self._heard = time.monotonic()
        if wish.get("size") and self._terminal >= 0:
            import fcntl  # these two are for terminals alone
            import termios

            rows, columns = wish["size"]
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        if wish.get("signal"):
            self._send(wish["signal"])
        if wish.get("input") and self._terminal >= 0:
            self._input.offer(wish.get("input_at", 0), a2b_base64(wish["input"]))
            self._feed()
        if wish.get("at") is None:
            self._say({"number": wish["number"], "taken": self._input.taken})
            return
        self._wanted = wish
        self.answer()

    def answer(self) -> None:
        """Answer what is wanted, if there is something to say."""
        if self._wanted is None:
            return
        chunks = []
        for name, source in self.sources.items():
            asked = self._wanted["at"].get(name, 0)
            at, data = source.read(asked)
            if data or at > asked >= 0:
                chunks.append([name, at, b2a_base64(data, newline=False).decode()])
        for fd in tuple(self._fds):
            self._watch(fd)
        is_end = self._is_ended and not chunks and not self._fds
        if chunks or is_end:
            number, self._wanted = self._wanted["number"], None
            self._is_told |= is_end
            self._say({"number": number, "chunks": chunks, "ended": is_end})

    def end(self, *, is_cut: bool) -> bool:
        """No process is left: whether the reader has all, or is gone; `is_cut`: they were ended."""
        self._is_ended = True
        for fd in tuple(self._fds):
            self._pump(fd)
        self.answer()
        gone_s = READER_GONE_S if self._kind and not is_cut else FOLLOWER_GONE_S
        return self._is_told or time.monotonic() >= self._heard + gone_s

    def _pump(self, fd: int) -> None:
        """Keep what a process has said, as far as there is room."""
        buffer = self._fds[fd]
        try:
            while buffer.room:
                chunk = os.read(fd, buffer.room)
                if not chunk:
                    raise EOFError
                buffer.kept += chunk
        except BlockingIOError:
            if self._is_ended:  # held by what could not be ended
                self._close(fd)
        except (EOFError, OSError):  # a terminal that nobody has open says EIO
            self._close(fd)
        if fd in self._fds:
            self._watch(fd)

    def _feed(self) -> None:
        """Pass on what the processes are told, as far as they take it."""
        with contextlib.suppress(OSError):
            while self._input.left and self._terminal in self._fds:
                del self._input.left[: os.write(self._terminal, self._input.left[:4096])]
        if self._terminal in self._fds:
            self._watch(self._terminal)

    def _watch(self, fd: int) -> None:
        mask = select.POLLIN if self._fds[fd].room else 0
        if fd == self._terminal and self._input.left:
            mask |= select.POLLOUT
        if mask:
            self._poller.register(fd, mask)
            return
        with contextlib.suppress(KeyError):  # a full one that is closed would wake us all the time
            self._poller.unregister(fd)

    def _close(self, fd: int) -> None:
        del self._fds[fd]
        with contextlib.suppress(KeyError):
            self._poller.unregister(fd)
        os.close(fd)
