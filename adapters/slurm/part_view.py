"""The job of a part as Slurm shows it: its state, its turn in the queue, whether it is listed.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import contextlib
import time
from calendar import timegm

from coalloc.adapters.runner.batch.job import Turn
from coalloc.adapters.runner.command import BatchError, CommandRefusedError
from coalloc.adapters.runner.spec import BatchSpec
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.part_commands import (
    FIRST,
    allocated,
    canceller,
    cpus_each,
    is_no_such_job,
    is_without_accounting,
    room_of,
    shown_field,
    shown_reason,
)
from coalloc.adapters.slurm.pending_reasons import is_stuck

POLL_S, LONGEST_POLL_S = 0.01, 0.2


class ShownJob:
    """Reads jobs of one cluster by their numbers, and changes none; `spec` is their part's."""

    def __init__(self, slurm: Slurm, spec: BatchSpec) -> None:
        self._slurm, self._spec = slurm, spec
        self.marks = {spec["token"]["comment"]}
        """Comments of the jobs that are meant, where their numbers were given again."""

    def state(self, number: str) -> tuple[str | None, str]:
        """The job's state and its reason; None: not known; empty: there is no such job."""
        try:
            text = self._slurm.run("scontrol", "--local", "-o", "show", "job", number)
        except BatchError as error:
            return self._accounted(number) if is_no_such_job(error) else (None, "")
        if self._is_anothers(shown_field(text, "Comment")):
            return "", ""
        return shown_field(text, "JobState"), shown_reason(text)

    def turn(self, number: str) -> Turn | None:
        """The job's place in the queue; None: out of reach."""
        try:
            show = ("scontrol", "--local", "-d", "-o", "show", "job", number)
            text = self._slurm.run(*show, env={"TZ": "UTC"})
            if self._is_anothers(shown_field(text, "Comment")):
                return Turn("", "")
            state, reason = shown_field(text, "JobState"), shown_field(text, "Reason")
            if state == "PENDING":
                expected = _instant(shown_field(text, "StartTime"))
                is_next = reason == FIRST
                return Turn(state, reason, expected, is_stuck=is_stuck(reason), is_next=is_next)
            slots = self._slots(text) if state == "RUNNING" else {}
            return Turn(state, shown_reason(text), slots=slots)
        except BatchError as error:
            ended, why = self._accounted(number) if is_no_such_job(error) else (None, "")
            return None if ended is None else Turn(ended, why)

    def _slots(self, text: str) -> dict[str, int]:
        """The nodes that were allocated, and the processes that each takes."""
        spec = self._spec
        given = {
            name: (cpus, gres)
            for names, cpus, gres in allocated(text)
            for name in self._slurm.run("scontrol", "show", "hostnames", names).split()
        }
        slots = {name: room_of(spec, *each) for name, each in given.items()}
        if sum(slots.values()) >= len(spec["ranks"]):
            return slots
        # 22.05 may give a task a part of its CPUs, where nothing is said of its nodes.
        more = cpus_each(spec) - 1
        return {name: room_of(spec, cpus + more, gres) for name, (cpus, gres) in given.items()}

    def listed_after(self, number: str, limit_s: float, over: frozenset[str] = frozenset()) -> str:
        """The job's state in the queue once it is gone or one of these, or after this time."""
        end = time.monotonic() + limit_s
        pause_s = POLL_S
        while True:
            state = self._listed(number)
            if not state or state in over or time.monotonic() + pause_s >= end:
                return state
            time.sleep(pause_s)
            pause_s = min(2.0 * pause_s, LONGEST_POLL_S)

    def _listed(self, number: str) -> str:
        """The job's state in the queue; empty: it is not there."""
        try:
            text = self._slurm.run("squeue", "--local", "-h", "-j", number, "-o", "%T %k")
        except CommandRefusedError as error:
            if is_no_such_job(error):
                return ""
            raise
        rows = (line.partition(" ") for line in text.splitlines())
        return next((state for state, _, comment in rows if not self._is_anothers(comment)), "")

    def own(self, numbers: str) -> list[str]:
        """Those of these jobs that are in the queue, and not known to be another claim's.

        A slurmctld that has lost its last seconds gives numbers again. One that is not there now
        may be another claim's in a moment.
        """
        text = ""
        with contextlib.suppress(CommandRefusedError):  # it has ended
            text = self._slurm.run("squeue", "--local", "-h", "-a", "-j", numbers, "-o", "%i %k")
        rows = (line.partition(" ") for line in text.splitlines())
        return [number for number, _, comment in rows if not self._is_anothers(comment)]

    def _is_anothers(self, comment: str) -> bool:
        """Whether a job's comment is the mark of another of our claims."""
        ours = self._spec["token"]["comment"].partition(":")[0] + ":"
        return comment.startswith(ours) and comment not in self.marks

    def canceller(self, number: str, limit_s: float) -> str:
        """Uid of who has cancelled a job, once accounting says so; empty: it does not in time."""
        end = time.monotonic() + limit_s
        while True:
            uid = ""
            try:
                uid = canceller(self._sacct(number))
            except BatchError as error:
                if is_without_accounting(error):
                    return ""
            if uid or time.monotonic() + LONGEST_POLL_S >= end:
                return uid
            time.sleep(LONGEST_POLL_S)

    def _accounted(self, number: str) -> tuple[str | None, str]:
        """The job by accounting, where there is accounting."""
        try:
            text = self._sacct(number)
        except BatchError as error:
            return "" if is_without_accounting(error) else None, ""
        return (text.split() or [""])[0].rstrip("+"), "accounting"

    def _sacct(self, number: str) -> str:
        return self._slurm.run("sacct", "-n", "-P", "-X", "-j", number, "-o", "State")


def _instant(stamp: str) -> float | None:
    """A time of Slurm's in UTC, seconds since 1970; None: Slurm does not know."""
    try:
        return float(timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None
