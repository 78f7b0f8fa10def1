"""The link: this user's process that holds the one channel to a login node.

All others ask it over a socket: commands are run there, one beside the other, and connections of
the nodes' wrappers to the agent's port are carried to the runners here. Where the channel is lost
it opens another, as soon as somebody asks, and the agent listens where it did before. It ends by
itself when nobody has asked for a while. Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from coalloc.adapters.runner.grant import CLAIM, kept
from coalloc.adapters.runner.payload import plain
from coalloc.adapters.ssh import agent, mux
from coalloc.adapters.ssh.master import OPEN, REFUSED, MasterState, SshError, SshMaster
from coalloc.adapters.ssh.mux import Mux

READY_LIMIT_S, PING_EVERY_S, SILENCE_S, IDLE_S = 15.0, 10.0, 30.0, 900.0
ANSWER_MARGIN_S, SHUT_S = 5.0, 5.0
PYTHONS = "python3 /usr/libexec/platform-python python3.12 python3.11 python3.9 python3.8 python3.6"
BOOT = """\
for p in {pythons} none; do
  [ "$p" = none ] && {{ echo "{mark}none"; exit 1; }}
  "$p" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null </dev/null && break
done
exec "$p" -I -S -c '
import sys
sys.stdout.write("{mark}ready\\n"); sys.stdout.flush()
i = sys.stdin.buffer.raw
n = int(i.read(8)); t = b""
while len(t) < n: t += i.read(n - len(t))
new = lambda n: sys.modules.setdefault(n, type(sys)(n))
for n in ("coalloc", "coalloc.adapters", "coalloc.adapters.ssh"): new(n).__path__ = []
for n, s in eval(t.decode()):
    m = new(n)
    exec(compile(s, n, "exec"), m.__dict__)
m.main()
'
"""
"""What ``sh`` there reads; after the mark it is Python that reads."""
LOST = "the connection was lost"


class Link(Mux):
    """Serves the processes of this user at one login."""

    def __init__(self, stem: str, target: str, config: str) -> None:
        super().__init__()
        self._stem, self._master = stem, SshMaster(target, config)
        self._child: subprocess.Popen[bytes] | None = None
        self._about: dict[str, Any] = {}
        self._asked: dict[int, tuple[socket.socket, float]] = {}
        self._for_port: list[socket.socket] = []
        self._callers: dict[int, tuple[socket.socket, bytearray]] = {}
        self._next, self._port = 1, 0
        self._pinged = self._trip_s = 0.0
        self._used = time.monotonic()
        self._shut = (0.0, "")
        self._is_over = False
        self._relay = _read_json(f"{stem}.relay") or {"port": 0, "folders": []}
        self._relay.setdefault("secret", secrets.token_hex(16))
        self._sock = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{stem}.sock")
        self._sock.bind(f"{stem}.sock")
        self._sock.listen(256)
        self.watch(self._sock.fileno(), self._accept)

    def serve(self) -> None:
        """Serve until nobody has asked for a while."""
        while not self._is_over:
            self.turn(1.0)
            now = time.monotonic()
            if self.is_attached and now - self._pinged >= PING_EVERY_S:
                self._pinged = now
                self.say(mux.PING)
                self._write()
            if self.is_attached and now - self.heard > SILENCE_S:
                self.detach()
            for number in [n for n, (_, until) in self._asked.items() if now > until]:
                self._answer(self._asked.pop(number)[0], {"error": "ssh: no answer in time"})
            if now - self._used > IDLE_S and not self.carries:
                self._is_over = True
        self.detach()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._stem}.sock")

    def detach(self) -> None:
        """The channel is gone: nothing is known of what was asked over it."""
        super().detach()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
        callers = [caller for caller, _ in self._asked.values()] + self._for_port
        self._asked, self._for_port, self._port = {}, [], 0
        for caller in callers:
            self._answer(caller, {"error": f"ssh: {LOST}"})

    def obey(self, kind: bytes, number: int, data: bytes) -> None:
        """Act on what the agent says."""
        if kind == mux.RAN and number in self._asked:
            said = json.loads(data)
            self._answer(
                self._asked.pop(number)[0], {"error": said["why"]} if "why" in said else said
            )
        elif kind == mux.HELLO:
            self._about = json.loads(data)
        elif kind == mux.PONG:
            self._trip_s = self.heard - self._pinged
        elif kind == mux.LISTENING:
            self._port = self._relay["port"] = int(data)
            self._keep()
            for caller in self._for_port:
                self._tell_port(caller)
            self._for_port = []
        elif kind == mux.OPEN:
            self._open(number, int(data))

    def _open(self, number: int, port: int) -> None:
        """A wrapper there wants to a port here: it may be of a part's runner, or the gate."""
        try:
            if not any(port in _ports(folder) for folder in self._relay["folders"]):
                raise OSError("nothing of ours listens there")
            self.carry(number, socket.create_connection(("127.0.0.1", port), 1.0))
        except OSError:
            self.say(mux.CLOSE, number)

    # -- those who ask

    def _accept(self) -> None:
        caller, _ = self._sock.accept()
        self._callers[caller.fileno()] = caller, bytearray()
        self.watch(caller.fileno(), lambda: self._hear(caller))

    def _hear(self, caller: socket.socket) -> None:
        chunk, said = caller.recv(1 << 16), self._callers[caller.fileno()][1]
        said += chunk
        if not chunk or said.endswith(b"\n"):
            self.leave(caller.fileno())
            del self._callers[caller.fileno()]
            if not chunk:
                caller.close()
                return
            self._used = time.monotonic()
            try:
                self._act(caller, json.loads(said))
            except SshError as error:
                self._answer(caller, {"error": f"ssh: {error}"})

    def _act(self, caller: socket.socket, words: dict[str, Any]) -> None:
        if "linked" in words:
            self._answer(caller, {"linked": self.is_attached})
        elif "end" in words:
            self._is_over = True
            self._answer(caller, {})
        elif "about" in words:
            self._connect()
            self._answer(caller, self._about | {"trip_s": self._trip_s})
        elif "run" in words:
            self._connect()
            self._next += 1
            until = time.monotonic() + words["run"]["limit_s"] + ANSWER_MARGIN_S
            self._asked[self._next] = caller, until
            self.say(mux.RUN, self._next, json.dumps(words["run"]).encode())
        elif "relay" in words:
            folder = words["relay"]["folder"]
            if folder not in self._relay["folders"]:
                self._relay["folders"].append(folder)
                self._keep()
            self._connect()
            if self._port:
                self._tell_port(caller)
            else:
                self._for_port.append(caller)
                self._listen()

    def _tell_port(self, caller: socket.socket) -> None:
        self._answer(caller, {"addresses": self._about["addresses"], "port": self._port})

    def _answer(self, caller: socket.socket, words: dict[str, Any]) -> None:
        caller.settimeout(5.0)
        with contextlib.suppress(OSError):
            caller.sendall(json.dumps(words).encode())
        caller.close()

    def _keep(self) -> None:
        new = f"{self._stem}.relay.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self._relay, file)
        os.replace(new, f"{self._stem}.relay")

    # -- the channel

    def _connect(self) -> None:
        """Open the channel where it is closed, and the connection below it. Raises `SshError`."""
        if self.is_attached:
            return
        until, why = self._shut
        if time.monotonic() < until:
            raise SshError(why)
        try:
            try:
                self._open_channel()
            except TimeoutError:  # a master that has slept, or whose network is gone
                self._master.drop()
                self._open_channel()
        except (SshError, TimeoutError) as error:
            self.detach()
            self._shut = time.monotonic() + SHUT_S, str(error)
            raise SshError(str(error)) from error

    def _open_channel(self) -> None:
        state = self._master.open()
        if state.state != OPEN:
            raise SshError(_words(state, self._master.target))
        mark = f"coalloc-{secrets.token_hex(8)}-"
        with open(f"{self._stem}.channel.log", "wb") as log:
            self._child = child = subprocess.Popen(
                self._master.client("exec /bin/sh"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert child.stdin is not None
        assert child.stdout is not None
        in_fd, out_fd = child.stdout.fileno(), child.stdin.fileno()
        try:
            os.write(out_fd, BOOT.format(pythons=PYTHONS, mark=mark).encode())
            more = self._await(in_fd, mark.encode())
            if more.startswith(b"none"):
                raise SshError(f"{self._master.target} has no Python 3.6 or later")
            text = repr(_modules()).encode()
            os.write(out_fd, b"%08d" % len(text) + text)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise SshError(self._why()) from error
        self.attach(in_fd, out_fd)
        end = time.monotonic() + READY_LIMIT_S
        self._about, self._pinged = {}, time.monotonic()
        self.say(mux.PING)
        while not self._about or not self._trip_s:
            if not self.is_attached:
                raise SshError(self._why())
            if time.monotonic() > end:
                raise TimeoutError(f"no answer within {READY_LIMIT_S:g} s")
            self.turn(1.0)
        if self._relay["port"]:
            self._listen()

    def _await(self, fd: int, mark: bytes) -> bytes:
        """Read up to the mark, whatever the login shell says before; returns the line's rest."""
        said, end = b"", time.monotonic() + READY_LIMIT_S
        while True:
            if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"no answer within {READY_LIMIT_S:g} s")
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                raise OSError(LOST)
            said += chunk
            _, found, rest = said.partition(mark)
            if found and b"\n" in rest:
                return rest

    def _why(self) -> str:
        with open(f"{self._stem}.channel.log", encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        return lines[-1][:200] if lines else LOST

    def _listen(self) -> None:
        asked = {"port": self._relay["port"], "secret": self._relay["secret"]}
        self.say(mux.LISTEN, 0, json.dumps(asked).encode())


def _words(state: MasterState, target: str) -> str:
    """Why there is no connection, and what to do."""
    if state.state == REFUSED and not state.asks:
        wait_s = max(0, round(state.until - time.time()))
        return f"{target}: {state.why}; tried again in {wait_s} s"
    return f"{target}: {state.why}; type: coalloc connect {target}"


def _ports(folder: str) -> set[int]:
    """Ports on which parts in this folder, and their gate, are to be called."""
    found = set()
    with contextlib.suppress(OSError, ValueError):
        found.add(int(Path(folder, "gate").read_text(encoding="ascii")))
    for path in glob.glob(f"{glob.escape(folder)}/*/{CLAIM}"):
        found.add(kept(os.path.dirname(path), CLAIM).get("port", 0))
    return found - {0}


def _modules() -> list[tuple[str, str]]:
    """Names and texts of what runs there."""
    return [(module.__name__, plain(Path(str(module.__file__)))) for module in (mux, agent)]


def _read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None


def main(stem: str) -> None:
    """Be the link of a login, unless there is one."""
    lock = os.open(f"{stem}.link.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.05)  # for the other to be there
        sys.exit(0)
    login = _read_json(f"{stem}.json") or {}
    link = Link(stem, login["target"], login.get("config", ""))
    if os.fork():
        os._exit(0)
    link.serve()
