"""Rows as the store returns them; bodies are JSON texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field


class JobRow(NamedTuple):
    """A job as it was last written."""

    id: str
    state: str
    user: str
    body: str
    ended: float | None


class StoredAccount(NamedTuple):
    """The account of a job that has ended."""

    seq: int
    id: str
    project: str
    user: str
    state: str
    ended: float
    body: str


class UsedDay(NamedTuple):
    """Use of one cluster by a user in a project on one day of UTC."""

    day: int
    project: str
    user: str
    cluster: str
    proc_s: float
    coallocated_proc_s: float
    jobs: int
    wait_s: float


class EventRow(Struct, frozen=True, kw_only=True):
    """One event of the stream."""

    seq: int
    time: float
    kind: str
    job: str
    body: str


class PlanRow(Struct, frozen=True, kw_only=True):
    """The plan of one round."""

    round: int
    time: float
    body: str


class Loaded(Struct, frozen=True, kw_only=True):
    """Rows for a start.

    Attributes
    ----------
    jobs : iterator of JobRow
        Active jobs in the order of their first write. It reads a page at a time, so that
        100,000 texts are never in memory together: go through it once, before any commit.
    tokens : mapping of (user, token) to job id
        Of active jobs, and of the user that was asked for.
    outbox : mapping of cluster to {seq: body}
        By rising seq.
    last_event : int
        0 when there is none.
    plan : PlanRow or None
        The newest.
    usage : sequence of (project, user, proc_s, at)
    days : sequence of (project, user, day, proc_s)
        The newest year of them.
    promises : mapping of job to body
    start_errors : sequence of str
        By rising number.
    """

    jobs: Iterator[JobRow]
    tokens: Mapping[tuple[str, str], str]
    outbox: Mapping[str, Mapping[int, str]]
    meta: Mapping[str, str]
    history: Mapping[str, str]
    last_event: int
    plan: PlanRow | None
    usage: Sequence[tuple[str, str, float, float]] = ()
    days: Sequence[tuple[str, str, int, float]] = ()
    promises: Mapping[str, str] = field(default_factory=dict)
    start_errors: Sequence[str] = ()
