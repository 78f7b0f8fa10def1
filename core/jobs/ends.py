"""Ends of jobs, of those that depend on them, and what run times teach."""

from __future__ import annotations

from coalloc.core.base.effects import DropHistory, SaveHistory
from coalloc.core.base.messages import Abort, Dismiss
from coalloc.core.base.records import Cancellation, JobRecord, JobState
from coalloc.core.base.speedup_fit import remembered_runs
from coalloc.core.base.state import State
from coalloc.core.jobs.dependencies import cannot_be_met, never_met
from coalloc.core.learning.estimates import MOST_KEYS, UserProgram, remembered
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.sites.parts import CANCELLED_THERE, ENDED_BY_ADMIN, PART_ENDED, PartState
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
    end_waiting_parts(state, record.id, now)
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


def end_waiting_parts(state: State, whole: str, now: float) -> None:
    """End tasks or pieces that wait to run again, in an older store also those that had begun."""
    flow = state.composites.get(whole)
    for job in () if flow is None else tuple(flow.jobs()):
        record = state.jobs.get(job)
        if record is not None and record.is_waiting:
            why = "its job was stopped" if record.chunks else "its workflow was stopped"
            end = replace(record, state=JobState.CANCELLED, ended=now, reason="cancelled")
            state.put(replace(end, detail=why))
            state.emit(now, EventKind.JOB_ENDED, record.id, state="cancelled", detail=why)


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


def verdict(record: JobRecord) -> tuple[JobState, str, str, int | None]:
    """End state, reason, detail and exit code of a job all of whose parts ended."""
    parts = record.parts
    # A part that we ended because another one failed does not decide the job's exit code.
    own = [p for p in parts if p.exit_code and p.reason not in {"aborted", "cancelled"}] or parts
    code = max((p.exit_code for p in own if p.exit_code is not None), default=None)
    lost = next((p for p in parts if p.state is PartState.LOST), None)
    limited = next((p for p in parts if p.reason == "time_limit"), None)
    refused = next((p for p in parts if p.state is PartState.REFUSED), None)
    if record.cancelled_by:
        return JobState.CANCELLED, "cancelled", record.cancellation.words, code
    there = next((p for p in parts if p.reason in {CANCELLED_THERE, ENDED_BY_ADMIN}), None)
    if there is not None:
        detail = f"cancelled in {there.cluster}: {there.detail}" if there.detail else ""
        return JobState.CANCELLED, "cancelled", detail or f"cancelled in {there.cluster}", code
    if limited is not None:
        return JobState.TIMEOUT, "time_limit", limited.detail, code
    if lost is not None:
        return JobState.LOST, "lost", f"{lost.cluster}: {lost.detail}", code
    if refused is not None:
        detail = f"the part on {refused.cluster} never started: {refused.detail or refused.reason}"
        return JobState.FAILED, "part_missing", detail, code
    if code:
        worst = next(p for p in parts if p.exit_code == code)
        detail = f"{worst.cluster}: {worst.detail}" if worst.detail else f"exit code {code}"
        return JobState.FAILED, worst.reason or "exit", detail, code
    return JobState.COMPLETED, "", "", code


def remember(state: State, record: JobRecord) -> None:
    """Keep how long it ran, for those like it that name no run time."""
    job = record.job
    if record.started is None or record.ended is None:
        return
    size = record.placed_procs
    match job:
        case RigidJob(base_time=expected):
            pass
        case MoldableJob(speedup=speedup) if size > 0:
            expected = speedup.time(size)
        case _:
            return
    slowdown = record.planned / expected if expected > 0.0 else 1.0
    base = max(record.ended - record.started, 1e-3) / max(slowdown, 1e-9)
    for key in UserProgram.of(record).history_keys:
        if isinstance(job, RigidJob):
            state.learning.history[key] = remembered(state.learning.history.get(key, ()), base)
        state.learning.ratios[key] = remembered(
            state.learning.ratios.pop(key, ()), base / max(expected, 1e-3)
        )
        if not record.flow:
            state.learning.runs[key] = remembered_runs(state.learning.runs.get(key, ()), size, base)
        state.out.append(
            SaveHistory(
                key=key,
                values=state.learning.history.get(key, ()),
                ratios=state.learning.ratios[key],
                runs=state.learning.runs.get(key, ()),
            )
        )
    while len(state.learning.ratios) > MOST_KEYS:
        oldest = next(iter(state.learning.ratios))
        for table in (state.learning.ratios, state.learning.history, state.learning.runs):
            table.pop(oldest, None)
        state.out.append(DropHistory(key=oldest))
