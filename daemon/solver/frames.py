"""Frames between the daemon and a solver process: a letter, a length, a body.

The daemon sends one request: REQUEST, SNAPSHOT, and PLAN where the rule of a plan is to be
explained. The process answers BEGUN, any number of INCUMBENT, then DONE, EXPLANATION or FAILED.
Bodies are JSON, except that of BEGUN, which is a process number.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from msgspec import Struct

from coalloc.model.history import NO_HISTORY, History

REQUEST, SNAPSHOT, PLAN = b"R", b"S", b"P"
BEGUN, INCUMBENT, DONE, EXPLANATION, FAILED = b"B", b"I", b"D", b"X", b"E"
KINDS = frozenset(
    {REQUEST, SNAPSHOT, PLAN, BEGUN, INCUMBENT, DONE, EXPLANATION, FAILED},
)

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
