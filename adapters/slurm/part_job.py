"""A part's job in Slurm: asked for, looked at, given back.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import time
from collections.abc import Callable

from coalloc.adapters.runner.batch import files
from coalloc.adapters.runner.batch.job import PartJob, Turn
from coalloc.adapters.runner.batch.part import BatchPart
from coalloc.adapters.runner.command import (
    BatchError,
    CommandRefusedError,
    StartedCommand,
    UnreachableError,
    one_line,
)
from coalloc.adapters.runner.rank import FaultError
from coalloc.adapters.runner.spec import BatchSpec
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.part_commands import (
    ALIVE,
    BY_ANOTHER,
    BY_SLURM,
    ENDING,
    NOT_LAUNCHED,
    REQUEUED,
    SLURMD,
    UNDECIDED,
    UNREACHED,
    WAITABLE,
    asked_s,
    batch_script,
    explained,
    granted,
    may_be_at_once,
    pending_claim,
    refusal,
    sbatch_variables,
    sbatch_words,
    site_of,
    srun_words,
    told,
)
from coalloc.adapters.slurm.part_view import ShownJob
from coalloc.adapters.slurm.pending_reasons import fate_of
from coalloc.adapters.ssh.shell import CommandOutput

STEP_END_S = 1.0
RELEASE_S = 5.0
SETTLE_S = 15.0
"""An ending job's nodes are waited for so long before its end is reported without their cause."""
WHO_S = 30.0
"""Accounting knows within this time who has cancelled a job, seconds: later after a restart."""
LEAVE_S = 30.0
"""A job whose wrappers have ended ends by itself within this time, or is cancelled, seconds."""
POLL_S = 0.01
GRANT_POLL_S = 0.005
AT_ONCE_S, LATER_POLL_S = 15.0, 0.1
"""Slurm looks at a batch job that was submitted within this time, seconds."""
LONGEST_LOG = 1 << 20
LIST = ("--local", "-h", "-a", "-o", "%i %k")


class SlurmJob(PartJob):
    """The job by which a part's nodes are claimed."""

    system, alive, ending = "Slurm", ALIVE, frozenset({ENDING})
    wake = "scancel --batch --signal=USR1"

    def __init__(self, spec: BatchSpec, folder: str, number: str = "") -> None:
        super().__init__(spec, folder, number)
        self._log = f"{folder}/step.log"
        site = site_of(spec)
        self._slurm = Slurm(
            conf=site["conf"],
            bin_dir=site["bin"],
            timeout_s=site["limit_s"],
            tally=f"{os.path.dirname(folder)}/rpcs",
            ssh=site.get("ssh", ""),
        )
        self._shown = ShownJob(self._slurm, spec)
        self._files = site.get("files", "")
        self._step: StartedCommand | None = None
        self._leave_until = 0.0

    def take_along(self, claims: dict[str, BatchSpec]) -> None:
        super().take_along(claims)
        self._shown.marks |= {spec["token"]["comment"] for spec in claims.values()}

    def attend(self, port: int) -> None:
        if self._files:
            files.FileNodes(self._spec, self._folder, port, self).start()

    def shell(self, script: str) -> str:
        bin_dir = self._spec["site"]["bin"]
        path = f"PATH={shlex.quote(bin_dir)}:$PATH\n" if bin_dir else ""
        return self._slurm.run("/bin/sh", text=path + script)

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        """Claim the nodes at once, or take a turn in the queue; whether it waits there."""
        queue, is_far = self._spec["queue"], bool(self._spec["site"].get("ssh"))
        if queue is None and is_far:  # no srun outlives the connection
            self.submit_at_once(port, keep)
        elif queue is None:
            self.allocate(port)
        else:
            may_try = queue["at_once"] and not is_far and may_be_at_once(self._spec)
            if not (may_try and self._is_granted_at_once(port)):
                self.submit(port)
                keep()
                return True
        keep()
        return False

    def _is_granted_at_once(self, port: int) -> bool:
        """Whether a claim that might wait need not."""
        try:
            self.allocate(port)
        except FaultError as fault:
            if fault.reason in WAITABLE:
                self.number = ""
                return False
            raise
        return True

    def allocate(self, port: int) -> None:
        """Claim the nodes at once, and start the wrappers there; they come to this port.

        srun lives as long as they do, and outlives this process.
        """
        self.asked_s = asked_s(self._spec, is_shape=False)
        try:
            with open(self._log, "ab") as log:
                srun = self._slurm.start(
                    "srun",
                    *srun_words(self._spec),
                    log=log,
                    env=self._place(port) | sbatch_variables(self._spec),
                    account=self._account,
                )
            try:
                self._await_grant(srun)
            except BaseException:
                srun.kill()
                raise
            self._step = srun
        except BatchError as error:
            raise self._refused(error, refusal(error)) from error

    def _await_grant(self, srun: StartedCommand) -> None:
        """Read that the nodes are granted; a claim that is to wait is withdrawn.

        What srun says goes to a file, which no reader has to empty while it runs on.
        """
        limit_s = self._spec["site"]["limit_s"]
        end = time.monotonic() + limit_s
        while True:
            has_ended, said = srun.has_ended, self._said()
            if number := granted(said):
                self.number = number
                return
            self.number = pending_claim(said)
            if has_ended:
                raise self._slurm.failure(
                    "srun", CommandOutput(code=srun.returncode, out="", err=told(said))
                )
            state, reason = self.state()
            if state == "PENDING" and reason not in UNDECIDED:
                self.cancel()
                srun.ends_within(STEP_END_S)
                raise FaultError(fate_of(reason)[1], f"srun: not granted at once ({reason})")
            if time.monotonic() >= end:
                words = one_line(told(said))
                why = f"no answer within {limit_s:g} s"
                raise UnreachableError("srun", f"{why}: {words}" if words else why)
            time.sleep(GRANT_POLL_S)

    def submit_at_once(self, port: int, keep: Callable[[], None]) -> None:
        """Claim exactly the planned nodes by a batch job; one that comes to wait is withdrawn."""
        self.submit(port, may_wait=False)
        keep()
        end = time.monotonic() + AT_ONCE_S
        while True:
            state, reason = self.state()
            if state is not None and state != "PENDING":
                return
            is_decided = state == "PENDING" and reason not in UNDECIDED
            if is_decided or time.monotonic() >= end:
                self.cancel()
                why = f"sbatch: not granted at once ({reason or 'no answer'})"
                raise FaultError(fate_of(reason)[1] if is_decided else "nodes_taken", why)
            time.sleep(LATER_POLL_S)

    def _said(self) -> str:
        try:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                return file.read(LONGEST_LOG)
        except OSError:
            return ""

    def submit(self, port: int, *, may_wait: bool = True) -> None:
        """Claim the nodes through the queue; the wrappers come to this port, or to the gate."""
        is_parked = may_wait and bool(self._spec["site"]["gate"])
        self.asked_s = asked_s(self._spec, is_shape=may_wait)
        try:
            if self._files:
                self.shell(files.OPEN.format(self._files))
                lease = str(max(1, int(self._spec["lease_s"])))
                place = {"COALLOC_FILES": self._files, "COALLOC_LEASE": lease}
                script = batch_script(self._spec, place, files.JOB)
            else:
                place = self._at_gate() if is_parked else self._place(port)
                script = batch_script(self._spec, place)
            words = sbatch_words(self._spec, is_shape=may_wait)
            said = self._slurm.run("sbatch", *words, text=script, account=self._account)
            self.number, self.is_parked = granted(said), is_parked
        except BatchError as error:
            reason = refusal(error)
            if reason == "unknown_node" and site_of(self._spec)["passed"]:
                reason = "no_such_nodes"  # that its user has named
            raise self._refused(error, reason) from error

    @property
    def has_lost_step(self) -> bool:
        return self._step is not None and self._step.has_ended

    def state(self) -> tuple[str | None, str]:
        return self._shown.state(self.number) if self.number else ("", "")

    def turn(self) -> Turn | None:
        return self._shown.turn(self.number)

    def _begin_now(self) -> None:
        words = ("scontrol", "update", f"JobId={self.number}", "StartTime=now")
        self._slurm.run(*words, account=self._account)

    def settled_state(self) -> tuple[str | None, str]:
        """The state of a job that is ending: Slurm hides it while nodes are still cleaned up."""
        end = time.monotonic() + SETTLE_S
        while True:
            state, reason = self.state()
            if state != ENDING or time.monotonic() >= end:
                return state, reason
            time.sleep(POLL_S)

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        if state == "FAILED" and reason == UNREACHED:
            return self._is_cut_off()
        known = explained(state, reason)
        if state != "CANCELLED":
            return known
        uid = self._shown.canceller(self.number, WHO_S)
        if reason == NOT_LAUNCHED and uid in {"", SLURMD}:
            return BY_SLURM
        if not uid:
            return known
        with contextlib.suppress(BatchError):
            return known if uid == str(self._slurm.uid(self._account)) else BY_ANOTHER
        return known

    def _is_cut_off(self) -> tuple[str, str]:
        """Reason and detail of a part whose wrappers found nobody where they were told to."""
        site = self._spec["site"]
        host, (first, last) = site["address"] or socket.getfqdn(), site["ports"]
        where = f"{host}:{first}-{last}" if last else f"{host} at any port"
        why = f"its wrappers did not reach the executor at {where}"
        if self._files:
            return "step_failed", "its nodes do not see the home of the login node's user"
        if relay := site.get("relay"):
            return "step_failed", f"its wrappers did not reach the login node at {relay}"
        return "step_failed", f"{why}; see the settings address and ports"

    def kill(self) -> None:
        with contextlib.suppress(BatchError):
            self.cancel("--signal=KILL", "--full")

    def cancel(self, *options: str) -> None:
        """Signal the job, or end it; harmless when it has ended. Raises `UnreachableError`."""
        with contextlib.suppress(CommandRefusedError):
            if self.number and (own := self._shown.own(self.number)):
                self._slurm.run("scancel", *options, *own, account=self._account)

    def withdraw(self) -> None:
        with contextlib.suppress(BatchError):
            self.cancel()

    def release(self, *, has_run: bool) -> bool:
        if not self._is_given_back(has_run=has_run):
            return False
        try:
            if self._files:
                self.shell(files.CLOSE.format(self._files))
        except BatchError:
            return not self.number  # else there is something to be removed
        return True

    def _is_given_back(self, *, has_run: bool) -> bool:
        if not self.number and not self.is_unsure:
            return True
        try:
            if not self.number:
                return self._undo()
            if has_run:
                left = self._ends_by_itself()
                if not left:
                    return True
                if left not in REQUEUED and time.monotonic() < self._leave_until:
                    return False
            self.cancel()
            self._shown.listed_after(
                self.number, RELEASE_S
            )  # later than that it is Slurm that is late
            if self._step is not None and not self._step.ends_within(STEP_END_S):
                self._step.kill()
            return True
        except BatchError:
            return False

    def _ends_by_itself(self) -> str:
        """State of a job whose wrappers have ended, once it had time to end; empty: it has.

        Only one that ends by itself is accounted as completed.
        """
        self._leave_until = self._leave_until or time.monotonic() + LEAVE_S
        if self._step is not None and self._step.ends_within(STEP_END_S):
            self._leave_until = min(self._leave_until, time.monotonic() + STEP_END_S)
        return self._shown.listed_after(self.number, RELEASE_S, over=REQUEUED)

    def last_words(self) -> str:
        """The last line of the step's own output: a wrapper's, or an error of srun's."""
        lines = [line.strip() for line in told(self._said()).splitlines() if line.strip()]
        own = [line for line in lines if "error:" in line or not line.startswith("srun:")]
        return own[-1][:200] if own else ""

    def _is_cancelled_by_mark(self) -> bool:
        mark = self._spec["token"]["comment"]
        rows = (line.split(" ", 1) for line in self._slurm.run("squeue", *LIST).splitlines())
        found = [number for number, *comment in rows if comment == [mark]]
        if found:
            self._slurm.run("scancel", *found, account=self._account)
        return bool(found)


class SlurmPart(BatchPart):
    """A part on a Slurm cluster."""

    job_type = SlurmJob
