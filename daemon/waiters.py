"""Clients that wait for jobs to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coalloc.core.records import JobRecord
from coalloc.core.requests import Refused
from coalloc.daemon.caller import RefusedError
from coalloc.daemon.wire.server import Origin


class Waiters:
    """Answers each wait when the last of its jobs has ended.

    Parameters
    ----------
    members : callable
        Job or array number -> its records; raises RefusedError for an unknown one.
    answer : callable
        Sends an answer.
    """

    def __init__(
        self,
        members: Callable[[str], Sequence[JobRecord]],
        answer: Callable[[Origin, Mapping[str, Any]], None],
        refuse: Callable[[Origin, Refused], None],
    ) -> None:
        self._members, self._answer, self._refuse = members, answer, refuse
        self._waiting: dict[str, list[tuple[Origin, str, set[str]]]] = {}

    def add(self, origin: Origin, job: str) -> None:
        """A client waits for a job, or for every member of an array.

        Raises
        ------
        RefusedError
            There is no such job.
        """
        left = {record.id for record in self._members(job) if not record.is_ended}
        if not left:
            self._tell(origin, job)
        for member in left:
            self._waiting.setdefault(member, []).append((origin, job, left))

    def ended(self, job: str) -> None:
        """A job has ended; of a workflow, also the tasks that never ran."""
        for task in [other for other in self._waiting if other.startswith(f"{job}.")]:
            self.ended(task)
        for origin, asked, left in self._waiting.pop(job, ()):
            left.discard(job)
            if not left:
                self._tell(origin, asked)

    def _tell(self, origin: Origin, job: str) -> None:
        try:
            records = self._members(job)
        except RefusedError as error:
            self._refuse(origin, error.refused)
            return
        ended = [
            {"id": r.id, "state": str(r.state), "exit_code": r.exit_code, "detail": r.detail}
            for r in records
        ]
        self._answer(origin, {"type": "ended", "jobs": ended})
