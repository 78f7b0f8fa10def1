"""Jobs as the daemon describes them to clients, in the words of docs/PROTOCOL.md.

What a row says of a job as it is stands in the job's record (`core.base.records`); here is what the
daemon computes beside it. Times are wall-clock seconds since 1970 unless a name says otherwise.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from coalloc.core.base.records import JobRecord, JobSummary
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.sites.parts import Launch


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of a workflow or a divisible job."""

    total: int
    """Tasks of a workflow, chunks of a divisible job."""
    completed: int = 0
    running: int = 0
    """Those that occupy nodes."""
    failed: int = 0
    """Those that have failed for good."""
    unit: str = "tasks"
    """What is counted: ``tasks`` or ``chunks``."""


class QueueRow(JobSummary, frozen=True, kw_only=True, omit_defaults=False):
    """One job of the queue; of one that waits, `reason` and `detail` say why."""

    procs: int
    """Processes it uses, or asks for at the least."""
    max_procs: int | None = None
    """The most that a moldable job can use."""
    shape: Shape = ONE_SLOT
    """What it asks of its nodes besides."""
    time_limit: float | None = None
    """Seconds of run time."""
    start_estimate: float | None = None
    """When a waiting job is expected to start."""
    start_early: float | None = None
    """It starts from then on, and until ``start_late``, nine times of ten; null: not learnt yet."""
    start_late: float | None = None
    nodes: dict[str, int] = field(default_factory=dict)
    """Processes on each node, in rank order."""
    clusters: tuple[str, ...] = ()
    """One for each part."""
    skew_ms: float | None = None
    """Between the first processes of its parts, milliseconds."""
    weight: float = 1.0
    """Its importance, which ``--priority`` sets."""
    progress: Progress | None = None
    """Of a workflow or a divisible job."""
    project: str = ""
    """The project that is charged for it; empty: none."""


class MemberRow(Struct, frozen=True, kw_only=True):
    """A run under a number of its own, as part of a job."""

    id: str
    """Of its record, such as ``17.3``."""
    state: str
    """As of a job; of a task also ``not_run``: never placed, and never will be."""
    attempt: int = 0
    """Starts tried."""
    failures: int = 0
    """Runs that have failed."""
    nodes: dict[str, int] = field(default_factory=dict)
    """Processes on each node."""
    clusters: tuple[str, ...] = ()
    """One for each part."""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    planned: float = 0.0
    """Planned run time of the current attempt, seconds."""
    reason: str = ""
    """Why it waits (a task: ``parents``, ``planned``, ``next_round``, ``backing_off`` or
    ``tried_again``) or how it ended."""
    detail: str = ""
    """The same in words."""


class TaskRow(MemberRow, frozen=True, kw_only=True):
    """One task of a workflow; in the state ``not_run`` it was never placed, and never will be."""

    task: str
    """Its name in the workflow."""
    start_estimate: float | None = None
    """When one that waits is expected to start."""


class PieceRow(MemberRow, frozen=True, kw_only=True):
    """One piece of a divisible job."""

    first: int
    """Its first chunk, counted from 0."""
    chunks: int
    """How many it has."""
    not_before: float | None = None
    """Of one that waits to be tried again."""


class JobDetails(QueueRow, frozen=True, kw_only=True):
    """Everything the daemon knows of a job but its environment."""

    record: JobRecord
    """As the daemon keeps it, below; fields with their defaults are left out."""
    launch: Launch = Launch(argv=())
    """Its command, without its environment; empty where a batch system has it."""
    tasks: tuple[TaskRow, ...] = ()
    """Of a workflow, in the order of the submit, below."""
    pieces: tuple[PieceRow, ...] = ()
    """Of a divisible job, in the order of their numbers, below."""
    events: tuple[dict[str, Any], ...] = ()
    """The job's own, by rising ``seq``, each with ``seq``, ``time``, ``kind`` and the event's
    fields."""
