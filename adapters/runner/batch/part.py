"""Runs one part of a job whose nodes a batch system gives, from its claim to its end.

Runs as a process of its own on the executor's machine, forked by the fork server
(`runner.fork_server`), and outlives the executor. A `PartJob` asks the batch system for exactly the
chosen nodes; one wrapper on each of them (`runner.node`) brings the processes up and connects to
the barrier (`runner.batch.barrier`), which `runner.batch.supervisor` keeps.

Should this process be killed, a new one takes its folder over: before the start it gives the
claim up, having found the job by its token; after it, it listens at the same port until the
wrappers, which have run on, report to it. A claim that waits in the queue, and whose wrappers call
the gate (`runner.talk`), has none: a new one is forked for it when it is granted, when it is over,
and when something is ordered of it. One that gives such a claim up takes along all others of this
launcher that are to be given up.

Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Any, cast

from coalloc.adapters.runner.batch.ends import bare_end, has_started
from coalloc.adapters.runner.batch.job import PartJob
from coalloc.adapters.runner.batch.supervisor import PartSupervisor
from coalloc.adapters.runner.grant import ABORT, CLAIM, LIMIT, kept, text_of
from coalloc.adapters.runner.orders import wake_on_signals
from coalloc.adapters.runner.payload import payload
from coalloc.adapters.runner.rank import fault_of, faults_of_files
from coalloc.adapters.runner.spec import BatchSpec
from coalloc.adapters.runner.status import END, StatusFile
from coalloc.adapters.runner.sweep import RETRY_S

RELEASE_RETRY_S = 1.0
MOST_TAKEN_ALONG = 200
"""Two files are open for each."""
payload()  # here, in the fork server, for all parts


class BatchPart:
    """One part; it always ends with an end on record."""

    is_kept = False  # what it has started serves the nodes on, and its successor
    job_type: type[PartJob]

    def __init__(self, folder: str, orders_fd: int, lock_fd: int) -> None:
        self.folder, self.orders_fd, self.lock_fd = folder, orders_fd, lock_fd
        self.status = StatusFile(folder)
        self.supervisor: PartSupervisor | None = None
        self.job: PartJob | None = None
        self.uid: int | None = None

    def run(self) -> None:
        wake_fd = wake_on_signals(self.orders_fd, self._told_to_end)
        try:
            spec, is_resumed = self._open()
            if self.status.read(END) is not None:
                return
            claim = kept(self.folder, CLAIM)
            self.uid = spec["uid"]
            self.job = self.job_type(spec, self.folder, claim.get("job", ""))
            self.job.is_parked = claim.get("waits", False)
            self.job.asked_s = claim.get("asked_s", self.job.asked_s)
            fds = (self.orders_fd, wake_fd)
            port = 0 if self.job.is_parked else claim.get("port", 0)
            self.supervisor = PartSupervisor(spec, self.folder, self.status, self.job, fds, port)
            self.supervisor.carry(is_resumed=is_resumed)
            if self.supervisor.has_left:
                self.supervisor.close()
                return
            end = self.supervisor.end_record()
        except BaseException as error:
            end = self._failed_end(error)
        self._give_back_and_record(end)

    def _told_to_end(self) -> None:
        if self.supervisor is not None:
            self.supervisor.stop("cancelled", "its runner was told to")

    def _open(self) -> tuple[BatchSpec, bool]:
        """The spec, and whether an earlier runner has been here."""
        is_resumed = os.path.exists(f"{self.folder}/status")
        with (
            faults_of_files(self.folder),
            open(f"{self.folder}/spec.json", encoding="utf-8") as file,
        ):
            spec: BatchSpec = json.load(file)
            spec["time_limit_s"] = kept(self.folder, LIMIT).get("limit_s", spec["time_limit_s"])
            if not is_resumed:
                self.status.preallocate(len(spec["ranks"]), len(spec.get("members", ())))
                self.status.synchronise()
            self.status.open()
        return spec, is_resumed

    def _failed_end(self, error: BaseException) -> dict[str, Any]:
        """The end of a part that its runner cannot carry on."""
        reason, detail = fault_of(error, self.folder)
        if self.supervisor is not None:
            self.supervisor.stop(reason, detail)
            return self.supervisor.end_record()
        with contextlib.suppress(OSError):
            return bare_end(reason, detail, is_started=has_started(self.status))
        return bare_end(reason, detail, is_started=False)

    def _give_back_and_record(self, end: dict[str, Any]) -> None:
        """First the nodes, so that they are free when the end is known; but not for ever."""
        has_run = end["state"] == "finished"
        if not has_run and self.job is not None and not self.job.is_parked:
            self.job.withdraw()  # while its wrappers are held: let go, they would end as if well
        if self.supervisor is not None:
            self.supervisor.close()
        others: list[tuple[StatusFile, str, int]] = []
        if self.job is not None and self.job.is_parked and text_of(self.folder, ABORT) is not None:
            others = self._taken_along(self.job)
        is_released = self.job is None or self.job.release(has_run=has_run)
        # The launcher hears of an end that cannot be written, and may forget the part.
        while not self.status.record(END, end, durable=True) and os.path.isdir(self.folder):
            time.sleep(RETRY_S)
        for status, reason, lock in others:
            status.record(END, bare_end("aborted", reason, is_started=False), durable=True)
            os.close(lock)
        while (
            self.job is not None and not is_released and os.path.isdir(os.path.dirname(self.folder))
        ):
            time.sleep(RELEASE_RETRY_S)
            is_released = self.job.release(has_run=has_run)

    def _taken_along(self, job: PartJob) -> list[tuple[StatusFile, str, int]]:
        """Have this user's other claims that wait to be given up end with this one.

        Returns for each its status, the reason, and its lock, which is held.
        """
        found: dict[str, tuple[StatusFile, str, int]] = {}
        claims: dict[str, BatchSpec] = {}
        root, own = os.path.split(self.folder)
        for name in os.listdir(root):
            folder = f"{root}/{name}"
            claim, reason = kept(folder, CLAIM), text_of(folder, ABORT)
            if reason is None or name == own or len(found) >= MOST_TAKEN_ALONG:
                continue
            spec = cast(BatchSpec, kept(folder, "spec.json"))
            if not claim.get("waits") or spec.get("uid") != self.uid:
                continue
            with contextlib.suppress(OSError):
                lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CLOEXEC)
                status = StatusFile(folder)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    status.open()
                    if status.read(END) is None:
                        found[claim["job"]] = status, reason, lock
                        claims[claim["job"]] = spec
                finally:
                    if claim["job"] not in found:
                        os.close(lock)
        job.take_along(claims)
        return list(found.values())
