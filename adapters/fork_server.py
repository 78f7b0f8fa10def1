"""The fork server of part runners, and the killing of processes that carry a mark."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from coalloc.adapters.base import AdapterError
from coalloc.adapters.runner.fork_server import STAYS

SEND_LIMIT_S = 5.0
STRAY_LIMIT_S = 2.0
QUIET_LOOKS = 3
"""So often in turn nobody must be found: one that forks and leaves may slip past a look."""

# The packages' own __init__ files are not run: the fork server needs the standard library only.
_BOOT = (
    "import sys; a = sys.argv; "
    "[(sys.modules.update({n: m}), setattr(m, '__path__', a[1].split(':'))) "
    "for n in ('coalloc', 'coalloc.adapters') for m in [type(sys)(n)]]; "
    "from coalloc.adapters.runner.fork_server import serve; "
    "from coalloc.adapters.{module} import {name}; serve(int(a[2]), {name})"
)


class ForkServer:
    """The warm process that forks a runner, `module:class` within this package, for each claim.

    When this object is closed, or its owner dies, it ends; the runners live on, and where it is to
    end what is left of them it ends after them. One that dies is started anew by the next claim.
    """

    def __init__(self, runner: str) -> None:
        module, _, name = runner.partition(":")
        self._boot = _BOOT.replace("{module}", module).replace("{name}", name)
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._start()

    @property
    def pid(self) -> int:
        """Process id; 0 where there is none."""
        return self._child.pid if self._child is not None else 0

    def spawn(self, folder: Path, orders_fd: int, lock_fd: int, next_group: str | None) -> None:
        """Have a runner take over this folder and these descriptors. Raises `AdapterError`.

        `next_group` is the cgroup of the part after this one, empty: none, for which a runner is
        forked ahead; None: none is.
        """
        if self._child is None or self._child.poll() is not None:
            self._restart()
        try:
            self._send(folder, next_group, orders_fd, lock_fd)
        except OSError:
            self._restart()
            try:
                self._send(folder, next_group, orders_fd, lock_fd)
            except OSError as error:
                raise AdapterError(
                    f"the part runners' fork server does not answer: {error}"
                ) from error

    def close(self) -> None:
        """End the fork server."""
        stays = b""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
                stays = self._socket.recv(len(STAYS))
            self._socket.close()
            self._socket = None
        if self._child is not None and stays:
            self._child.returncode = 0  # it is not waited for
        elif self._child is not None:
            try:
                self._child.wait(SEND_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._child = None

    def _send(self, folder: Path, group: str | None, *fds: int) -> None:
        assert self._socket is not None
        text = str(folder) if group is None else f"{folder}\0{group}"
        socket.send_fds(self._socket, [os.fsencode(text)], fds)

    def _restart(self) -> None:
        self.close()
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(SEND_LIMIT_S)
        folders = ":".join(sys.modules[__package__].__path__)
        command = [sys.executable, "-I", "-S", "-c", self._boot, folders]
        try:
            # A session of its own: a Ctrl-C on the executor's terminal must not reach it.
            self._child = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise AdapterError(f"cannot start the part runners' fork server: {error}") from error
        finally:
            theirs.close()
        self._socket = ours


def kill_marked(mark: str) -> None:
    """Kill every process whose environment holds this ``NAME=value``; waits until they are gone.

    No longer than `STRAY_LIMIT_S`.
    """
    wanted = mark.encode() + b"\0"
    end = time.monotonic() + STRAY_LIMIT_S
    quiet = 0
    while quiet < QUIET_LOOKS:
        found = [
            pid
            for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if wanted in _environment(pid)
        ]
        quiet = 0 if found else quiet + 1
        for pid in found:
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(pid)
                try:
                    # Looked at again, now that the number cannot come to mean another process.
                    if wanted in _environment(pid):
                        signal.pidfd_send_signal(fd, signal.SIGKILL)
                finally:
                    os.close(fd)
        if time.monotonic() > end:
            break
        time.sleep(0.01)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
