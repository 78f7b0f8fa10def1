"""The channel's far end, on the login node: runs commands, and carries the wrappers' connections.

`Channel` is what both ends have. This text is sent there and run by its Python, 3.6 or later.
Nothing is written there; it ends with the channel, or once it has heard nothing for `SILENCE_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Coroutine
from typing import Any

HEADER = struct.Struct("!cII")
"""Kind, number of what it is about, length of what follows."""
DATA, CLOSE, WORDS = b"D", b"C", b"W"
CHUNK, TOO_MUCH, MOST_CALLERS = 1 << 16, 1 << 24, 1000
SILENCE_S, CALL_LIMIT_S, BIND_EVERY_S, BIND_TRIES = 45.0, 10.0, 0.3, 200
LOST = (asyncio.IncompleteReadError, OSError, ValueError)


class Channel:
    """Frames over one pair of pipes: words, and the bytes of sockets by their numbers."""

    writer: asyncio.StreamWriter | None = None
    heard = 0.0
    """When the other end was last heard, monotonic seconds."""

    def __init__(self) -> None:
        self.socks: dict[int, asyncio.StreamWriter] = {}
        self.early: dict[int, bytearray] = {}
        """Data for sockets that are not there yet."""
        self._tasks: set[asyncio.Future[None]] = set()

    def go(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def obey(self, number: int, words: dict[str, Any]) -> None:
        raise NotImplementedError

    def say(self, kind: bytes, number: int, data: bytes) -> None:
        if self.writer is not None:
            self.writer.write(HEADER.pack(kind, number, len(data)) + data)

    def tell(self, number: int, **words: Any) -> None:
        self.say(WORDS, number, json.dumps(words).encode())

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take in all frames, until the other end is gone, and with it all that is carried."""
        self.writer, self.heard = writer, time.monotonic()
        try:
            with contextlib.suppress(*LOST):
                await self._hear(reader)
        finally:
            if self.writer is writer:  # no other pair has taken its place
                self.writer = None
                for number in list(self.socks):
                    self._drop(number)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while True:
            kind, number, size = HEADER.unpack(await reader.readexactly(HEADER.size))
            data = await reader.readexactly(size)
            self.heard = time.monotonic()
            if kind == WORDS:
                self.obey(number, json.loads(data.decode()))
            elif kind == DATA and number in self.early:
                self.early[number] += data
            elif kind == DATA and number in self.socks:
                self.socks[number].write(data)
                if self.socks[number].transport.get_write_buffer_size() > TOO_MUCH:
                    self._drop(number)
            elif kind == CLOSE:
                self._drop(number)

    async def carry(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry a connection's bytes under this number, both ways, to its end."""
        self.socks[number] = writer
        writer.write(bytes(self.early.pop(number, b"")))
        with contextlib.suppress(*LOST):
            while self.writer is not None:
                chunk = await reader.read(CHUNK)
                if not chunk:
                    break
                self.say(DATA, number, chunk)
                await self.writer.drain()
        self.say(CLOSE, number, b"")
        self._drop(number)

    def _drop(self, number: int) -> None:
        if number in self.socks:
            self.socks.pop(number).close()


class Agent(Channel):
    """Serves one link."""

    def __init__(self) -> None:
        Channel.__init__(self)
        self._groups: set[int] = set()
        self._next, self._secret = 0, ""

    async def serve(self) -> None:
        loop, reader = asyncio.get_event_loop(), asyncio.StreamReader()
        mixin = asyncio.streams.FlowControlMixin
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        pipe, flow = await loop.connect_write_pipe(mixin, sys.stdout)
        writer = asyncio.StreamWriter(pipe, flow, reader, loop)
        hearing = self.go(self.hear(reader, writer))
        await asyncio.sleep(0)
        while not hearing.done() and time.monotonic() - self.heard < SILENCE_S:
            await asyncio.wait([hearing], timeout=5.0)
        self._end()

    def _end(self) -> None:
        for group in self._groups:
            _kill(group)
        os._exit(0)

    def obey(self, number: int, words: dict[str, Any]) -> None:
        if "run" in words:
            self.go(self._run(number, **words["run"]))
        elif "listen" in words:
            self.go(self._listen(number, **words["listen"]))
        else:
            self.tell(number, **_about())

    async def _run(
        self, number: int, argv: list[str], env: dict[str, str], text: str, limit_s: float
    ) -> None:
        pipe, raw = subprocess.PIPE, text.encode("utf-8", "surrogateescape")
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=dict(os.environ, **env),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.tell(number, why=f"cannot be run: {getattr(error, 'strerror', '') or error}")
            return
        self._groups.add(child.pid)
        try:
            said = await asyncio.wait_for(child.communicate(raw), limit_s)
            out, err = [each.decode(errors="replace") for each in said]
            self.tell(number, code=child.returncode, out=out, err=err)
        except asyncio.TimeoutError:  # noqa: UP041 - another's, before Python 3.11
            _kill(child.pid)
            self.tell(number, why=f"no answer within {limit_s:g} s")
        self._groups.discard(child.pid)

    async def _listen(self, number: int, port: int, secret: str) -> None:
        """Listen at the port that wrappers know; an agent that a cut has left has to let it go."""
        self._secret = secret
        for left in reversed(range(BIND_TRIES)):
            try:
                server = await asyncio.start_server(self._call, "0.0.0.0", port if left else 0)
                self.tell(number, port=server.sockets[0].getsockname()[1])
                return
            except OSError:
                with contextlib.suppress(OSError):
                    _, old = await asyncio.open_connection("127.0.0.1", port)
                    old.write(f"leave {secret}\n".encode())
                    old.close()
            await asyncio.sleep(BIND_EVERY_S)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A caller first says to which port it wants."""
        word = rest = ""
        with contextlib.suppress(asyncio.TimeoutError, *LOST):
            line = await asyncio.wait_for(reader.readline(), CALL_LIMIT_S)
            word, _, rest = line.decode().strip().partition(" ")
        if word == "leave" and rest == self._secret:
            self._end()
        if word != "to" or not rest.isdigit() or len(self.socks) > MOST_CALLERS:
            writer.close()
            return
        self._next += 1
        self.tell(self._next, open=int(rest))
        await self.carry(self._next, reader, writer)


def _kill(group: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def _about() -> dict[str, Any]:
    name, found = socket.gethostname(), []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.check_output(["hostname", "-I"], stderr=subprocess.DEVNULL, timeout=2)
        found = [word for word in said.decode().split() if ":" not in word][:6]
    user = pwd.getpwuid(os.getuid())
    own = {"user": user.pw_name, "uid": user.pw_uid, "host": name, "addresses": found or [name]}
    return dict(own, python=".".join(map(str, sys.version_info[:3])))


def main() -> None:
    """Be the agent."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(Agent().serve())
