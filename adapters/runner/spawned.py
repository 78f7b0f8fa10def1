"""Members of a part that begin behind the first one, on the executor's own machine: without forks.

Imports the standard library only, of a Python that can spawn: it is not sent to nodes.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.pack import PackRunner
from coalloc.adapters.runner.rank import SHED, Rank, unspare


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
    """One part; its members are spawned."""

    def _begin(self) -> None:
        self.first_ns = time.monotonic_ns()
        try:
            self.group = SpawnedRank(self.spec, 0, self._account()).spawn()
        except BaseException:
            self.first_ns = None
            raise
        self.pids[self.group] = 0
