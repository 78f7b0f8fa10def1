"""What the store is asked to write, and what it hands back; bodies are opaque JSON texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class PutJob:
    """Write a job; the first write of an id fixes its place in the queue.

    Attributes
    ----------
    ended : float or None
        When it ended, wall-clock seconds; None while it is active. Only active jobs are
        loaded at start.
    flow : str
        The workflow of which it is a task; empty for others.
    """

    id: str
    state: str
    user: str
    body: str
    ended: float | None = None
    flow: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutLaunch:
    """Write what a job executes; read on demand only."""

    job: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutToken:
    """Remember that this user's token made this job."""

    user: str
    token: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOutbox:
    """Keep a message to a cluster until it is dropped."""

    cluster: str
    seq: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropOutbox:
    """Forget the messages to a cluster up to a number, inclusive."""

    cluster: str
    through_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEvent:
    """Append to the event stream; `seq` must be new.

    Attributes
    ----------
    job : str
        Id of the job it is about; empty when about none.
    """

    seq: int
    time: float
    kind: str
    job: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutPlan:
    """Keep the plan of a round; older rounds beyond a number are forgotten."""

    round: int
    time: float
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutMeta:
    """Write a named value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutHistory:
    """Write the run-time history of a user's command."""

    key: str
    body: str


Write = (
    PutJob
    | PutLaunch
    | PutToken
    | PutOutbox
    | DropOutbox
    | AppendEvent
    | PutPlan
    | PutMeta
    | PutHistory
)


class JobRow(NamedTuple):
    """A job as it was last written."""

    id: str
    state: str
    user: str
    body: str
    ended: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event of the stream."""

    seq: int
    time: float
    kind: str
    job: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """The plan of one round."""

    round: int
    time: float
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a start needs.

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
    """

    jobs: Iterator[JobRow]
    tokens: Mapping[tuple[str, str], str]
    outbox: Mapping[str, Mapping[int, str]]
    meta: Mapping[str, str]
    history: Mapping[str, str]
    last_event: int
    plan: PlanRow | None
