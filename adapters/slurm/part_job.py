"""A part's job in Slurm: asked for, looked at, given back.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import contextlib
import socket
import time
from calendar import timegm
from collections.abc import Callable
from typing import Any

from coalloc.adapters.runner.batch_job import Turn, account_of, node_counts
from coalloc.adapters.runner.batch_part import BatchPart
from coalloc.adapters.runner.command import (
    BatchError,
    RefusedError,
    Started,
    UnreachableError,
)
from coalloc.adapters.runner.payload import VARIABLE, payload
from coalloc.adapters.runner.rank import FaultError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.part_commands import (
    ALIVE,
    ENDING,
    NEVER,
    WAITABLE,
    allocated,
    batch_script,
    explained,
    granted,
    refusal,
    salloc_words,
    sbatch_words,
    shown_field,
    srun_words,
)

STEP_END_S = 1.0
RELEASE_S = 5.0
SETTLE_S = 15.0
"""An ending job's nodes are waited for so long before its end is reported without their cause."""
POLL_S = 0.01
UNDO_S = 60.0
"""A submission that was never answered is looked for so long, seconds."""
PAYLOAD = payload()


class SlurmJob:
    """The job by which a part's nodes are claimed.

    Parameters
    ----------
    spec : mapping
        The part's.
    folder : str
        The part's.
    number : str
        Where an earlier runner has made it: its number in Slurm; empty: none that is known of.

    Attributes
    ----------
    is_unsure : bool
        There may be a job, though its number is not known.

    Raises
    ------
    FaultError
        The user is not known here, or not ours to act for.
    """

    system = "Slurm"

    def __init__(self, spec: dict[str, Any], folder: str, number: str = "") -> None:
        self._spec, self._folder = spec, folder
        self.number = number
        self.is_unsure = False
        site = spec["site"]
        self._slurm = Slurm(conf=site["conf"], bin_dir=site["bin"], timeout_s=site["limit_s"])
        self._account = account_of(spec)
        self._step: Started | None = None
        self._undo_until = 0.0

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        """Claim the nodes at once, or take a turn in the queue; whether it waits there.

        Raises
        ------
        FaultError
        """
        queue = self._spec["queue"]
        if queue is not None and not self._is_granted_at_once():
            self.submit(port)
            keep()
            return True
        if queue is None:
            self.allocate()
        keep()
        self.start_step(port)
        return False

    def _is_granted_at_once(self) -> bool:
        """Whether a claim that might wait need not."""
        if not self._spec["queue"]["at_once"]:
            return False
        try:
            self.allocate()
        except FaultError as fault:
            if fault.reason in WAITABLE:
                return False
            raise
        return True

    def allocate(self) -> None:
        """Claim the nodes at once.

        Raises
        ------
        FaultError
        """
        try:
            answer = self._slurm.ask("salloc", *salloc_words(self._spec), account=self._account)
            self.number = granted(answer.err)
            if answer.code != 0 or not self.number:
                raise self._slurm.failure("salloc", answer)
        except BatchError as error:
            self._refuse(error)

    def start_step(self, port: int) -> None:
        """Start the wrappers in what was allocated; they come to this port.

        Raises
        ------
        FaultError
        """
        try:
            with open(f"{self._folder}/step.log", "ab") as log:
                self._step = self._slurm.start(
                    "srun",
                    f"--jobid={self.number}",
                    *srun_words(self._spec, str(len(node_counts(self._spec)))),
                    log=log,
                    env=self._environment(port),
                    account=self._account,
                )
        except BatchError as error:
            self._refuse(error)

    def submit(self, port: int) -> None:
        """Claim the nodes through the queue; the wrappers come to this port.

        Raises
        ------
        FaultError
        """
        folder = self._spec["site"]["bin"]
        script = batch_script(self._spec, f"{folder}/srun" if folder else "srun")
        try:
            said = self._slurm.run(
                "sbatch",
                *sbatch_words(self._spec),
                env=self._environment(port),
                text=script,
                account=self._account,
            )
            self.number = granted(said)
        except BatchError as error:
            self._refuse(error)

    @property
    def has_lost_step(self) -> bool:
        """Whether the step was ours to start, and has ended."""
        return self._step is not None and self._step.has_ended

    def state(self) -> tuple[str | None, str]:
        """The job's state and its reason; None: not known; empty: there is no such job."""
        if not self.number:
            return "", ""
        try:
            text = self._slurm.run("scontrol", "-o", "show", "job", self.number)
        except UnreachableError:
            return None, ""
        except RefusedError:
            return self._accounted()
        return shown_field(text, "JobState"), shown_field(text, "Reason")

    def turn(self) -> Turn | None:
        """How the job stands in the queue; None: out of reach."""
        try:
            show = ("scontrol", "-d", "-o", "show", "job", self.number)
            text = self._slurm.run(*show, env={"TZ": "UTC"})
            state, reason = shown_field(text, "JobState"), shown_field(text, "Reason")
            if state == "PENDING":
                expected = _instant(shown_field(text, "StartTime"))
                return Turn(state, reason, expected, is_stuck=reason in NEVER)
            return Turn(state, reason, slots=self._slots(text) if state == "RUNNING" else {})
        except UnreachableError:
            return None
        except RefusedError:
            ended, why = self._accounted()
            return Turn(ended or "", why)

    def _slots(self, text: str) -> dict[str, int]:
        """The nodes that were allocated, and the processes that each takes."""
        slots: dict[str, int] = {}
        for names, cpus in allocated(text):
            count = 1 if self._spec["site"]["exclusive"] else cpus
            each = self._slurm.run("scontrol", "show", "hostnames", names).split()
            slots |= dict.fromkeys(each, count)
        return slots

    def settled_state(self) -> tuple[str | None, str]:
        """The state of a job that is ending: Slurm hides it while nodes are still cleaned up."""
        end = time.monotonic() + SETTLE_S
        while True:
            state, reason = self.state()
            if state != ENDING or time.monotonic() >= end:
                return state, reason
            time.sleep(POLL_S)

    def is_alive(self, state: str) -> bool:
        """Whether the processes of a job in this state may run, or will."""
        return state in ALIVE

    def is_ending(self, state: str) -> bool:
        """Whether this state stands only until the nodes are free."""
        return state == ENDING

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        """Reason and detail of a part whose job is in this state."""
        return explained(state, reason)

    def kill(self) -> None:
        """Kill every process of the job."""
        with contextlib.suppress(BatchError):
            self.cancel("--signal=KILL", "--full")

    def cancel(self, *options: str) -> None:
        """Signal the job, or end it; harmless when it has ended.

        Raises
        ------
        UnreachableError
        """
        if self.number:
            with contextlib.suppress(RefusedError):
                self._slurm.run("scancel", *options, self.number, account=self._account)

    def release(self, *, has_run: bool) -> bool:
        """Give the nodes back to Slurm; whether it is known that they are.

        Parameters
        ----------
        has_run : bool
            The wrappers end by themselves.
        """
        if not self.number and not self.is_unsure:
            return True
        if self._step is not None and has_run:
            self._step.wait(STEP_END_S)
        try:
            if not self.number:
                return self._undo()
            if has_run and self._step is None and self._is_gone(STEP_END_S):
                return True
            self.cancel()
            self._is_gone(RELEASE_S)  # later than that it is Slurm that is late
            return True
        except BatchError:
            return False
        finally:
            self._end_step()

    def last_words(self) -> str:
        """The last line of the step's own output."""
        try:
            with open(f"{self._folder}/step.log", encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file if line.strip()]
        except OSError:
            return ""
        return lines[-1][:200] if lines else ""

    def _refuse(self, error: BatchError) -> None:
        self.is_unsure = isinstance(error, UnreachableError)
        raise FaultError(refusal(error), str(error)) from error

    def _environment(self, port: int) -> dict[str, str]:
        host = self._spec["site"]["address"] or socket.getfqdn()
        return {
            "COALLOC_BARRIER": f"{host}:{port}",
            "COALLOC_BARRIER_KEY": self._spec["key"],
            VARIABLE: PAYLOAD,
        }

    def _undo(self) -> bool:
        """Look a job up that may or may not have been made, and cancel it.

        It may come into being later than it is looked for, so an answer that there is none
        counts only after a while; until then the caller asks again.
        """
        self._undo_until = self._undo_until or time.monotonic() + UNDO_S
        name = self._spec["token"]["name"]
        if self._slurm.run("squeue", "-h", f"--name={name}", "-o", "%i").strip():
            self._slurm.run("scancel", f"--name={name}", account=self._account)
            return True
        return time.monotonic() >= self._undo_until

    def _end_step(self) -> None:
        if self._step is not None and not self._step.wait(STEP_END_S):
            self._step.kill()

    def _is_gone(self, limit_s: float) -> bool:
        """Whether the job has left its nodes within this time."""
        end = time.monotonic() + limit_s
        while True:
            try:
                if not self._slurm.run("squeue", "-h", "-j", self.number, "-o", "%T").strip():
                    return True
            except RefusedError:
                return True  # "Invalid job id specified"
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_S)

    def _accounted(self) -> tuple[str | None, str]:
        """What accounting remembers of the job, where there is accounting."""
        try:
            text = self._slurm.run("sacct", "-n", "-P", "-X", "-j", self.number, "-o", "State")
        except BatchError:
            return "", ""
        return (text.split() or [""])[0].rstrip("+"), "accounting"


def _instant(stamp: str) -> float | None:
    """A time of Slurm's in UTC, seconds since 1970; None: Slurm does not know."""
    try:
        return float(timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


class SlurmPart(BatchPart):
    """A part on a Slurm cluster."""

    job_type = SlurmJob
