"""A part's jobs in Grid Engine, one for each host: asked for, looked at, given back.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import ParseError, Status, parse_number, parse_status
from coalloc.adapters.gridengine.part_commands import (
    ALIVE,
    HOST_VARIABLE,
    OTHERS_FIRST,
    OVERDUE,
    RUNS,
    WAITABLE,
    WAITS,
    explained,
    given,
    instant,
    job_script,
    joint_state,
    place_in_queue,
    refusal,
    request,
)
from coalloc.adapters.runner.batch_job import Turn, account_of, node_counts
from coalloc.adapters.runner.batch_part import BatchPart
from coalloc.adapters.runner.command import (
    Account,
    BatchError,
    CommandRefusedError,
    UnreachableError,
)
from coalloc.adapters.runner.payload import VARIABLE, payload
from coalloc.adapters.runner.rank import FaultError

RELEASE_S = 5.0
"""Between a job's end and Grid Engine's knowing of it; later than that it is late, seconds."""
POLL_S = 0.1
UNDO_S = 60.0
"""A submission that was never answered is looked for so long, seconds."""
PAYLOAD = payload()


class GridEngineJob:
    """The jobs by which a part's hosts are claimed; they go by one name.

    Parameters
    ----------
    spec : mapping
        The part's.
    folder : str
        The part's.
    number : str
        Where an earlier runner has submitted them: their numbers, with commas.

    Raises
    ------
    FaultError
        The user is not known here, or not ours to act for.
    """

    system = "Grid Engine"

    def __init__(self, spec: dict[str, Any], folder: str, number: str = "") -> None:
        self._spec = spec
        self._numbers = [each for each in number.split(",") if each]
        self.is_unsure = False
        self._undo_until = 0.0
        site = spec["site"]
        self._commands = GridEngine(
            root=site["root"],
            cell=site["cell"],
            qmaster_port=site["qmaster_port"],
            execd_port=site["execd_port"],
            bin_dir=site["bin"],
            timeout_s=site["limit_s"],
        )
        self._account: Account | None = account_of(spec)
        self._submitted = time.monotonic()
        self._is_queued = False
        self._queue: dict[str, Any] = spec.get("queue") or {}

    @property
    def number(self) -> str:
        """Their numbers, with commas."""
        return ",".join(self._numbers)

    @property
    def has_lost_step(self) -> bool:
        """No: the wrappers are not this process's to start."""
        return False

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        """Submit a job for each host; their wrappers come to this port.

        A claim that may wait is submitted whether there is room for it or not. One of several
        hosts may not: some would stand idle until the last is free.

        Raises
        ------
        FaultError
            The slots are not free, or Grid Engine does not want it.
        """
        try:
            self._is_queued = bool(self._queue) and not self._has_room_now()
            if not self._queue:
                self._ask_whether_free()
            for host, words in self._requests().items():
                said = self._submit(words, job_script(self._spec["site"], self._place(host, port)))
                self._numbers.append(parse_number(said))
        except BatchError as error:
            self.is_unsure = isinstance(error, UnreachableError)
            raise FaultError(refusal(error), str(error)) from error
        except ParseError as error:
            self.is_unsure = True
            raise FaultError("refused_by_gridengine", f"qsub: {error}") from error
        self._submitted = time.monotonic()
        keep()
        return True

    def _has_room_now(self) -> bool:
        """Whether a claim that might wait need not.

        Raises
        ------
        BatchError, FaultError
        """
        if self._queue["at_once"]:
            try:
                self._ask_whether_free()
                return True
            except CommandRefusedError as error:
                if refusal(error) not in WAITABLE:
                    raise
        if len(node_counts(self._spec)) > 1:
            why = "parts of several hosts do not wait in Grid Engine's queue"
            raise FaultError(OTHERS_FIRST, why)
        return False

    def hasten(self) -> bool:
        """Let a job with a later begin start from now on; whether that is so."""
        try:
            self._run("qalter", "-a", instant(time.time()), *self._numbers)
        except UnreachableError:
            return False
        except CommandRefusedError:
            return True  # it has started, or ended
        return True

    def leave_queue(self) -> bool:
        """Delete the job if it still waits; whether qmaster has answered.

        One that starts between the two commands is deleted too, at its barrier.
        """
        try:
            if joint_state(self._numbers, self._status().jobs()) == WAITS:
                self._delete()
        except (ParseError, BatchError):
            return False
        return True

    def turn(self) -> Turn | None:
        """The jobs' place in the queue, or what they were given; None: out of reach."""
        if not self._is_queued:
            return self._turn_at_once()
        try:
            status = parse_status(self._commands.run("qstat", "-f", "-xml", "-u", "*"))
        except (ParseError, BatchError):
            return None
        state = joint_state(self._numbers, status.jobs())
        if state == RUNS:
            whole = self._spec["site"]["whole"]
            return Turn(state, slots=given(self._numbers, status, whole))
        before = place_in_queue(self._numbers, status.waiting)
        return Turn(state, f"{before} jobs are before it", is_next=before == 0)

    def _turn_at_once(self) -> Turn | None:
        """Their slots are those asked for."""
        state, reason = self.state()
        if state is None:
            return None
        names = self._spec["site"]["names"].values()
        counts = node_counts(self._spec)
        granted = state == RUNS and bool(self._queue)
        return Turn(state, reason, slots={name: counts[name] for name in names} if granted else {})

    def state(self) -> tuple[str | None, str]:
        """The jobs' joint state; None: not known; empty: one of them is not there."""
        try:
            state = joint_state(self._numbers, self._status().jobs())
        except (ParseError, BatchError):
            return None, ""
        wait_s = self._spec["site"]["queue_wait_s"]
        if state == WAITS and not self._is_queued and time.monotonic() - self._submitted > wait_s:
            return OVERDUE, ""
        return state, ""

    def settled_state(self) -> tuple[str | None, str]:
        """The jobs' state; one that is being deleted is told from one that ended."""
        return self.state()

    def is_alive(self, state: str) -> bool:
        """Whether the processes of jobs in this state may run, or will."""
        return state in ALIVE

    def is_ending(self, state: str) -> bool:
        """No: what is being deleted is not waited for."""
        return False

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        """Reason and detail of a part whose jobs are in this state."""
        return explained(state, self._spec["site"]["queue_wait_s"])

    def kill(self) -> None:
        """Kill every process of the jobs."""
        if self._numbers:
            with contextlib.suppress(BatchError):
                self._delete()

    def withdraw(self) -> None:
        """Nothing: Grid Engine accounts a deleted job as it does one that has ended."""

    def release(self, *, has_run: bool) -> bool:
        """Give the slots back; whether it is known that they are.

        Parameters
        ----------
        has_run : bool
            The wrappers end by themselves.
        """
        if not self._numbers and not self.is_unsure:
            return True
        try:
            if self.is_unsure:
                return self._undo()
            if has_run and self._are_gone(RELEASE_S):
                return True
            self._delete()
            if not has_run:
                self._are_gone(RELEASE_S)
        except (BatchError, ParseError):
            return False
        return True

    def last_words(self) -> str:
        """Nothing: what a wrapper prints stays on its host."""
        return ""

    def _requests(self) -> dict[str, list[str]]:
        """The options of ``qsub`` for each host; no name: for any host."""
        whole, queue = self._spec["site"]["whole"], self._queue
        is_late = self._is_queued and queue["begin_s"] >= 1.0
        begin = instant(time.time() + queue["begin_s"]) if is_late else ""
        requests = {}
        for host, count in node_counts(self._spec).items():
            # A host that is claimed whole is asked for with its own number of slots.
            where = "" if self._is_queued and not whole else host
            slots = whole.get(host, count)
            requests[where] = request(self._spec, where, slots, begin)
        return requests

    def _place(self, host: str, port: int) -> dict[str, str]:
        """A wrapper's environment."""
        address = self._spec["site"]["address"] or socket.getfqdn()
        return {
            "COALLOC_BARRIER": f"{address}:{port}",
            "COALLOC_BARRIER_KEY": self._spec["key"],
            "COALLOC_BARRIER_NODE": host or HOST_VARIABLE,
            VARIABLE: PAYLOAD,
        }

    def _ask_whether_free(self) -> None:
        """Have Grid Engine look at each host as things are; nothing is submitted."""
        for words in self._requests().values():
            self._run("qsub", "-w", "p", *words, text="#!/bin/sh\n")

    def _submit(self, words: list[str], script: str) -> str:
        return self._run("qsub", "-terse", "-w", "n", *words, text=script)

    def _run(self, name: str, *words: str, text: str | None = None) -> str:
        env = {"TZ": "UTC"}
        return self._commands.run(name, *words, text=text, account=self._account, env=env)

    def _status(self) -> Status:
        return parse_status(self._commands.run("qstat", "-xml", "-u", "*"))

    def _delete(self) -> None:
        """Have the jobs deleted; those that are gone are no error."""
        with contextlib.suppress(CommandRefusedError):
            self._run("qdel", *self._numbers)

    def _undo(self) -> bool:
        """Look for what may or may not have been submitted, by its name, and delete it.

        It may come into being later than it is looked for, so an answer that there is none
        counts only after a while; until then the caller asks again.
        """
        self._undo_until = self._undo_until or time.monotonic() + UNDO_S
        name = self._spec["token"]["name"]
        found = {job.number for job in self._status().jobs() if job.name == name}
        is_new = not found.issubset(self._numbers)
        self._numbers = sorted({*self._numbers, *found})
        if self._numbers:
            self._delete()
        return is_new or time.monotonic() >= self._undo_until

    def _are_gone(self, limit_s: float) -> bool:
        """Whether the jobs have left their hosts within this time."""
        end = time.monotonic() + limit_s
        while True:
            numbers = {job.number for job in self._status().jobs()}
            if numbers.isdisjoint(self._numbers):
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_S)


class GridEnginePart(BatchPart):
    """A part on a Grid Engine cell."""

    job_type = GridEngineJob
