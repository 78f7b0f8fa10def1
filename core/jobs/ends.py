"""Ends of jobs that never ran, and of those that depend on a job that has ended."""

from __future__ import annotations

from coalloc.core.base.messages import Abort, Dismiss
from coalloc.core.base.records import Cancellation, JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.jobs.dependencies import cannot_be_met, never_met
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.parts import CANCELLED_THERE, PART_ENDED
from coalloc.model.values import replace


def abort_parts(state: State, record: JobRecord, reason: str) -> None:
    """Have every part that has not ended released or ended."""
    for part in record.parts:
        if part.state not in PART_ENDED:
            state.send(part.cluster, Abort(job=record.id, attempt=record.attempt, reason=reason))


def taken_back(state: State, record: JobRecord) -> JobRecord:
    """Have a job that only waits in the clusters' queues wait here instead; returns it."""
    if not record.is_in_queues:
        return record
    abort_parts(state, record, "taken back to be changed")
    record = record.unplaced()
    state.put(record)
    return record


def begin_cancelling(state: State, record: JobRecord, by: Cancellation, now: float) -> None:
    """Note who ends a job that runs, and why."""
    state.put(replace(record, cancelled_by=by.user, cancel_reason=by.reason))
    given = {"reason": by.reason} if by.reason else {}
    state.tell(now, EventKind.JOB_CANCELLING, record.id, user=by.user, **given)


def end_waiting(
    state: State, record: JobRecord, now: float, end: JobState, detail: str, reason: str = ""
) -> None:
    """End a job that never ran, and those that can no longer run without it."""
    _end_unrun(state, record, now, end, detail, reason)
    release_dependents(state, record.id, now)


def _end_unrun(
    state: State, record: JobRecord, now: float, end: JobState, detail: str, reason: str
) -> None:
    if (rest := record.rest) is not None:
        if rest.left:  # its members that are not in the queue yet, all as one
            ends = {**rest.ends, end: rest.ends.get(end, 0) + rest.left}
            state.put(replace(record, rest=replace(rest, indices="", left=0, ends=ends)))
            state.tell(now, EventKind.JOB_CANCELLING, record.id, members=rest.left, detail=detail)
        return
    state.put(
        replace(
            record,
            state=end,
            ended=now,
            reason=reason or str(end),
            detail=detail,
            parts=(),
            siblings=0,
        )
    )
    state.emit(now, EventKind.JOB_ENDED, record.id, state=str(end), detail=detail)
    whose = {"user": record.user, "name": record.name}
    state.log("job_ended", job=record.id, **whose, state=str(end), exit_code=None, detail=detail)
    if record.foreign and reason != CANCELLED_THERE:
        dismiss(state, record)


def dismiss(state: State, record: JobRecord) -> None:
    """Have a handed job cancelled where its user submitted it."""
    if record.origin in state.clusters:
        order = Dismiss(job=record.id, attempt=record.attempt, foreign=record.foreign)
        state.send(record.origin, order)


def release_dependents(state: State, job: str, now: float) -> None:
    """End the jobs whose dependency on this one can no longer be met, and those behind them."""
    ended = [job]
    while ended:
        record = state.jobs[ended.pop()]
        for other in tuple(state.dependents.get(record.id, ())):
            waiting = state.jobs[other]
            whys = (cannot_be_met(k, record) for k, needed in waiting.needs if needed == record.id)
            if any(whys) and (why := never_met(state, waiting.needs)):
                _end_unrun(state, waiting, now, JobState.CANCELLED, why, "dependency")
                ended.append(other)
