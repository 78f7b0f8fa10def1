"""The link: this user's process that holds the one channel to a login node.

All others ask it over a socket: commands are run there, one beside the other, and connections of
the nodes' wrappers to the agent's port are carried to the runners here. Where the channel is lost
it opens another, as soon as somebody asks, and the agent listens where it did before. It ends by
itself when nobody has asked for a while. Imports the standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import glob
import json
import os
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import Any

from coalloc.adapters.runner.batch.barrier import LOOPBACK
from coalloc.adapters.runner.grant import CLAIM, keep, kept
from coalloc.adapters.runner.payload import plain
from coalloc.adapters.ssh import agent
from coalloc.adapters.ssh.agent import CLOSE, Channel
from coalloc.adapters.ssh.master import OPEN, REFUSED, SshError, SshMaster

READY_LIMIT_S, PING_EVERY_S, SILENCE_S, IDLE_S = 15.0, 10.0, 30.0, 900.0
ANSWER_MARGIN_S, SHUT_S = 5.0, 5.0
LONGEST_NOISE = 1 << 20
"""Bytes that a login shell may say first."""
BOOT = """\
for s in "$SHELL" sh; do
  PATH=$PATH:$(timeout 5 "$s" -lc 'echo "{mark}:$PATH"' 2>&1 </dev/null | sed -n 's/^{mark}://p')
done
for p in python3 /usr/libexec/platform-python python3.12 python3.11 python3.9 python3.8 none; do
  "$p" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null </dev/null && break
done
[ "$p" = none ] && echo {mark}none
exec "$p" -I -S -c '
import sys
sys.stdout.write("{mark}ready\\n"); sys.stdout.flush()
i = sys.stdin.buffer.raw
n = int(i.read(8)); t = b""
while len(t) < n: t += i.read(n - len(t))
exec(compile(t.decode(), "agent", "exec"))
main()
'
"""
"""Script for ``sh`` there; after the mark it is Python that reads."""
LOST = "the connection was lost"


class Link(Channel):
    """Serves the processes of this user at one login."""

    def __init__(self, stem: str, master: SshMaster) -> None:
        super().__init__()
        self._stem, self._master = stem, master
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._about: dict[str, Any] = {}
        self._child: asyncio.subprocess.Process | None = None
        self._next, self._used = 0, time.monotonic()
        self._shut = (0.0, "")
        self._connecting, self._listening = asyncio.Lock(), asyncio.Lock()
        self._relay = kept(*os.path.split(f"{stem}.relay")) or {"port": 0, "folders": []}
        self._relay.setdefault("secret", secrets.token_hex(16))

    async def serve(self, sock: socket.socket) -> None:
        """Serve until nobody has asked for a while."""
        await asyncio.start_unix_server(self._call, sock=sock)
        while time.monotonic() - self._used < IDLE_S or self.socks:
            await asyncio.sleep(PING_EVERY_S)
            if self.writer is not None:
                self.tell(0, ping=True)
                if time.monotonic() - self.heard > SILENCE_S:
                    self._hang_up()

    def obey(self, number: int, words: dict[str, Any]) -> None:
        if "open" in words:
            self.early[number] = bytearray()
            self.go(self._open(number, words["open"]))
        elif number in self._answers and not self._answers[number].done():
            self._answers[number].set_result(words)

    async def _attend(self, child: asyncio.subprocess.Process) -> None:
        """Hear a channel to its end; then nothing is known of what was asked over it."""
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            await self.hear(child.stdout, child.stdin)
        finally:
            _kill(child)
            for answer in self._answers.values() if self.writer is None else ():
                if not answer.done():
                    answer.set_exception(SshError(LOST))

    async def _open(self, number: int, port: int) -> None:
        """A wrapper there wants to a port here: it may be of a part's runner, or the gate."""
        try:
            if not any(port in _ports(folder) for folder in self._relay["folders"]):
                raise OSError("nothing of ours listens there")
            ends = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            del self.early[number]
            self.say(CLOSE, number, b"")
        else:
            await self.carry(number, *ends)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            try:
                said = await self._act(json.loads(await reader.read()))
            except SshError as error:
                said = {"error": f"ssh: {error}"}
            writer.write(json.dumps(said).encode())
            await writer.drain()
        writer.close()

    async def _act(self, words: dict[str, Any]) -> dict[str, Any]:
        self._used = time.monotonic()
        if "end" in words:
            os._exit(0)
        await self._connect()
        if "run" in words:
            return await self._ask(words, words["run"]["limit_s"] + ANSWER_MARGIN_S)
        if "relay" in words:
            folders, own = words["relay"], self._relay["folders"]
            own += [folder for folder in folders if folder not in own]
            async with self._listening:  # two that ask at once are told the same port
                if not self._relay["port"]:
                    await self._listen()
            if not self._relay["port"]:
                raise SshError("it gives no port on which nodes could call")
            keep(*os.path.split(f"{self._stem}.relay"), self._relay)
            return {"addresses": self._about["addresses"], "port": self._relay["port"]}
        asked = time.monotonic()
        about = await self._ask({"about": True}, READY_LIMIT_S)
        return {**about, "trip_s": time.monotonic() - asked}

    async def _ask(self, words: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self._next = number = self._next + 1
        self._answers[number] = answer = asyncio.get_event_loop().create_future()
        self.tell(number, **words)
        try:
            async with asyncio.timeout(limit_s):
                said: dict[str, Any] = await answer
        except TimeoutError:
            raise SshError("no answer in time") from None
        finally:
            del self._answers[number]
        if "why" in said:
            raise SshError(said["why"])
        return said

    async def _listen(self) -> None:
        where = {"port": self._relay["port"], "secret": self._relay["secret"]}
        with contextlib.suppress(SshError):
            said = await self._ask({"listen": where}, agent.BIND_TRIES * agent.BIND_EVERY_S)
            self._relay["port"] = said["port"]

    async def _connect(self) -> None:
        """Open the channel where it is closed, and the connection below it. Raises `SshError`."""
        async with self._connecting:
            if self.writer is not None:
                return
            until, why = self._shut
            if time.monotonic() < until:
                raise SshError(why)
            for is_last in (False, True):
                try:
                    await self._open_channel()
                    return
                except TimeoutError:  # a master that has slept, or whose network is gone
                    self._master.drop()
                    why = f"no answer within {READY_LIMIT_S:g} s"
                except SshError as error:
                    why, is_last = str(error), True
                self._hang_up()
                if is_last:
                    self._shut = time.monotonic() + SHUT_S, why
                    raise SshError(why)

    async def _open_channel(self) -> None:
        state = await asyncio.get_event_loop().run_in_executor(None, self._master.open)
        if state.state != OPEN:
            is_tried = state.state == REFUSED and not state.asks
            wait_s = max(0, round(state.until - time.time()))
            todo = f"tried again in {wait_s} s" if is_tried else "type: coalloc connect"
            raise SshError(f"{self._master.target}: {state.why}; {todo} {self._master.target}")
        self._hang_up()  # there is one
        with open(f"{self._stem}.channel.log", "wb+") as log:
            self._child = await asyncio.create_subprocess_exec(
                *(*self._master.way(own=False), "-T", "--", self._master.target, "exec /bin/sh"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LONGEST_NOISE,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(READY_LIMIT_S):
                    await self._greet(self._child)
            except (
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
                ConnectionError,
            ) as error:
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines()
                raise SshError((lines or [LOST])[-1][:200]) from error
        if self._relay["port"]:
            self.go(self._listen())

    async def _greet(self, child: asyncio.subprocess.Process) -> None:
        """Have the agent run there, whatever the login shell says before."""
        assert child.stdin is not None
        assert child.stdout is not None
        mark = f"coalloc-{secrets.token_hex(8)}-"
        child.stdin.write(BOOT.format(mark=mark).encode())
        await child.stdout.readuntil(mark.encode())
        if await child.stdout.readline() != b"ready\n":
            raise SshError(f"{self._master.target} has no Python 3.6 or later")
        text = plain(Path(agent.__file__)).encode()
        child.stdin.write(b"%08d" % len(text) + text)
        self.go(self._attend(child))
        await asyncio.sleep(0)
        self._about = await self._ask({"about": True}, 2 * READY_LIMIT_S)

    def _hang_up(self) -> None:
        if self._child is not None:
            _kill(self._child)


def _kill(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.kill()


def _ports(folder: str) -> set[int]:
    """Ports on which parts in this folder, and their gate, are to be called."""
    found = set()
    with contextlib.suppress(OSError, ValueError):
        found.add(int(Path(folder, "gate").read_text(encoding="ascii")))
    for path in glob.glob(f"{glob.escape(folder)}/*/{CLAIM}"):
        found.add(kept(os.path.dirname(path), CLAIM).get("port", 0))
    return found - {0}


def main(stem: str) -> None:
    """Be the link of a login, unless there is one."""
    lock = os.open(f"{stem}.link.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.05)  # for the other to be there
        sys.exit(0)
    sock = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{stem}.sock")
    sock.bind(f"{stem}.sock")
    sock.listen(256)
    if os.fork():
        os._exit(0)
    login = kept(*os.path.split(f"{stem}.json"))
    link = Link(stem, SshMaster(login["target"], login.get("config", "")))
    asyncio.run(link.serve(sock))
