"""Starts on the executor's own machine: a process forked ahead of its part, members without forks.

Imports the standard library only, of a Python that can spawn: it is not sent to nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.fork_server import named
from coalloc.adapters.runner.once import started_once
from coalloc.adapters.runner.pack import PackRunner
from coalloc.adapters.runner.rank import (
    PR_SET_PDEATHSIG,
    SHED,
    Rank,
    account_for,
    prctl,
    unspare,
)
from coalloc.adapters.runner.status import PAGE, RUNNER_NAME, StatusFile

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import RunnerSpec


class SettledRank(Rank):
    """A process that has shed its signals before it knew its part."""

    @staticmethod
    def _shed_signals() -> None:
        """Done."""


class Blank:
    """The first process of a part that is not known yet, in the cgroup that this will have.

    It waits until it is told of its folder, and ends where it will not be.
    """

    def __init__(self, group: str, sock: socket.socket) -> None:
        self.group = cgroup.make(group)
        self.go_read, self.go_fd = os.pipe()
        self.say_fd, self.say_write = os.pipe()
        folder_read, self.folder_fd = os.pipe()
        runner, self.pid = os.getpid(), os.fork()
        if self.pid == 0:
            try:
                sock.close()
                for fd in (self.go_fd, self.say_fd, self.folder_fd):
                    os.close(fd)
                self._become(runner, folder_read)
            finally:
                os._exit(1)
        os.close(folder_read)
        cgroup.enter(self.group, self.pid)

    def _become(self, runner: int, folder_read: int) -> None:
        """Be the first process of the part that is told; the runner says why it cannot be."""
        Rank._shed_signals()
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        folder = os.read(folder_read, PAGE) if os.getppid() == runner else b""
        if not folder:
            return
        os.close(folder_read)
        with open(folder + b"/spec.json", encoding="utf-8") as file:
            spec = json.load(file)
        if _is_for_blank(spec):
            account = account_for(spec["uid"])
            spec = started_once(spec) if spec.get("once") else spec
            SettledRank(spec, 0, account).become(0, self.go_read, self.say_write)

    def tell(self, folder: bytes) -> bool:
        """Say what it is to become; False where it was killed."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.folder_fd, folder)
            return True
        return False

    def end(self) -> None:
        """End it before the start."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for fd in (self.go_read, self.go_fd, self.say_fd, self.say_write):
            os.close(fd)


def _is_for_blank(spec: RunnerSpec) -> bool:
    return not spec.get("stream")


class SpawnedRank(Rank):
    """A process of a member that begins behind another one."""

    def spawn(self) -> int:
        """Start the process at once, without a fork; returns its id. Raises `FaultError`.

        A fork copies the runner, which costs more than many a task. Whatever a spawn cannot change
        the runner itself becomes for that while: of the part's cgroup, no better than any job, the
        job's user. An exec leaves nothing of the saved user, by which it comes back.
        """
        group, nice = self.spec.get("cgroup", ""), os.getpriority(os.PRIO_PROCESS, 0)
        groups, ends, is_other = os.getgroups(), list[int](), os.geteuid() == 0
        try:
            cgroup.enter(group)
            self._pin()
            self._drop_privileges(for_good=False)
            env = self.environment()
            path, ends = self._prepare_files(env)
            more: dict[str, Any] = {"setpgroup": 0, "setsigmask": (), "setsigdef": SHED}
            more["file_actions"] = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(ends)]
            pid = self._started(
                lambda file, words: os.posix_spawn(file, words, env, **more),
                path,
                self._arguments(path),
            )
        finally:
            if is_other:
                os.setresuid(0, 0, 0)
                os.setresgid(0, 0, 0)
                os.setgroups(groups)
            if group:
                cgroup.enter(os.path.dirname(group))
            if nice < 0:
                os.setpriority(os.PRIO_PROCESS, 0, nice)
            for fd in ends:
                with contextlib.suppress(OSError):  # two may be one
                    os.close(fd)
        unspare(pid)
        return pid


class SpawningRunner(PackRunner):
    """One part; its first process may have been forked ahead, its members are spawned."""

    blank: Blank | None = None

    @classmethod
    def run_when_told(cls, sock: socket.socket, group: str) -> None:
        """Be ready for a part with this cgroup; run the one that comes over the socket, if any."""
        blank = Blank(group, sock)
        runner = cls("", os.open(os.devnull, os.O_RDONLY), -1)
        runner._settle()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # till there is a part
        folder, fds, _, _ = socket.recv_fds(sock, PAGE, 2)
        if not folder:
            blank.end()
            cgroup.end(blank.group)
            return
        runner.blank = blank if blank.tell(folder) else None
        signal.signal(signal.SIGTERM, lambda *_: runner._told_to_end())
        named(RUNNER_NAME)
        sock.close()
        orders_fd, runner.lock_fd = fds
        os.set_inheritable(runner.lock_fd, False)
        os.dup2(orders_fd, runner.orders_fd, inheritable=False)
        os.close(orders_fd)
        runner.folder = os.fsdecode(folder)
        runner.status = StatusFile(runner.folder)
        runner.run()

    def _settle(self) -> None:
        if self.wake_fd < 0:
            super()._settle()

    def _load(self) -> None:
        try:
            super()._load()
        except BaseException:
            if self.blank is not None:
                self.blank.end()
            raise

    def _open_pipes(self) -> tuple[int, int]:
        blank, self.blank = self.blank, None
        if blank is None:
            return super()._open_pipes()
        if blank.group != self.cgroup or not _is_for_blank(self.spec):
            blank.end()
            return super()._open_pipes()
        self.go_fd, self.say_fd, self.group = blank.go_fd, blank.say_fd, blank.pid
        self.pids[blank.pid] = 0
        return blank.go_read, blank.say_write

    def _begin(self) -> None:
        self.first_ns = time.monotonic_ns()
        try:
            self.group = SpawnedRank(self.spec, 0, account_for(self.spec["uid"])).spawn()
        except BaseException:
            self.first_ns = None
            raise
        self.pids[self.group] = 0
