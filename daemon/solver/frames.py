"""Frames between the daemon and a solver process: a letter, a length, a body.

The daemon sends one request: REQUEST, SNAPSHOT, and PLAN where the rule of a plan is to be
explained. The process answers BEGUN, any number of INCUMBENT, then DONE, EXPLANATION or FAILED.
Before a long plan, INCUMBENT or DONE, comes what of it starts later, in so many PART.
Bodies are JSON, except that of BEGUN, which is a process number. `SolverRequest` is the daemon's
end of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct

from coalloc.model.history import NO_HISTORY, History

REQUEST, SNAPSHOT, PLAN = b"R", b"S", b"P"
BEGUN, INCUMBENT, DONE, EXPLANATION, FAILED = b"B", b"I", b"D", b"X", b"E"
PART = b"L"
KINDS = frozenset({REQUEST, SNAPSHOT, PLAN, BEGUN, INCUMBENT, PART, DONE, EXPLANATION, FAILED})

HEADER = struct.Struct(">cI")
MAX_BYTES = 1 << 29
"""A longer frame is taken for garbage."""


class Request(Struct, frozen=True, kw_only=True):
    """A request to a solver process."""

    policy: str = ""
    """Empty: explain."""
    explain: str = ""
    options: dict[str, Any] = {}
    work: int | None = None
    """See `coalloc.policies.base.Budget`."""
    seed: int = 0
    previous: tuple[str, ...] = ()
    history: History = NO_HISTORY
    live: bool = False
    notes: dict[str, Any] = {}
    checked: bool = False
    """Send only plans that pass the independent checker, in the solver's process, where plan and
    snapshot need not be read again. A final plan that fails is an error."""
    node_entries: int | None = None
    """A plan that names more nodes comes without the nodes of placements that start late; it cannot
    be checked any more, so ask for `checked`. With 10,000 jobs on 10,000 nodes a whole plan has
    30 MB. None: all."""
    nice: int = 0
    """Added to the niceness of the solver's processes."""
    soft_at: float = 0.0
    """``CLOCK_MONOTONIC`` seconds, the same in all processes: when to stop searching, and when to
    be gone."""
    hard_at: float = 0.0


class Failure(Struct, frozen=True, kw_only=True):
    """Reason why there is no answer."""

    message: str
    """One line."""
    jobs: tuple[str, ...] = ()
    """Those that the plan is wrong about; empty where there is none."""


class FrameError(Exception):
    """The other side sent something that is no frame."""


def frame(kind: bytes, body: bytes) -> bytes:
    """One frame."""
    return HEADER.pack(kind, len(body)) + body


def _opened(head: bytes) -> tuple[bytes, int]:
    kind, size = HEADER.unpack(head)
    if kind not in KINDS or size > MAX_BYTES:
        raise FrameError(f"no frame begins with {head!r}")
    return kind, size


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one frame; `IncompleteReadError` where the other side is gone."""
    kind, size = _opened(await reader.readexactly(HEADER.size))
    return kind, await reader.readexactly(size)


def receive_frame(stream: socket.socket) -> tuple[bytes, bytes]:
    """Read one frame, blocking; `EOFError` where the other side is gone."""
    kind, size = _opened(_exactly(stream, HEADER.size))
    return kind, _exactly(stream, size)


def _exactly(stream: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = stream.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(buffer)


MAX_LINE = 2000


class SolverRequest:
    """One request and what comes of it; `on_incumbent` receives better plans as they are found."""

    def __init__(self, on_incumbent: Callable[[bytes], None] | None = None) -> None:
        self.pid = 0
        """The process that took the request; 0 until it says so."""
        self.incumbent: bytes | None = None
        """The last of the better plans."""
        self.parts: tuple[bytes, ...] = ()
        """Of the newest plan, behind what it has itself."""
        self.jobs: tuple[str, ...] = ()
        """Those that its plan is wrong about, where that is the error."""
        self._on_incumbent = on_incumbent
        self._ended = False
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def open(self, stream: socket.socket) -> None:
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=stream)
        except BaseException:
            stream.close()
            raise

    async def run(
        self, request: Request, parts: Sequence[bytes]
    ) -> tuple[Literal["done", "error"], str, bytes | None]:
        """Ask, pass on incumbents, and return the end: status, message, body.

        Raises `FrameError`, and `OSError` or `EOFError` where the process is gone.
        """
        assert self._reader is not None
        assert self._writer is not None
        self._writer.write(frame(REQUEST, msgspec.json.encode(request)))
        self._writer.writelines(parts)
        coming: list[bytes] = []
        while True:
            kind, body = await read_frame(self._reader)
            if kind in (INCUMBENT, DONE):
                self.parts, coming = tuple(coming), []
            match kind:
                case _ if kind == PART:
                    coming.append(body)
                case _ if kind == BEGUN and body.isdigit() and not self.pid:
                    self.pid = int(body)
                case _ if kind == INCUMBENT:
                    self.incumbent = body
                    if self._on_incumbent is not None:
                        self._on_incumbent(body)
                case _ if kind in (DONE, EXPLANATION):
                    self._ended = True
                    return "done", "", body
                case _ if kind == FAILED:
                    self._ended = True
                    failure = _failure(body)
                    self.jobs = failure.jobs
                    return "error", failure.message, None
                case _:
                    raise FrameError(f"{kind!r} is not for us")

    def close(self) -> None:
        """Kill the process with its group, unless it gave its answer and ends by itself."""
        if self.pid > 1 and not self._ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._writer is not None:
            self._writer.transport.abort()


def _failure(body: bytes) -> Failure:
    try:
        return msgspec.json.decode(body, type=Failure)
    except msgspec.DecodeError as error:
        raise FrameError(f"a failure that cannot be read: {error}") from error


async def lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of a stream, cut where they are too long; asyncio's own reader raises there."""
    rest = b""
    while chunk := await stream.read(65536):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line[:MAX_LINE].decode(errors="replace")
        rest = rest[:MAX_LINE]
    if rest:
        yield rest.decode(errors="replace")


def cut_short(plan: bytes) -> bytes:
    """An incumbent as the result of a search that did not end: never an optimum."""
    fields = msgspec.json.decode(plan, type=dict[str, msgspec.Raw])
    fields["status"] = msgspec.Raw(b'"time_limit"')
    return msgspec.json.encode(fields)
