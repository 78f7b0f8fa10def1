"""Answers about shares, accounts and estimates, in the words of docs/PROTOCOL.md."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from coalloc.core.base.accuracy import RunTimeAccuracy, StartAccuracy
from coalloc.core.base.projects import DayUsage, Factors
from coalloc.core.base.records import JobState
from coalloc.wire.answers import Answer, TimedAnswer


class PriorityRow(Factors, frozen=True, kw_only=True):
    """The terms of a waiting job's effective weight; all but the weights in doublings."""

    job: str
    """Its id."""
    user: str
    project: str
    """Empty where its user has none."""
    place: int
    """Among the waiting jobs by effective weight, from 1."""


class PriorityAnswer(TimedAnswer, frozen=True, kw_only=True, tag="priority"):
    """Waiting jobs by falling effective weight."""

    jobs: tuple[PriorityRow, ...]
    """Below, the greatest effective weight first; a job that is not being planned is left out."""


class AccountRow(Struct, frozen=True, kw_only=True):
    """A job, a task or a piece that has ended."""

    id: str
    name: str
    user: str
    project: str
    """To which it is charged."""
    state: JobState
    """As of a job."""
    submitted: float
    eligible: float
    """When it could have started first."""
    started: float | None
    """Null: it never ran."""
    ended: float
    procs: int
    """Processes it ran on; those it asked for where it never ran."""
    requested_s: float | None
    """Its time limit, or what it was planned to run, seconds."""
    proc_s: float
    """Of its last attempt, processor-seconds."""
    clusters: dict[str, int] = field(default_factory=dict)
    """Processes; empty where it never ran, and of the whole of a workflow or a divisible job."""
    nodes: dict[str, int] = field(default_factory=dict)
    """The same by node."""
    exit_code: int | None = None
    command: str = ""
    """The program."""
    detail: str = ""
    """Its end in words; of a cancelled job who asked for it, and the reason given."""
    cpu_s: float | None = None
    """CPU time that the processes of its last attempt have used; null: not known."""
    max_rss_mb: float | None = None
    """Memory of its largest process, MiB; None: not known."""


class AccountAnswer(TimedAnswer, frozen=True, kw_only=True, tag="account"):
    """A page of the accounts of ended jobs, by their end."""

    jobs: tuple[AccountRow, ...]
    """Below; it may be empty while there are more."""
    after: str = ""
    """What to ask with for the next page; empty: this is the last one."""


class UsageRow(DayUsage, frozen=True, kw_only=True):
    """Use of one cluster by a user in a project on one day of UTC."""

    day: str
    """Such as ``2026-11-22``."""


class UsageAnswer(TimedAnswer, frozen=True, kw_only=True, tag="usage"):
    """A page of usage by day."""

    rows: tuple[UsageRow, ...]
    more: bool = False
    """There are others behind it: ask again with the last row's `day`, `project`, `user` and
    `cluster` as `after`."""


class AccuracyAnswer(TimedAnswer, frozen=True, kw_only=True, tag="estimates"):
    """Accuracy of the estimates on this site."""

    wanted: float
    """Share of the starts that is to be in its interval, 0..1."""
    starts: tuple[StartAccuracy, ...]
    run_times: RunTimeAccuracy | None = None
    """Below; null: no run is remembered."""


class RulesAnswer(Answer, frozen=True, kw_only=True, tag="rules"):
    """The input of a round that would begin now, and what it were without each rule in force."""

    snapshot: dict[str, Any]
    """In the snapshot format, without held jobs."""
    lifted: dict[str, dict[str, Any]] = field(default_factory=dict)
    """A snapshot without each of ``shares``, ``limits`` and ``guarantees`` that is in force."""
