"""One request to one solver process: the daemon's end of the stream."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from coalloc.daemon.solver.frames import (
    BEGUN,
    DONE,
    EXPLANATION,
    FAILED,
    INCUMBENT,
    REQUEST,
    Failure,
    FrameError,
    Request,
    frame,
    read_frame,
)

MAX_LINE = 2000


class SolverRequest:
    """One request and what comes of it; `on_incumbent` receives better plans as they are found."""

    def __init__(self, on_incumbent: Callable[[bytes], None] | None = None) -> None:
        self.pid = 0
        """The process that took the request; 0 until it says so."""
        self.incumbent: bytes | None = None
        """The last of the better plans."""
        self.jobs: tuple[str, ...] = ()
        """Those that its plan is wrong about, where that is the error."""
        self._on_incumbent = on_incumbent
        self._ended = False
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def open(self, stream: socket.socket) -> None:
        """Take over a connected socket."""
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
        while True:
            kind, body = await read_frame(self._reader)
            match kind:
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
