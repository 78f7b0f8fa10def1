"""Clients that wait for jobs to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coalloc.core.base.records import JobRecord
from coalloc.core.base.requests import Refused, RequestError
from coalloc.wire.answers import EndedAnswer, EndedJob
from coalloc.wire.server import Origin

MOST_MEMBERS = 100_000
"""Jobs that one user's unanswered waits may name together; the members of an array are several."""
TOO_MANY = Refused(code="busy", message="too many waits since; ask again")


@dataclass(slots=True, kw_only=True, eq=False)
class _Wait:
    origin: Origin
    user: str
    job: str
    left: set[str]


class Waiters:
    """Answers each wait when the last of its jobs has ended, and its data are back.

    Whoever has gone, or has given up and asked again, is not noticed: so the oldest waits of a user
    who has too many are refused. `members` has the records of a job or an array, and refuses an
    unknown one.
    """

    def __init__(
        self,
        members: Callable[[str], Sequence[JobRecord]],
        answer: Callable[[Origin, EndedAnswer], None],
        refuse: Callable[[Origin, Refused], None],
    ) -> None:
        self._members, self._answer, self._refuse = members, answer, refuse
        # of each user, and of each job, in the order in which they came
        self._waits: dict[str, dict[_Wait, None]] = {}
        self._named: Counter[str] = Counter()
        self._waiting: dict[str, dict[_Wait, None]] = {}

    def add(self, origin: Origin, job: str, user: str) -> None:
        """A client of this user waits for a job, or each member of an array; there must be one."""
        left = {record.id for record in self._members(job) if not record.is_ended or record.staged}
        if not left:
            self._tell(origin, job)
            return
        wait = _Wait(origin=origin, user=user, job=job, left=left)
        waits = self._waits.setdefault(user, {})
        waits[wait] = None
        for member in left:
            self._waiting.setdefault(member, {})[wait] = None
        self._named[user] += len(left)
        while self._named[user] > MOST_MEMBERS and len(waits) > 1:
            self._give_up(next(iter(waits)))

    def ended(self, job: str) -> None:
        """A job has ended; of a workflow or a long array, also the parts that never ran."""
        begin = job if job.endswith("_") else f"{job}."
        for part in [one for one in self._waiting if one.startswith(begin) and one != job]:
            self.ended(part)
        for wait in self._waiting.pop(job, {}):
            wait.left.discard(job)
            self._named[wait.user] -= 1
            if not wait.left:
                self._forget(wait)
                self._tell(wait.origin, wait.job)

    def _give_up(self, wait: _Wait) -> None:
        for member in wait.left:
            del self._waiting[member][wait]
            if not self._waiting[member]:
                del self._waiting[member]
        self._named[wait.user] -= len(wait.left)
        self._forget(wait)
        self._refuse(wait.origin, TOO_MANY)

    def _forget(self, wait: _Wait) -> None:
        del self._waits[wait.user][wait]
        if not self._waits[wait.user]:
            del self._waits[wait.user], self._named[wait.user]

    def _tell(self, origin: Origin, job: str) -> None:
        try:
            records = self._members(job)
        except RequestError as error:
            self._refuse(origin, error.refused)
            return
        ended = (
            EndedJob(id=r.shown_id, state=str(r.state), exit_code=r.exit_code, detail=r.detail)
            for r in records
        )
        self._answer(origin, EndedAnswer(jobs=tuple(ended)))
