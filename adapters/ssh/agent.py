"""The far end of a channel, on the login node: runs commands, listens for the nodes' wrappers.

Sent there and run by its Python, 3.6 or later; nothing is written there, and it ends with the
channel, or once it has heard nothing of the link for `SILENCE_S`. Each command is a process group
of its own, which ends at its time limit.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from coalloc.adapters.ssh.mux import (
    DATA,
    HELLO,
    LISTEN,
    LISTENING,
    OPEN,
    PING,
    PONG,
    RAN,
    RUN,
    Mux,
)

SILENCE_S, CALL_LIMIT_S, BIND_EVERY_S = 45.0, 10.0, 0.3
MOST_CALLERS, MOST_ADDRESSES, LONGEST_CALL = 256, 6, 200
SHELLS = ("bash", "dash", "ksh", "sh", "zsh")


class Agent(Mux):
    """Serves one link."""

    def __init__(self) -> None:
        Mux.__init__(self)
        self._ended: collections.deque[tuple[int, dict[str, Any]]] = collections.deque()
        self._groups: set[int] = set()
        self._path = ""
        self._sock: socket.socket | None = None
        self._asked: dict[str, Any] = {}
        self._callers: dict[int, tuple[socket.socket, bytearray, float]] = {}
        self._next = 1
        wake_fd, self._wake_fd = os.pipe()
        self.watch(wake_fd, lambda: self._tell_ends(wake_fd))

    def serve(self) -> None:
        """Serve until the link is gone."""
        self.attach(os.dup(0), os.dup(1))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        self.say(HELLO, 0, json.dumps(_about()).encode())
        while self.is_attached and time.monotonic() - self.heard < SILENCE_S:
            self.turn(BIND_EVERY_S if self._asked and self._sock is None else 5.0)
            self._bind()
            for fd in [fd for fd, call in self._callers.items() if time.monotonic() > call[2]]:
                self._hang_up(fd)
        for group in list(self._groups):
            _kill(group)

    def obey(self, kind: bytes, number: int, data: bytes) -> None:
        """Act on what the link says."""
        if kind == PING:
            self.say(PONG, number)
        elif kind == RUN:
            asked = json.loads(data.decode())
            threading.Thread(target=self._run, args=(number, asked), daemon=True).start()
        elif kind == LISTEN:
            self._asked = json.loads(data.decode())

    def _run(self, number: int, asked: dict[str, Any]) -> None:
        try:
            said = self._ran(asked)
        except Exception as error:
            said = {"why": f"cannot be run: {getattr(error, 'strerror', '') or error}"}
        self._ended.append((number, said))
        os.write(self._wake_fd, b".")

    def _ran(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            child = self._started(asked)
        except FileNotFoundError:
            self._path = self._path or _login_path()
            child = self._started(asked)
        self._groups.add(child.pid)
        said: dict[str, Any] = {}
        try:
            text = asked["text"].encode("utf-8", "surrogateescape")
            out, err = child.communicate(text, timeout=asked["limit_s"])
        except subprocess.TimeoutExpired:
            said["why"] = f"no answer within {asked['limit_s']:g} s"
            _kill(child.pid)
            out = err = b""
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = child.communicate(timeout=1.0)
        self._groups.discard(child.pid)
        said.update(code=child.returncode, out=out.decode(errors="replace"))
        said.update(err=err.decode(errors="replace"))
        return said

    def _started(self, asked: dict[str, Any]) -> subprocess.Popen[bytes]:
        env = dict(os.environ, **({"PATH": self._path} if self._path else {}))
        env.update(asked["env"])
        pipe = subprocess.PIPE
        return subprocess.Popen(
            asked["argv"], env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )

    def _tell_ends(self, wake_fd: int) -> None:
        os.read(wake_fd, 4096)
        while self._ended:
            number, said = self._ended.popleft()
            self.say(RAN, number, json.dumps(said).encode())

    def _bind(self) -> None:
        """Listen at the port that wrappers know; an agent that a cut has left has to let it go."""
        if self._sock is not None or not self._asked:
            return
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", self._asked["port"]))
            sock.listen(1024)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                self._send_away()
            return
        sock.setblocking(False)
        self._sock = sock
        self.watch(sock.fileno(), self._accept)
        self.say(LISTENING, 0, b"%d" % sock.getsockname()[1])

    def _send_away(self) -> None:
        with contextlib.suppress(OSError):
            old = socket.create_connection(("127.0.0.1", self._asked["port"]), 1.0)
            with old:
                old.sendall(b"leave %s\n" % self._asked["secret"].encode())

    def _accept(self) -> None:
        assert self._sock is not None
        with contextlib.suppress(OSError):
            caller, _ = self._sock.accept()
            if len(self._callers) >= MOST_CALLERS:
                caller.close()
                return
            caller.setblocking(False)
            fd = caller.fileno()
            self._callers[fd] = (caller, bytearray(), time.monotonic() + CALL_LIMIT_S)
            self.watch(fd, lambda: self._hear(fd))

    def _hear(self, fd: int) -> None:
        """A caller first says to which port it wants."""
        caller, said, _ = self._callers[fd]
        try:
            chunk = caller.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        said += chunk
        line, end, _ = bytes(said).partition(b"\n")
        word, _, rest = line.partition(b" ")
        if end and word == b"leave" and rest == self._asked["secret"].encode():
            self.detach()
        elif end and word == b"to" and rest.isdigit() and len(rest) < 6:
            del self._callers[fd]
            self.leave(fd)
            self.carry(self._next, caller)
            self.say(OPEN, self._next, rest)
            self._pass_on(said[len(line) + 1 :])
            self._next += 1
        elif end or not chunk or len(said) > LONGEST_CALL:
            self._hang_up(fd)

    def _pass_on(self, said: bytearray) -> None:
        if said:
            self.say(DATA, self._next, bytes(said))

    def _hang_up(self, fd: int) -> None:
        self.leave(fd)
        self._callers.pop(fd)[0].close()


def _kill(group: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def _login_path() -> str:
    """PATH as a login shell has it, whatever else that says."""
    shell = pwd.getpwuid(os.getuid()).pw_shell
    own = shell if os.path.basename(shell) in SHELLS else "/bin/sh"
    mark = f"coalloc-{os.getpid()}="
    words = [own, "-lc", f"echo; echo {mark}$PATH"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.check_output(
            words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10
        )
        for line in said.decode(errors="replace").splitlines():
            if line.startswith(mark):
                return line[len(mark) :]
    return ""


def _about() -> dict[str, Any]:
    name = socket.gethostname()
    found: list[str] = []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.check_output(["hostname", "-I"], stderr=subprocess.DEVNULL, timeout=2)
        found = [word for word in said.decode().split() if ":" not in word]
    return {
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "uid": os.getuid(),
        "host": name,
        "addresses": (found or [name])[:MOST_ADDRESSES],
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def main() -> None:
    """Be the agent."""
    Agent().serve()
    os._exit(0)
