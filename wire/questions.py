"""Questions of clients, which change nothing; each has the ``type`` that `QUESTIONS` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from coalloc.model.sites.streams import StreamWish
from coalloc.wire.codec import readable
from coalloc.wire.frames import WireError

Number = Annotated[int, Meta(ge=0, le=1 << 53)]
"""Whole numbers of JSON are exact up to there, and SQLite takes them."""
Name = Annotated[str, Meta(min_length=1)]
Q = TypeVar("Q", bound=Struct)


class Plain(Struct, frozen=True, kw_only=True):
    """A question without fields."""


class OfJob(Struct, frozen=True, kw_only=True):
    """A question about one job."""

    job: Name
    """Its id; where all members of an array are meant, the array's number."""


class StreamQuestion(StreamWish, frozen=True, kw_only=True):
    """Output of a running job's part, from where it was read on, and input for it."""

    job: Name
    """Its id."""
    attempt: Number = 0
    """Which attempt the places in ``at`` are of; 0: not said."""
    part: Number = 0
    """Index of the part."""


class QueueQuestion(Struct, frozen=True, kw_only=True):
    """A page of the queue."""

    all: bool = False
    """Jobs that have ended, too, as far as they are remembered."""
    user: str = ""
    """Only this user's."""
    after: str = ""
    """Only jobs that arrived after this one, an id."""
    limit: Number = 2_000
    """At most so many rows, and at most 2,000."""


class PriorityQuestion(Struct, frozen=True, kw_only=True):
    """Factors of waiting jobs' priorities."""

    job: str = ""
    """One job, or all members of an array; empty: every waiting job, at most 2,000."""


class EventsQuestion(Struct, frozen=True, kw_only=True):
    """A page of the event stream."""

    since: Number = 0
    """Only events with a larger ``seq``."""
    limit: Number = 1_000
    """At most so many, and at most 10,000."""
    job: str | None = None
    """Only this job's."""


class AccountQuestion(Struct, frozen=True, kw_only=True):
    """A page of the jobs that have ended."""

    since: float | None = None
    """That ended from then on, and before then, seconds since 1970."""
    until: float | None = None
    """Ended before then."""
    job: str = ""
    """One job, and the members, tasks or pieces of it."""
    user: str = ""
    """Of these alone."""
    project: str = ""
    """Of these alone."""
    state: str = ""
    """Of these alone."""
    after: str = ""
    """For the next page: as the answer to the last one had it."""


class UsageQuestion(Struct, frozen=True, kw_only=True):
    """A page of usage by day, project, user and cluster."""

    since: float | None = None
    """Days from that time's on, and up to that time's."""
    until: float | None = None
    """Days up to that time's."""
    after: tuple[str, str, str, str] | None = None
    """For the next page: ``day``, ``project``, ``user`` and ``cluster`` of the last row."""


class BackupQuestion(Struct, frozen=True, kw_only=True):
    """A copy of the store."""

    path: Name
    """Absolute, on the daemon's host."""


QUESTIONS: Mapping[str, type[Struct]] = {
    "queue": QueueQuestion,
    "show": OfJob,
    "why": OfJob,
    "wait": OfJob,
    "stream": StreamQuestion,
    "priority": PriorityQuestion,
    "nodes": Plain,
    "plan": Plain,
    "events": EventsQuestion,
    "snapshot": Plain,
    "rules": Plain,
    "status": Plain,
    "account": AccountQuestion,
    "usage": UsageQuestion,
    "estimates": Plain,
    "backup": BackupQuestion,
}


def read_question(body: Mapping[str, Any], form: type[Q]) -> Q:
    """A question, from a decoded request; fields that it does not have are ignored.

    `WireError`: a field is missing or of another kind.
    """
    given = {name: value for name, value in body.items() if value is not None}
    try:
        return msgspec.convert(given, form)
    except msgspec.ValidationError as error:
        raise WireError("bad_field", readable(str(error))) from error
