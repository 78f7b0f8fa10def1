"""Mail about their jobs to the users who asked for it, as sbatch sends it.

Each is sent once at most: what waits to be sent when the daemon ends is lost, and what happens
while it is away is not told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from structlog.stdlib import BoundLogger

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.records import JobRecord, JobState
from coalloc.daemon.access.access import TokenBucket
from coalloc.daemon.monitoring.notify import GOOD_ENDS, Notifier, Way, mail, notice_of
from coalloc.model.event_kinds import EventKind
from coalloc.model.mail import EACH_MEMBER, SHARES, is_address
from coalloc.model.settings import NotifyConfig

HOUR_S = 3600.0
FIRST = "BEGIN"
"""Stands among the members that are left of an array of which none has begun."""


def types_of(event: AppendEvent, record: JobRecord) -> set[str]:
    """The types of mail that an event is."""
    if event.kind is EventKind.JOB_STARTED:
        return {"BEGIN"}
    if event.kind is not EventKind.JOB_ENDED:
        return {"REQUEUE"} if event.fields.get("ran") else set()
    types = {"END"} if record.state in GOOD_ENDS else {"END", "FAIL"}
    types |= {"TIME_LIMIT"} if record.state is JobState.TIMEOUT else set()
    return types | ({"INVALID_DEPEND"} if record.reason == "dependency" else set())


class UserMail(Notifier):
    """Sends it in a thread of its own, so many in an hour to one user.

    `jobs`: all jobs by id, as they are now; `began`: when the daemon did.
    """

    def __init__(
        self, config: NotifyConfig, log: BoundLogger, jobs: Mapping[str, JobRecord], began: float
    ) -> None:
        super().__init__(config, log)
        self._jobs, self._began, self._looked = jobs, began, began
        self._left: dict[str, set[str]] = {}
        """Members of arrays that have not ended."""
        self._buckets: dict[str, TokenBucket] = {}

    @property
    def is_on(self) -> bool:
        """Users are sent mail."""
        return self.config.user_mail

    def recorded(self, event: AppendEvent, record: JobRecord | None) -> None:
        """Tell what has happened to a job, if its user wants to know."""
        if record is None or not record.mail_type or record.flow or not self.is_on:
            return
        types, what = types_of(event, record), ""
        if record.array and EACH_MEMBER not in record.mail_type:
            types, what = self._of_array(record, types)
        if not types.isdisjoint(record.mail_type):
            told = {EventKind.JOB_STARTED: "has begun", EventKind.JOB_REQUEUED: "waits again"}
            self._send(record, event.time, what or told.get(event.kind, ""))

    def looked(self, placed: Iterable[JobRecord], now: float) -> None:
        """Tell whose run time has passed a share of its limit since the look before."""
        before, self._looked = self._looked, now
        for record in placed if self.is_on else ():
            for kind in SHARES.keys() & set(record.mail_type):
                at = (record.started or 0.0) + SHARES[kind] * (record.run_limit or 0.0)
                if record.started and record.run_limit and before < at <= now:
                    self._send(record, now, f"has run for {SHARES[kind]:.0%} of its time limit")

    def ways(self) -> Iterator[Way]:
        """Mail alone."""
        return iter((mail,))

    def _of_array(self, record: JobRecord, types: set[str]) -> tuple[set[str], str]:
        """Types of a member's event that are its array's: at its first start, and its last end."""
        left = self._left.get(record.array)
        if left is None:
            left = self._left[record.array] = {record.id, FIRST}
            members = list(self._members(record.array))
            left |= {each.id for each in members if not each.is_ended}
            if any((each.started or self._began) < self._began for each in members):
                left.remove(FIRST)
        if "END" not in types:
            is_first = FIRST in left and "BEGIN" in types
            left -= types
            return types if is_first else set(), "has begun, the first of its array"
        is_last = record.id in left and left <= {record.id, FIRST}
        left.discard(record.id)
        if not is_last:
            return set(), ""
        ends = Counter[str](each.state for each in self._members(record.array))
        ends = ends if record.rest is None else Counter(record.rest.ends)
        failed = sum(count for state, count in ends.items() if state not in GOOD_ENDS)
        types = {"END", "FAIL"} if failed else {"END"}
        return types, f"all of its array have ended, {failed} failed"

    def _members(self, array: str) -> Iterator[JobRecord]:
        begin = f"{array}_"
        return (job for id, job in self._jobs.items() if id.startswith(begin))

    def _send(self, record: JobRecord, now: float, what: str) -> None:
        """Send a mail, if its user has not had too many."""
        most = float(self.config.user_mails_per_h)
        bucket = self._buckets.setdefault(record.user, TokenBucket(most / HOUR_S, most))
        named = (record.mail_user or record.user).split(",")
        to = tuple(address for address in named if is_address(address))
        notice = notice_of(record, now, "user_mail", what, to)
        if bucket.left(now) < 1.0:
            self.drop(notice, f"{record.user} has had {most:g} in an hour")
        elif to:
            bucket.take(1.0)
            self.offer(notice)
