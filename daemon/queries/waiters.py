"""Clients that wait for jobs to end."""

from __future__ import annotations

import itertools
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


@dataclass(slots=True, kw_only=True)
class _Wait:
    origin: Origin
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
        self._numbers = itertools.count()
        # of each user, in the order in which they came; and of each job, whose they are
        self._waits: dict[str, dict[int, _Wait]] = {}
        self._named: Counter[str] = Counter()
        self._waiting: dict[str, dict[int, str]] = {}

    def add(self, origin: Origin, job: str, user: str) -> None:
        """A client of this user waits for a job, or each member of an array; there must be one."""
        left = {record.id for record in self._members(job) if not record.is_ended or record.staged}
        if not left:
            self._tell(origin, job)
            return
        number = next(self._numbers)
        waits = self._waits.setdefault(user, {})
        waits[number] = _Wait(origin=origin, job=job, left=left)
        for member in left:
            self._waiting.setdefault(member, {})[number] = user
        self._named[user] += len(left)
        while self._named[user] > MOST_MEMBERS and len(waits) > 1:
            self._give_up(user, next(iter(waits)))

    def ended(self, job: str) -> None:
        """A job has ended; of a workflow or a long array, also the parts that never ran."""
        begin = job if job.endswith("_") else f"{job}."
        for part in [one for one in self._waiting if one.startswith(begin) and one != job]:
            self.ended(part)
        for number, user in self._waiting.pop(job, {}).items():
            wait = self._waits[user][number]
            wait.left.discard(job)
            self._named[user] -= 1
            if not wait.left:
                self._forget(user, number)
                self._tell(wait.origin, wait.job)

    def _give_up(self, user: str, number: int) -> None:
        wait = self._waits[user][number]
        for member in wait.left:
            others = self._waiting[member]
            del others[number]
            if not others:
                del self._waiting[member]
        self._named[user] -= len(wait.left)
        self._forget(user, number)
        self._refuse(wait.origin, TOO_MANY)

    def _forget(self, user: str, number: int) -> None:
        del self._waits[user][number]
        if not self._waits[user]:
            del self._waits[user], self._named[user]

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
