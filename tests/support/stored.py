"""Effects that last, for tests of the store."""

from __future__ import annotations

from coalloc.core.base.effects import AppendEvent, SaveJob, SaveLaunch
from coalloc.core.base.records import JobRecord, JobState
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import RigidJob
from coalloc.model.sites.parts import Launch


def saved_job(name: str, *, state: str = "", ended: float | None = None, size: int = 1) -> SaveJob:
    """A job of one process; of this state, or pending, or completed where an end is given.

    Parameters
    ----------
    size : int
        Characters of its command, to make the row long.
    """
    state = state or ("pending" if ended is None else "completed")
    record = JobRecord(
        id=name,
        job=RigidJob(id=name, procs=1, base_time=1.0),
        name=name,
        user="ann",
        command="x" * size,
        state=JobState(state),
        ended=ended,
    )
    return SaveJob(record=record)


def saved_launch(job: str, *argv: str) -> SaveLaunch:
    """A job's command."""
    return SaveLaunch(job=job, launch=Launch(argv=argv or ("hostname",), cwd="/"))


def event(seq: int, *, job: str = "", time: float = 0.0, size: int = 0) -> AppendEvent:
    """An event with so many characters of text."""
    fields = {"text": "x" * size} if size else {}
    return AppendEvent(seq=seq, time=time, kind=EventKind.JOB_SUBMITTED, job=job, fields=fields)
