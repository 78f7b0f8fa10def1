"""Runs members of an array one after the other, in one part.

There is no barrier between them: each begins when the one before it, with all that it has left, has
ended. An order ``drop PLACE TEXT`` ends the member of that place; one that has not begun never
will. Before the start it gives up the whole part. Imports the standard library only.

Notes
-----
The end of each is written into its slot of ``status`` before the next begins. So the first without
an end, and no other, may have been running when its runner was killed. The slots are on disk for
sure from the part's own end on: after a loss of power more of them may be missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import time
from typing import Any

from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.rank import SHED, FaultError, Rank, fault_of, unspare
from coalloc.adapters.runner.runner import Runner
from coalloc.adapters.runner.status import MEMBER, encoded, status_size
from coalloc.adapters.runner.sweep import calm_down

TELL_S = 0.05
"""The launcher hears of ends as often as that, seconds."""
MOST_LETTERS = 100
"""Of what is written of an end in words: a slot has room for them in any script."""


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
            pid = self._spawned(path, self._arguments(path), env, ends)
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

    @staticmethod
    def _spawned(path: str, argv: list[str], env: dict[str, str], ends: list[int]) -> int:
        more: dict[str, Any] = {"setpgroup": 0, "setsigmask": (), "setsigdef": SHED}
        more["file_actions"] = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(ends)]
        try:
            try:
                return os.posix_spawn(path, argv, env, **more)
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                return os.posix_spawn("/bin/sh", ["/bin/sh", path, *argv[1:]], env, **more)
        except OSError as error:
            raise FaultError("not_executable", f"{argv[0]}: {error.strerror}") from error


class PackRunner(Runner):
    """One part; where it has members, its own processes are the one of place 0."""

    place = 0
    """Of the member that runs, or ran last."""
    is_off = False
    """Nothing begins any more."""

    def _load(self) -> None:
        super()._load()
        self.behind = self.spec.get("members", ())
        self.are_over = [False] * (len(self.behind) + 1)

    def _told_to_end(self) -> None:
        self.is_off = True
        super()._told_to_end()

    def _obey_one(self, words: list[str]) -> None:
        if words[0] != "drop":
            super()._obey_one(words)
        elif not self.is_started or int(words[1]) == self.place:
            self.stop("aborted", " ".join(words[2:]))
        elif not self.are_over[int(words[1])]:
            end = {"state": "refused", "reason": "aborted", "detail": " ".join(words[2:])}
            self._keep(int(words[1]), end)

    def _look_at_clock(self) -> None:
        super()._look_at_clock()
        if time.monotonic() >= self.tell_at:
            self.tell_at = float("inf")
            self.status.tell()

    def _run_behind(self) -> dict[str, Any]:
        whole = self._end_record()
        if not (self.behind and self.is_started):
            return whole
        self._keep(0, whole)
        account = self._account()
        for place, member in enumerate(self.behind, 1):
            if not (self.left or self.is_off or self.are_over[place]):
                self.place = place
                self._run_member(member, account)
                self._keep(place, self._end_record())
        return {**whole, "ended": time.time(), **({"left": self.left} if self.left else {})}

    def _run_member(self, member: dict[str, Any], account: pwd.struct_passwd | None) -> None:
        self.codes, self.reason, self.detail = [None], "", ""
        self.is_over = self.are_leftovers_told = False
        self.cpu_s = self.max_rss_mb = 0.0
        self.limit_end = self.kill_at = self.look_at = float("inf")
        calm_down()  # after whoever had to be ended
        env = {**self.spec["env"], "COALLOC_ARRAY_TASK_ID": str(member["array_index"])}
        own = {"job": member["job"], "attempt": member["attempt"], "env": env}
        own |= {"stdout": member.get("stdout", ""), "stderr": member.get("stderr", "")}
        self.first_ns, self.go_at = time.monotonic_ns(), time.monotonic()
        try:
            self.group = SpawnedRank({**self.spec, **own}, 0, account).spawn()  # type: ignore[typeddict-item]
            self.pids[self.group] = 0
            if self.spec["time_limit_s"] is not None:
                self.limit_end = self.go_at + self.spec["time_limit_s"]
        except (FaultError, OSError, ValueError) as error:
            self.first_ns = None
            self.stop(*fault_of(error, self.folder))
        while not self.is_over:
            self._step()

    def _keep(self, place: int, end: dict[str, Any]) -> None:
        """Write how a member has ended, or that it will not begin."""
        self.are_over[place] = True
        end = {"ended": time.time(), **end, "detail": end["detail"][:MOST_LETTERS]}
        with contextlib.suppress(OSError):
            os.pwrite(self.status.fd, encoded(end)[:MEMBER], status_size(1, place))
        self.tell_at = min(self.tell_at, time.monotonic() + TELL_S)
