"""Runs members of an array one after the other, in one part.

There is no barrier between them: each begins when the one before it, with all that it has left, has
ended. An order ``drop PLACE TEXT`` ends the member of that place; one that has not begun never
will. Before the start it gives up the whole part. Imports the standard library only: it is sent to
nodes, where `runner.node` tells the part's runner what is written here.

Notes
-----
The end of each is written into its slot of ``status`` before the next begins. So the first without
an end, and no other, may have been running when its runner was killed. The slots are on disk for
sure from the part's own end on: after a loss of power more of them may be missing.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from coalloc.adapters.runner.rank import FaultError, fault_of, let_go
from coalloc.adapters.runner.runner import Runner
from coalloc.adapters.runner.sweep import calm_down

TELL_S = 0.05
"""The launcher hears of ends as often as that, seconds."""


class PackRunner(Runner):
    """One part; where it has members, its own processes are the one of place 0."""

    place = 0
    """Of the member that runs, or ran last."""
    is_off = False
    """Nothing begins any more."""

    def __init__(self, folder: str, orders_fd: int, lock_fd: int) -> None:
        super().__init__(folder, orders_fd, lock_fd)
        self.over: set[int] = set()
        """Places of members that have ended, or will not begin."""

    def _told_to_end(self) -> None:
        self.is_off = True
        super()._told_to_end()

    def _obey_one(self, words: list[str]) -> None:
        if words[0] != "drop":
            self.is_off = self.is_off or words[0] in {"abort", "cancel"}
            super()._obey_one(words)
        elif not self.is_started or int(words[1]) == self.place:
            self.stop("aborted", " ".join(words[2:]))
        elif int(words[1]) not in self.over:
            end = {"state": "refused", "reason": "aborted", "detail": " ".join(words[2:])}
            self._keep(int(words[1]), end)

    def _look_at_clock(self) -> None:
        super()._look_at_clock()
        if time.monotonic() >= self.tell_at:
            self.tell_at = float("inf")
            self.status.tell()

    def _run_behind(self) -> dict[str, Any]:
        whole, behind = self._end_record(), self.spec.get("members", ())
        if not (behind and self.is_started):
            return whole
        self._keep(0, whole)
        for place, member in enumerate(behind, 1):
            if self._may_begin(place):
                self.place = place
                self._run_member(member)
                self._keep(place, self._end_record())
        return {**whole, "ended": time.time(), **({"left": self.left} if self.left else {})}

    def _may_begin(self, place: int) -> bool:
        return not (self.left or self.is_off or place in self.over)

    def _run_member(self, member: dict[str, Any]) -> None:
        self.codes, self.reason, self.detail = [None], "", ""
        self.is_over = self.are_leftovers_told = False
        self.cpu_s = self.max_rss_mb = 0.0
        self.limit_end = self.kill_at = float("inf")
        calm_down()  # after whoever had to be ended
        spec = self.spec
        spec["job"], spec["attempt"] = member["job"], member["attempt"]
        spec["env"] = {**spec["env"], "COALLOC_ARRAY_TASK_ID": str(member["array_index"])}
        spec["stdout"], spec["stderr"] = member.get("stdout", ""), member.get("stderr", "")
        self.go_at = time.monotonic()
        try:
            self._begin()
            if spec["time_limit_s"] is not None:
                self.limit_end = self.go_at + spec["time_limit_s"]
        except (FaultError, OSError, ValueError) as error:
            self.stop(*fault_of(error, self.folder))
        while not self.is_over:
            self._step()

    def _begin(self) -> None:
        """Start a member, of which everything is in the specification."""
        os.close(self.go_fd)
        self.first_ns, self.group, self.ready, self.execs = None, 0, 0, 0
        self._fork_ranks()
        let_go(self.go_fd, 1)

    def _keep(self, place: int, end: dict[str, Any]) -> None:
        """Write how a member has ended, or that it will not begin."""
        self.over.add(place)
        with contextlib.suppress(OSError):
            self.status.write_member(place, {"ended": time.time(), **end})
        self.tell_at = min(self.tell_at, time.monotonic() + TELL_S)
