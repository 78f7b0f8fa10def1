"""Streams of the parts: wishes of the daemon to their runners, and what these answer.

A runner calls at the executor's socket when it is ordered to, which is when its streams are first
wanted. A wish is answered once; who wishes again has given the earlier wish up.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from coalloc.adapters.base import AdapterError
from coalloc.adapters.runner.stream_link import SOCKET
from coalloc.core.base.messages import Stream, Streamed
from coalloc.model.sites.parts import PartKey

CALL_LIMIT_S = 5.0
"""A runner that has not called within this time has no streams, seconds."""
LONGEST_LINE = 4 << 20


class PartStreams:
    """Connections of runners; `call` orders a part's to make one, and `say` tells the daemon."""

    def __init__(
        self,
        cluster: str,
        home: Path,
        call: Callable[[PartKey], None],
        say: Callable[[Streamed], None],
    ) -> None:
        self._cluster, self._home, self._call, self._say = cluster, home, call, say
        self._runners: dict[str, asyncio.StreamWriter] = {}
        self._due: dict[str, list[Stream]] = {}
        """Wishes for runners that have not called yet, by part."""
        self._asked: dict[str, set[int]] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listening(self._home / SOCKET), limit=LONGEST_LINE
        )

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._runners.values():
            writer.close()

    def wish(self, wish: Stream, key: PartKey, *, is_over: bool) -> None:
        """Pass a wish on, or have a runner call for it; that of a part that `is_over` does not."""
        name = key.folder
        if name in self._runners:
            self._pass_on(name, wish)
            return
        if is_over:
            self._gone(wish.number)
            return
        self._due.setdefault(name, []).append(wish)
        asyncio.get_running_loop().call_later(CALL_LIMIT_S, self._give_up, name, wish)
        try:
            self._call(key)
        except AdapterError:
            self._give_up(name, wish)

    def _pass_on(self, name: str, wish: Stream) -> None:
        self._asked.setdefault(name, set()).add(wish.number)
        body = msgspec.to_builtins(wish)
        for field in ("job", "attempt", "part"):
            del body[field]
        self._runners[name].write(json.dumps(body, separators=(",", ":")).encode() + b"\n")

    def _give_up(self, name: str, wish: Stream) -> None:
        due = self._due.get(name, [])
        if wish in due:
            due.remove(wish)
            self._gone(wish.number)
        if not due:
            self._due.pop(name, None)

    def end(self, key: PartKey) -> None:
        """Give up the wishes for a part that has ended: its runner may take no more orders."""
        for wish in self._due.pop(key.folder, ()):
            self._gone(wish.number)

    def _gone(self, number: int) -> None:
        self._say(Streamed(cluster=self._cluster, number=number, gone=True))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear one runner until it hangs up."""
        name = ""
        with suppress(OSError, ValueError, KeyError, msgspec.ValidationError):
            name = str(json.loads(await reader.readline())["part"])
            if (before := self._runners.pop(name, None)) is not None:
                before.close()
            self._runners[name] = writer
            for wish in self._due.pop(name, ()):
                self._pass_on(name, wish)
            while line := await reader.readline():
                said = msgspec.convert({**json.loads(line), "cluster": self._cluster}, Streamed)
                self._asked.get(name, set()).discard(said.number)
                self._say(said)
        if self._runners.get(name) is writer:
            del self._runners[name]
            for number in self._asked.pop(name, ()):
                self._gone(number)
        writer.close()


def listening(path: Path) -> socket.socket:
    """A socket at this path, however long that is, which is its owner's alone."""
    path.unlink(missing_ok=True)
    home = os.open(path.parent, os.O_PATH)
    old = os.umask(0o177)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(f"/proc/self/fd/{home}/{path.name}")
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(old)
        os.close(home)
    return sock
