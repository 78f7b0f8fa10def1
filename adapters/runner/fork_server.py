"""The fork server: a warm process of the launcher's that forks a runner for each claim.

Where the launcher says what the cgroup of the next part will be, a spare runner is forked ahead.
It holds neither files nor the lock of any part before it gets its own, and ends with the server.

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
from collections.abc import Callable
from typing import Any, Protocol

from coalloc.adapters.runner.rank import PR_SET_NAME, be_subreaper, prctl
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
SPARE_AFTER_MS = 10.0
"""A spare runner is forked when nothing has come for so long: starts under way go first."""


class PartRunner(Protocol):
    """A runner, made of a part's folder, the descriptors of its orders and its lock."""

    is_kept: bool
    """Descendants of one that was killed are ended, and its lock is held until then."""

    def __init__(self, folder: str, orders_fd: int, lock_fd: int) -> None: ...

    def run(self) -> None:
        """Carry the part to its end and record it."""

    @classmethod
    def run_when_told(cls, sock: socket.socket, root: str, group: str) -> None:
        """Be the runner of the part that comes over the socket, if one does; called in spares.

        Its folder will be in `root`, and its cgroup is to be `group`.
        """


def named(name: str) -> None:
    """Give this process the name that `ps` and the reader of loads know it by."""
    prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


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


class Forks:
    """Forks runners, of which one may be a spare: forked ahead, it waits for its part."""

    def __init__(self, sock: socket.socket, runner: type[PartRunner], keeper: Keeper) -> None:
        self._socket, self._runner, self._keeper = sock, runner, keeper
        self.group: str | None = None
        """Cgroup of the next part, empty: none; None: no spare is wanted."""
        self._spare: socket.socket | None = None
        self._pid, self._root = 0, ""

    @property
    def is_spare_due(self) -> bool:
        return self.group is not None and self._spare is None and self._keeper.sweep is None

    def fork_spare(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        group = self.group or ""

        def run() -> None:
            ours.close()
            self._runner.run_when_told(theirs, self._root, group)

        self._pid = self._fork(run)
        self._spare = ours
        theirs.close()

    def end_spare(self) -> None:
        """Have the spare end, unless it has got a part."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def start(self, folder: str, fds: list[int]) -> None:
        """Have a part run; where that fails, it ends as one whose runner died before the start."""
        pid, self._root = 0, os.path.dirname(folder)
        if self._spare is not None:
            with contextlib.suppress(OSError):  # it was killed
                socket.send_fds(self._spare, [os.fsencode(folder)], fds)
                pid = self._pid
        self.end_spare()
        pid = pid or self._fork(lambda: self._run(folder, fds))
        if self._keeper.is_kept and pid > 0:
            self._keeper.runners[pid] = folder, fds.pop(LOCK_FD)
        for passed in fds:
            os.close(passed)

    def _run(self, folder: str, fds: list[int]) -> None:
        named(RUNNER_NAME)
        for passed in fds:
            os.set_inheritable(passed, False)
        self._runner(folder, fds[ORDERS_FD], fds[LOCK_FD]).run()

    def _fork(self, run: Callable[[], None]) -> int:
        """Fork a process that does this and ends; returns its id, or -1."""
        pid = -1
        with contextlib.suppress(OSError):
            pid = os.fork()
        if pid == 0:
            try:
                self._socket.close()
                self._keeper.let_go()
                os.setsid()
                run()
                os._exit(0)
            finally:
                os._exit(1)
        return pid


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
    forks = Forks(sock, runner, keeper)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    boot_id()  # known to the runners, then
    gc.freeze()
    is_open = True
    while is_open or not keeper.is_idle:
        found = poller.poll(SPARE_AFTER_MS if forks.is_spare_due else keeper.wait_ms())
        if not found and forks.is_spare_due:
            forks.fork_spare()
        for fd, _ in found:
            if fd == wake_read:
                os.read(wake_read, 4096)
                keeper.reap()
                continue
            message, fds, _, _ = socket.recv_fds(sock, 2 * PAGE, 2)
            if message:
                folder, is_wanted, group = os.fsdecode(message).partition("\0")
                forks.group = group if is_wanted else None
                forks.start(folder, fds)
                continue
            is_open, forks.group = False, None
            poller.unregister(sock)
            forks.end_spare()
            if not keeper.is_idle:
                with contextlib.suppress(OSError):  # the executor may have been killed
                    sock.send(STAYS)
        if keeper.sweep is not None:
            forks.end_spare()  # it is below this process as the dead are
        keeper.step()
