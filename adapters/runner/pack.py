"""Runs members of an array one after the other, in one part.

There is no barrier between them: each is forked when the one before it, with all that it has left,
has ended. An order ``drop PLACE TEXT`` ends the member of that place; one that has not begun never
will. Before the start it gives up the whole part. Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from typing import Any

from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.members import TELL_S, MemberFile
from coalloc.adapters.runner.rank import FaultError, Rank, fault_of
from coalloc.adapters.runner.runner import Runner
from coalloc.adapters.runner.spec import MemberPlace, RunnerSpec
from coalloc.adapters.runner.status import PAGE
from coalloc.adapters.runner.sweep import calm_down


class PackRunner(Runner):
    """One part; where it has members, its own processes are the one of place 0."""

    file: MemberFile
    place = 0
    """Of the member that runs, or ran last."""
    is_off = False
    """Nothing begins any more."""
    faults = -1, -1
    """A pipe for what keeps a process from becoming a member's."""

    def _load(self) -> None:
        super()._load()
        self.behind: list[MemberPlace] = self.spec.get("members", [])
        if self.behind:
            try:
                self.file = MemberFile(self.folder, len(self.behind) + 1)
            except OSError as error:
                why = f"{self.folder}: {error.strerror}"
                raise FaultError("state_unwritable", why) from error

    def _told_to_end(self) -> None:
        self.is_off = True
        super()._told_to_end()

    def _obey_one(self, words: list[str]) -> None:
        if words[0] == "drop":
            self._drop(int(words[1]), words[2] if len(words) > 2 else "")
        else:
            super()._obey_one(words)

    def _drop(self, place: int, why: str) -> None:
        """Have a member not begin, or end it; one that is over stays as it was."""
        if not self.is_started or place == self.place:
            self.stop("aborted", why)
        elif not self.file.is_written[place]:
            self._write(place, {"state": "refused", "reason": "aborted", "detail": why[:200]})

    def _look_at_clock(self) -> None:
        super()._look_at_clock()
        if time.monotonic() >= self.tell_at:
            self.tell_at = float("inf")
            self.status.tell()

    def _run_behind(self) -> dict[str, Any]:
        whole = self._end_record()
        if not (self.behind and self.is_started):
            return whole
        self._write(0, whole)
        self.faults = os.pipe()
        os.set_blocking(self.faults[0], False)
        account = self._account()
        if self.spec["uid"] is None:  # as any of its ranks would
            os.umask(0o022)
            if cpus := self.spec["ranks"][0].get("cpus"):
                os.sched_setaffinity(0, cpus)
        for place, member in enumerate(self.behind, 1):
            if self.left or self.is_off:
                break
            if not self.file.is_written[place]:
                self.place = place
                self._run_member(member, account)
        with contextlib.suppress(OSError):
            self.file.close()
        return {**whole, "ended": time.time(), **({"left": self.left} if self.left else {})}

    def _run_member(self, member: MemberPlace, account: pwd.struct_passwd | None) -> None:
        self.codes, self.reason, self.detail = [None], "", ""
        self.is_over = self.are_leftovers_told = False
        self.cpu_s = self.max_rss_mb = 0.0
        self.limit_end = self.kill_at = self.look_at = float("inf")
        calm_down()  # after whoever had to be ended
        try:
            self._begin(member, account)
            while not self.is_over:
                self._step()
        except (FaultError, OSError, ValueError) as error:
            self.stop(*fault_of(error, self.folder))
            self.first_ns = None
            self._end_all()
        with contextlib.suppress(BlockingIOError):
            said = os.read(self.faults[0], PAGE).decode(errors="replace")
            _, _, self.reason, self.detail = said.rstrip("\n").split(" ", 3)
            self.first_ns = None
        self._write(self.place, self._end_record())

    def _begin(self, member: MemberPlace, account: pwd.struct_passwd | None) -> None:
        """Fork a member's process; first it is written down that it begins."""
        spec: RunnerSpec = self.spec | {
            "env": {**self.spec["env"], "COALLOC_ARRAY_TASK_ID": member["index"]},
            "job": member["job"],
            "attempt": member["attempt"],
            "stdout": member["stdout"],
            "stderr": member["stderr"],
        }
        if self.cgroup and not os.path.isdir(self.cgroup):
            cgroup.make(self.cgroup)
        self.file.begin(self.place, time.time())
        self.first_ns, self.go_at = time.monotonic_ns(), time.monotonic()
        rank = Rank(spec, 0, account)
        self.group = pid = rank.spawn() if spec["uid"] is None else self._forked(rank)
        self.pids[pid] = 0
        with contextlib.suppress(OSError):  # the child has done it itself
            os.setpgid(pid, pid)
        if spec["time_limit_s"] is not None:
            self.limit_end = self.go_at + spec["time_limit_s"]

    def _forked(self, rank: Rank) -> int:
        pid = os.fork()
        if pid == 0:
            for fd in (self.lock_fd, self.orders_fd, self.status.fd, self.file.fd):
                os.close(fd)
            rank.become(0, -1, self.faults[1])
        return pid

    def _write(self, place: int, record: dict[str, Any]) -> None:
        kept = {name: value for name, value in record.items() if name != "started_mono"}
        with contextlib.suppress(OSError):
            self.file.end(place, {"ended": time.time(), **kept})
        self.tell_at = min(self.tell_at, time.monotonic() + TELL_S)
