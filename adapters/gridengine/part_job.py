"""A part's jobs in Grid Engine, one for each host: asked for, looked at, given back.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import (
    CellStatus,
    JobEntry,
    QstatError,
    parse_number,
    parse_status,
)
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
    site_of,
)
from coalloc.adapters.runner.batch.job import PartJob, Turn, behind_s, node_counts
from coalloc.adapters.runner.batch.part import BatchPart
from coalloc.adapters.runner.command import (
    BatchError,
    CommandRefusedError,
)
from coalloc.adapters.runner.rank import FaultError
from coalloc.adapters.runner.spec import BatchSpec

RELEASE_S = 5.0
"""Between a job's end and Grid Engine's knowing of it; later than that it is late, seconds."""
POLL_S = 0.1


class GridEngineJob(PartJob):
    """The jobs by which a part's hosts are claimed; `number` has their numbers, with commas."""

    system, alive = "Grid Engine", ALIVE

    def __init__(self, spec: BatchSpec, folder: str, number: str = "") -> None:
        super().__init__(spec, folder, number)
        site = site_of(spec)
        self._commands = GridEngine(
            root=site["root"],
            cell=site["cell"],
            qmaster_port=site["qmaster_port"],
            execd_port=site["execd_port"],
            bin_dir=site["bin"],
            timeout_s=site["limit_s"],
            ssh=site.get("ssh", ""),
        )
        if spec["time_limit_s"] is not None:
            self.asked_s = spec["time_limit_s"] + behind_s(spec)  # and more, for what comes around
        self._submitted = time.monotonic()
        self._is_queued = False

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        """Submit a job for each host; their wrappers come to this port.

        A claim that may wait is submitted whether there is room for it or not. One of several hosts
        may not: some would stand idle until the last is free. `FaultError`: the slots are not free,
        or Grid Engine does not want it.
        """
        try:
            queue = self._spec["queue"]
            self._is_queued = queue is not None and not self._has_room_now(queue)
            if queue is None:
                self._ask_whether_free()
            for host, words in self._requests().items():
                said = self._submit(
                    words, job_script(site_of(self._spec), self._place(port, host or HOST_VARIABLE))
                )
                self.number = ",".join([*self._numbers, parse_number(said)])
        except BatchError as error:
            raise self._refused(error, refusal(error)) from error
        except QstatError as error:
            self.is_unsure = True
            raise FaultError("refused_by_gridengine", f"qsub: {error}") from error
        self._submitted = time.monotonic()
        keep()
        return True

    def _has_room_now(self, queue: dict[str, Any]) -> bool:
        """Test if a claim that might wait need not. Raises `BatchError` or `FaultError`."""
        if queue["at_once"]:
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

    def _begin_now(self) -> None:
        self._run("qalter", "-a", instant(time.time()), *self._numbers)

    def turn(self) -> Turn | None:
        if not self._is_queued:
            return self._turn_at_once()
        try:
            status, state = self._read("-f", "-xml")
        except (QstatError, BatchError):
            return None
        if state == RUNS:
            procs = dict(zip(self._numbers, node_counts(self._spec).values(), strict=False))
            return Turn(state, slots=given(procs, status))
        before = place_in_queue(self._numbers, status.waiting)
        return Turn(state, f"{before} jobs are before it", is_next=before == 0)

    def _turn_at_once(self) -> Turn | None:
        """Their slots are those asked for."""
        state, reason = self.state()
        if state is None:
            return None
        names = self._spec["site"]["names"].values()
        counts = node_counts(self._spec)
        granted = state == RUNS and self._spec["queue"] is not None
        return Turn(state, reason, slots={name: counts[name] for name in names} if granted else {})

    def state(self) -> tuple[str | None, str]:
        try:
            state = self._read("-xml")[1]
        except (QstatError, BatchError):
            return None, ""
        wait_s = site_of(self._spec)["queue_wait_s"]
        if state == WAITS and not self._is_queued and time.monotonic() - self._submitted > wait_s:
            return OVERDUE, ""
        return state, ""

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        return explained(state, site_of(self._spec)["queue_wait_s"])

    def kill(self) -> None:
        if self._numbers:
            with contextlib.suppress(BatchError):
                self._delete()

    def release(self, *, has_run: bool) -> bool:
        if not self._numbers and not self.is_unsure:
            return True
        try:
            if self.is_unsure:
                return self._undo()
            if has_run and self._are_gone():
                return True
            self._delete()
            if not has_run:
                self._are_gone()
        except (BatchError, QstatError):
            return False
        return True

    def _requests(self) -> dict[str, list[str]]:
        """The options of ``qsub`` for each host; no name: for any host."""
        site, queue = site_of(self._spec), self._spec["queue"]
        begin_s = queue["begin_s"] if queue is not None and self._is_queued else 0.0
        begin = instant(time.time() + begin_s) if begin_s >= 1.0 else ""
        requests = {}
        for host in node_counts(self._spec):
            # A host that is claimed whole is asked for with its own number of slots.
            where = "" if self._is_queued and not site["whole"] else host
            requests[where] = request(self._spec, where, *site["asked"][host], begin)
        return requests

    def _ask_whether_free(self) -> None:
        """Have Grid Engine look at each host as things are; nothing is submitted."""
        for words in self._requests().values():
            self._run("qsub", "-w", "p", *words, text="#!/bin/sh\n")

    def _submit(self, words: list[str], script: str) -> str:
        return self._run("qsub", "-terse", "-w", "n", *words, text=script)

    def _run(self, name: str, *words: str, text: str | None = None) -> str:
        env = {"TZ": "UTC"}
        return self._commands.run(name, *words, text=text, account=self._account, env=env)

    def _read(self, *options: str) -> tuple[CellStatus, str]:
        """The queue, and the jobs' joint state; empty: one of them is not there."""
        odd: list[str] = []
        status = parse_status(self._commands.run("qstat", *options, "-u", "*"), odd)
        state = joint_state(self._numbers, status.jobs())
        if odd and not state:
            raise QstatError(odd[0])  # what is not understood may be one of ours
        return status, state

    def _listed(self) -> Iterator[JobEntry]:
        return parse_status(self._commands.run("qstat", "-xml", "-u", "*")).jobs()

    def _delete(self) -> None:
        """Have the jobs deleted; those that are gone are no error."""
        with contextlib.suppress(CommandRefusedError):
            self._run("qdel", *self._numbers)

    def _is_cancelled_by_mark(self) -> bool:
        name, known = self._spec["token"]["name"], self._numbers
        found = {job.number for job in self._listed() if job.name == name}
        self.number = ",".join(sorted({*known, *found}))
        if self.number:
            self._delete()
        return not found.issubset(known)

    def _are_gone(self) -> bool:
        """Wait until the jobs have left their hosts, at most `RELEASE_S`; whether they have."""
        end = time.monotonic() + RELEASE_S
        while True:
            numbers = {job.number for job in self._listed()}
            if numbers.isdisjoint(self._numbers):
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_S)


class GridEnginePart(BatchPart):
    """A part on a Grid Engine cell."""

    job_type = GridEngineJob
