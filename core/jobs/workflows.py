"""Workflows: tasks that end, are tried again, or take the rest with them; the end of the whole.

Divisible jobs are treated alike: a piece is a task that nothing stands behind.

Rules
-----
- A task that fails, runs out of time or is lost is tried again as often as `retries` says, each
  time after a longer pause. A cancelled task is not.
- Then what stands behind it never runs. Without `keep_going` no further task is started at all;
  those that run go on to their ends.
- A workflow ends when nothing of it runs and nothing of it will: *completed* when every task
  completed, else *failed*, with the first task that failed and why; *cancelled* when somebody
  asked for that.
"""

from __future__ import annotations

from typing import Any

from coalloc.core.base.composites import (
    ChunkPool,
    Flow,
    WorkflowState,
    is_stopping,
    part_fields,
    spans,
)
from coalloc.core.base.effects import Wake
from coalloc.core.base.records import Cancellation, JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.jobs.dependencies import has_started
from coalloc.core.jobs.ends import abort_parts, begin_cancelling, end_waiting, release_dependents
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import RigidJob, WorkflowJob
from coalloc.model.values import replace

RETRIED = frozenset({JobState.FAILED, JobState.TIMEOUT, JobState.LOST})
TASK_FAILED = "task_failed"
PIECE_FAILED = "piece_failed"


def task_record(state: State, flow: WorkflowState, task: str) -> JobRecord:
    """The record of a task; a new one where it was never placed."""
    known = state.jobs.get(flow.job_of(task))
    return known or first_record(state.jobs[flow.id], task, flow.numbers[task])


def first_record(workflow: JobRecord, task: str, number: int) -> JobRecord:
    """A task's record before it is placed: a rigid job of its own, with its workflow's owner."""
    record, flow = part_record(workflow, number), workflow.job
    shape = flow.tasks[number - 1].shape if isinstance(flow, WorkflowJob) else None
    job = record.job if shape is None else replace(record.job, shape=shape)
    return replace(record, job=job, name=f"{workflow.name}.{task}", task=task)


def part_record(workflow: JobRecord, number: int) -> JobRecord:
    """The record of a task or a piece of this number, as far as it follows from the whole."""
    whole = workflow.job
    job = f"{workflow.id}.{number}"
    return JobRecord(
        id=job,
        job=RigidJob(
            id=job,
            procs=1,
            base_time=1.0,
            weight=whole.weight,
            submitted=workflow.submitted,
            earliest=workflow.submitted,
            time_limit=whole.time_limit,
            clusters=whole.clusters,
            features=whole.features,
            memory_mb_per_proc=whole.memory_mb_per_proc,
            shape=whole.shape,
        ),
        name=workflow.name,
        user=workflow.user,
        uid=workflow.uid,
        gid=workflow.gid,
        command=workflow.command,
        submitted=workflow.submitted,
        clock_before_s=workflow.clock_before_s,
        flow=workflow.id,
        batch=workflow.batch,
    )


def begin(state: State, workflow: JobRecord, first: JobRecord, now: float) -> None:
    """A workflow runs from when the first of its tasks is placed."""
    if workflow.started is not None:
        return
    set_s = state.clock_set_s - workflow.clock_before_s
    state.put(replace(workflow, state=JobState.RUNNING, started=now, clock_set_s=set_s))
    has_started(state, workflow)
    state.tell(now, EventKind.JOB_STARTED, workflow.id, **part_fields(first))


def tries_again(state: State, record: JobRecord, now: float) -> bool:
    """Have a task wait for another try, if one is left; its record has the end it came to."""
    flow, workflow = state.composites.get(record.flow), state.jobs.get(record.flow)
    if flow is None or workflow is None or record.state not in RETRIED:
        return False
    if record.failures >= workflow.retries or is_stopping(workflow, flow):
        return False
    failures = record.failures + 1
    start = state.settings.start
    pause = min(start.backoff_max_s, start.backoff_first_s * 2.0 ** min(failures - 1, 60))
    why = record.detail or record.reason
    again = replace(record.unplaced(), failures=failures, not_before=now + pause)
    again = replace(again, ended=None, exit_code=None, skew_s=None)
    state.put(replace(again, reason="tried_again", detail=why))
    fields: dict[str, Any] = {**part_fields(record), "failures": failures, "pause_s": pause}
    fields |= {"exit_code": record.exit_code, "detail": why}
    kind = EventKind.PIECE_TRIED_AGAIN if record.chunks else EventKind.TASK_TRIED_AGAIN
    state.tell(now, kind, record.id, level="warning", **fields)
    state.marked.backing_off.add(record.id)
    state.out.append(Wake(at=now + pause))
    state.rounds.outdated()
    return True


def task_ended(state: State, record: JobRecord, now: float) -> None:
    """Draw the consequences of a task's end, which is on its record, for its workflow."""
    flow, workflow = state.composites.get(record.flow), state.jobs.get(record.flow)
    if flow is None or workflow is None:
        return
    has_failed = record.state is not JobState.COMPLETED
    if has_failed and not workflow.cancelled_by and not workflow.reason:
        reason, why = _first_failure(state, flow)
        state.put(replace(workflow, reason=reason, detail=why))
    if has_failed or _is_off(state, record):
        state.rounds.outdated()
    if record.chunks:
        state.rounds.happened("job_finished")  # No plan says what comes next on its nodes.
    settle(state, flow, now)


def _first_failure(state: State, flow: Flow) -> tuple[str, str]:
    failed = [state.jobs[flow.job_of(task)] for task in flow.failed]
    first = min(failed, key=lambda record: record.ended or 0.0)
    which = " ".join(*part_fields(first).items())
    why = f"{which} {first.state}: {first.detail or first.reason}"
    return PIECE_FAILED if first.chunks else TASK_FAILED, why


def _is_off(state: State, record: JobRecord) -> bool:
    """Its run time was not the planned one."""
    if record.started is None or record.ended is None:
        return True
    rounds = state.settings.rounds
    off = abs(record.ended - record.started - record.planned)
    return off > max(rounds.task_tolerance_s, rounds.task_tolerance * record.planned)


def settle(state: State, flow: Flow, now: float) -> None:
    """End a workflow of which nothing runs, and nothing will."""
    workflow = state.jobs[flow.id]
    if flow.placed or (flow.open and not is_stopping(workflow, flow)):
        return
    end = _end_of(state, workflow, flow)
    end_resting(state, flow, now)
    state.put(replace(end, ended=now))
    fields: dict[str, Any] = {"state": str(end.state), "exit_code": end.exit_code}
    fields["detail"] = end.detail
    state.tell(now, EventKind.JOB_ENDED, flow.id, **fields)
    release_dependents(state, flow.id, now)
    state.rounds.happened("job_finished")


def end_resting(state: State, flow: Flow, now: float) -> None:
    """End the tasks or pieces that wait for another try, which their workflow does not."""
    # In an older store also those that had been let begin by a parent that is lost now.
    for job in tuple(flow.jobs()):
        record = state.jobs.get(job)
        if record is not None and record.is_waiting:
            why = "its job was stopped" if record.chunks else "its workflow was stopped"
            state.put(
                replace(record, state=JobState.CANCELLED, ended=now, reason="cancelled", detail=why)
            )
            state.emit(now, EventKind.JOB_ENDED, record.id, state="cancelled", detail=why)


def _end_of(state: State, workflow: JobRecord, flow: Flow) -> JobRecord:
    if workflow.cancelled_by:
        why = f"{workflow.cancellation.words}; {_tally(flow)}"
        return replace(workflow, state=JobState.CANCELLED, reason="cancelled", detail=why)
    if not flow.failed:
        return replace(workflow, state=JobState.COMPLETED, reason="", detail="", exit_code=0)
    failed = [state.jobs[flow.job_of(task)] for task in flow.failed]
    codes = [record.exit_code for record in failed if record.exit_code]
    reason, why = _first_failure(state, flow)
    return replace(
        workflow,
        state=JobState.FAILED,
        reason=reason,
        detail=f"{why}; {_tally(flow)}",
        exit_code=codes[0] if codes else None,
    )


def _tally(flow: Flow) -> str:
    if isinstance(flow, ChunkPool):
        text = f"{flow.done} of {flow.total} chunks completed"
        return f"{text}, failed: {spans(flow, flow.failed)}" if flow.failed else text
    assert isinstance(flow, WorkflowState)
    total, done, failed = len(flow.tasks), len(flow.completed), len(flow.failed)
    text = f"{done} of {total} tasks completed"
    if failed > 1:
        text += f", {failed} failed"
    not_run = total - done - failed
    return f"{text}, {not_run} not run" if not_run else text


def cancel(state: State, workflow: JobRecord, by: Cancellation, now: float) -> None:
    """End what runs of a workflow, and start nothing more of it."""
    flow = state.composites[workflow.id]
    if not workflow.cancelled_by:
        begin_cancelling(state, workflow, by, now)
    for task in tuple(flow.placed):
        cancel_task(state, state.jobs[flow.job_of(task)], by, now)
    if workflow.id in state.composites:
        settle(state, flow, now)


def cancel_task(state: State, record: JobRecord, by: Cancellation, now: float) -> None:
    """End a task or piece, at once where it was not told to start; what needs it never runs."""
    why = by.words
    abort_parts(state, record, why)
    if record.is_waiting or record.state is JobState.PREPARING:
        end_waiting(state, record, now, JobState.CANCELLED, why)
        task_ended(state, state.jobs[record.id], now)
    elif not record.cancelled_by:
        begin_cancelling(state, record, by, now)
