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
from collections.abc import Iterator
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
from coalloc.adapters.runner.runner import read_spec
from coalloc.adapters.runner.status import PAGE, RUNNER_NAME

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import RunnerSpec


REHEARSED = json.dumps(
    {
        **dict.fromkeys(("job", "cluster", "claim", "script", "stderr"), ""),
        **dict.fromkeys(("nodelist", "hostfile", "rendezvous"), ""),
        "stdout": os.devnull,
        "argv": ["true"],
        "cwd": "/",
        "env": {},
        "uid": None,
        "attempt": 1,
        "part": 0,
        "size": 1,
        "ranks": [{"rank": 0, "node": "", "local_rank": 0, "local_size": 1}],
    }
)
"""Specification of no part."""


def rehearsed() -> RunnerSpec:
    """Read a specification while there is none.

    Who was forked copies each page of memory when it first needs it: what waits for a part does so
    before, by doing what it will do then.
    """
    with open(os.devnull, encoding="utf-8") as file:
        spec: RunnerSpec = json.loads(file.read() or REHEARSED)
    return spec


class SettledRank(Rank):
    """A process that has shed its signals before it knew its part."""

    @classmethod
    def be_told(cls, runner: int, told: int, go_read: int, say_write: int) -> None:
        """Become a part's first process as soon as its folder is told; return if none is."""
        Rank._shed_signals()
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        nobody = cls(rehearsed(), 0, account_for(None))
        for fd in set(nobody._prepare_files(nobody.environment())[1]):
            os.close(fd)
        folder = os.fsdecode(os.read(told, PAGE))
        if folder and os.getppid() == runner:
            spec = started_once(read_spec(folder))
            if not spec.get("stream"):
                cls(spec, 0, account_for(spec["uid"])).become(0, go_read, say_write)

    @staticmethod
    def _shed_signals() -> None:
        """Done."""


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

    blank = 0
    """Process that was forked ahead, and waits for its part."""
    blank_group = ""

    @classmethod
    def run_when_told(cls, sock: socket.socket, root: str, group: str) -> None:
        """Be ready for a part with this cgroup; run the one that comes over the socket, if any."""
        runner = cls("", os.open(os.devnull, os.O_RDONLY), -1)
        runner._settle()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        account_for(None)  # has what looks accounts up loaded
        runner._fork_blank(sock, group)
        runner.spec = rehearsed()
        with runner._file_or_none():
            runner.status.fd = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o600)
            runner.status.preallocate(1)
        folder, fds, _, _ = socket.recv_fds(sock, PAGE, 2)
        sock.close()
        if not folder:
            os.close(runner.tell_fd)
            os.waitpid(runner.blank, 0)
            cgroup.end(runner.blank_group)
            return
        try:
            os.write(runner.tell_fd, folder)  # it prepares itself beside its runner
        except BrokenPipeError:
            runner.blank = 0
        os.close(runner.tell_fd)
        signal.signal(signal.SIGTERM, lambda *_: runner._told_to_end())
        named(RUNNER_NAME)
        orders_fd, runner.lock_fd = fds
        os.set_inheritable(runner.lock_fd, False)
        os.dup2(orders_fd, runner.orders_fd, inheritable=False)
        os.close(orders_fd)
        runner.folder = runner.status.folder = os.fsdecode(folder)
        with runner._file_or_none():
            made = runner.status.fd  # with a folder, though not needed, it is linkat(2) that links
            os.link(f"/proc/self/fd/{made}", f"{runner.folder}/status", src_dir_fd=made)
        runner.run()

    @contextlib.contextmanager
    def _file_or_none(self) -> Iterator[None]:
        """Go on without the status file that was made ahead where that fails."""
        try:
            yield
        except OSError:
            if self.status.fd >= 0:
                os.close(self.status.fd)
            self.status.fd = -1

    def _fork_blank(self, sock: socket.socket, group: str) -> None:
        """Fork the first process of the part, in its cgroup."""
        self.cgroup = self.blank_group = cgroup.make(group)
        self.blank_ends = super()._open_pipes()
        told, self.tell_fd = os.pipe()
        runner, self.blank = os.getpid(), os.fork()
        if self.blank == 0:
            try:
                sock.close()
                for fd in (self.go_fd, self.say_fd, self.tell_fd):
                    os.close(fd)
                SettledRank.be_told(runner, told, *self.blank_ends)
            finally:
                os._exit(1)
        os.close(told)
        cgroup.enter(self.blank_group, self.blank)

    def _settle(self) -> None:
        if self.wake_fd < 0:
            super()._settle()

    def _open_pipes(self) -> tuple[int, int]:
        blank, self.blank = self.blank, 0
        if blank and self.blank_group == self.cgroup and not self.spec.get("stream"):
            self.pids[blank], self.group = 0, blank
            return self.blank_ends
        if blank:
            os.kill(blank, signal.SIGKILL)  # it is not reaped yet
        return super()._open_pipes()

    def _begin(self) -> None:
        self.first_ns = time.monotonic_ns()
        try:
            self.group = SpawnedRank(self.spec, 0, account_for(self.spec["uid"])).spawn()
        except BaseException:
            self.first_ns = None
            raise
        self.pids[self.group] = 0
