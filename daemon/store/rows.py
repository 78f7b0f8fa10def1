"""Rows of the store's tables; bodies are JSON texts.

Each class is a table's columns in their order (`coalloc.daemon.store.tables`).
"""

from __future__ import annotations

from typing import NamedTuple


class JobRow(NamedTuple):
    """A job as it was last written."""

    seq: int
    """Its place in the queue: when it was first written."""
    id: str
    ended: float | None
    flow: str | None
    """The workflow or divisible job that it is a part of."""
    body: str


class JobTextRow(NamedTuple):
    """The command of a job, or the starts that it was told to expect."""

    job: str
    body: str


class TokenRow(NamedTuple):
    """The job that a user's token made."""

    user: str
    token: str
    job: str


class OrderRow(NamedTuple):
    """An order that its executor has not yet carried out."""

    cluster: str
    seq: int
    body: str


class EventRow(NamedTuple):
    """One event of the stream."""

    seq: int
    time: float
    kind: str
    job: str
    body: str


class PlanRow(NamedTuple):
    """The plan of one round."""

    round: int
    time: float
    body: str


class MetaRow(NamedTuple):
    """A number, mark or note."""

    key: str
    value: str


class HistoryRow(NamedTuple):
    """Run times of jobs of one kind."""

    key: str
    body: str


class StartErrorRow(NamedTuple):
    """Error of an expected start."""

    number: int
    body: str


class UsageRow(NamedTuple):
    """Decayed use of a user in a project."""

    project: str
    user: str
    proc_s: float
    at: float


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


class StoredAccount(NamedTuple):
    """The account of a job that has ended."""

    seq: int
    id: str
    project: str
    user: str
    state: str
    ended: float
    body: str
