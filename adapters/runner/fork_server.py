"""The fork server: a warm process of the launcher's that forks a runner for each claim.

Imports the standard library only, as the runners do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any, Protocol

from coalloc.adapters.runner.rank import be_subreaper
from coalloc.adapters.runner.status import (
    END,
    FORK_SERVER_NAME,
    PAGE,
    RUN,
    RUNNER_NAME,
    StatusFile,
    boot_id,
    descendants,
)
from coalloc.adapters.runner.sweep import (
    RETRY_S,
    SWEEP_S,
    UNKILLABLE_S,
    Sweep,
    hurry,
    last_ones,
)

ORDERS_FD, LOCK_FD = 0, 1
STAYS = b"stays"
"""Said when the socket is closed and runners live."""


class PartRunner(Protocol):
    """A runner, made of a part's folder, the descriptors of its orders and its lock."""

    is_kept: bool
    """Descendants of one that was killed are ended, and its lock is held until then."""

    def __init__(self, folder: str, orders_fd: int, lock_fd: int) -> None: ...

    def run(self) -> None:
        """Carry the part to its end and record it."""


def named(name: str) -> None:
    """Give this process the name that `ps` and the reader of loads know it by."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


class Keeper:
    """The runners, and the ends of those that were killed.

    Descendants of a runner that dies become children of the fork server (`PR_SET_CHILD_SUBREAPER`),
    which has the part's lock, too, and lets it go when none of them lives. Of runners that are
    not kept it knows none: they are only reaped.
    """

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.runners: dict[int, tuple[str, int]] = {}  # process id: folder, lock
        self.dead: list[tuple[str, int]] = []
        self.sweep: Sweep | None = None
        self.give_up_at = float("inf")
        self.step_at = 0.0
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if is_kept:
            be_subreaper()
            hurry()  # so do the runners, and their ranks, until the start
            most = self.limits[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for locks

    @property
    def is_idle(self) -> bool:
        return not self.runners and not self.dead

    def wait_ms(self) -> float | None:
        if self.sweep is None:
            return None
        return max(0.0, self.step_at - time.monotonic()) * 1e3 + 1.0

    def let_go(self) -> None:
        """In a runner: give up what is only the fork server's."""
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)
        for _, lock in (*self.runners.values(), *self.dead):
            os.close(lock)

    def reap(self) -> None:
        """Take in that children have ended; those of dead runners' only when all have."""
        if self.sweep is None:
            with contextlib.suppress(ChildProcessError):
                while (found := os.waitpid(-1, os.WNOHANG))[0]:
                    self._ended(*found)
                    if self.dead:
                        break
        if self.sweep is not None:
            for pid in list(self.runners):
                found = os.waitpid(pid, os.WNOHANG)
                if found[0]:
                    self._ended(*found)

    def _ended(self, pid: int, status: int) -> None:
        folder, lock = self.runners.pop(pid, ("", -1))
        if not folder:
            return  # what a dead runner has left
        if status == 0:
            os.close(lock)
        else:
            self.dead.append((folder, lock))
            spec: dict[str, Any] = {}
            with contextlib.suppress(OSError, ValueError), open(f"{folder}/spec.json") as file:
                spec = json.load(file)
            self.sweep = self.sweep or Sweep()
            self.sweep.widen(spec.get("uid"), spec.get("cgroup", ""))
            self.give_up_at = time.monotonic() + UNKILLABLE_S

    def step(self) -> None:
        """Go on with the ends of the dead."""
        if self.sweep is None or time.monotonic() < self.step_at:
            return
        self.sweep.step(self.runners)
        zombies = last_ones(self.runners)
        if zombies is not None and all(map(_is_reaped, zombies)):
            self.sweep.close()
            for _, lock in self.dead:
                os.close(lock)
            self.dead, self.sweep, self.give_up_at = [], None, float("inf")
        elif time.monotonic() > self.give_up_at:
            self._give_up()
        now = time.monotonic()
        self.step_at = now + (RETRY_S if now > self.give_up_at else SWEEP_S)

    def _give_up(self) -> None:
        """Let the jobs end; the locks, and with them the slots, are kept."""
        left = max(1, len(descendants(os.getpid(), self.runners)))
        for folder, _ in self.dead:
            status = StatusFile(folder)
            with contextlib.suppress(OSError):
                status.open()
                if status.read(END) is None:
                    record = {
                        "state": "lost",
                        "reason": "runner_died",
                        "detail": f"its runner was killed; {left} processes could not be ended",
                        "ended": time.time(),
                        "left": left,
                    }
                    status.record(END, record | (status.read(RUN) or {}), durable=True)
                os.close(status.fd)


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def serve(socket_fd: int, runner: type[PartRunner]) -> None:
    """Fork a runner for every folder that comes over this socket, until it is closed.

    Runners are reaped here, so that their CPU time stays with this process's. A server that keeps
    what runners leave stays until the last of them has ended.
    """
    sock = socket.socket(fileno=socket_fd)
    named(FORK_SERVER_NAME)
    os.chdir("/")
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    keeper = Keeper(is_kept=runner.is_kept)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    boot_id()  # known to the runners, then
    gc.freeze()
    is_open = True
    while is_open or not keeper.is_idle:
        for fd, _ in poller.poll(keeper.wait_ms()):
            if fd == wake_read:
                os.read(wake_read, 4096)
                keeper.reap()
                continue
            folder, fds, _, _ = socket.recv_fds(sock, PAGE, 2)
            if folder:
                _fork(sock, os.fsdecode(folder), fds, runner, keeper)
                continue
            is_open = False
            poller.unregister(sock)
            if not keeper.is_idle:
                with contextlib.suppress(OSError):  # the executor may have been killed
                    sock.send(STAYS)
        keeper.step()


def _fork(
    sock: socket.socket, folder: str, fds: list[int], runner: type[PartRunner], keeper: Keeper
) -> None:
    """Fork a runner; where that fails, its part ends as one whose runner died before the start."""
    pid = -1
    with contextlib.suppress(OSError):
        pid = os.fork()
    if pid == 0:
        try:
            sock.close()
            keeper.let_go()
            os.setsid()
            named(RUNNER_NAME)
            for passed in fds:
                os.set_inheritable(passed, False)
            runner(folder, fds[ORDERS_FD], fds[LOCK_FD]).run()
            os._exit(0)
        finally:
            os._exit(1)
    if keeper.is_kept and pid > 0:
        keeper.runners[pid] = folder, fds.pop(LOCK_FD)
    for passed in fds:
        os.close(passed)
