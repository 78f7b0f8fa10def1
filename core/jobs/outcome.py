"""Outcome of an ended job: its state and exit code, and what its run time teaches."""

from __future__ import annotations

from coalloc.core.base.effects import DropHistory, SaveHistory
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.speedup_fit import remembered_runs
from coalloc.core.base.state import State
from coalloc.core.learning.estimates import MOST_KEYS, UserProgram, remembered
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.sites.parts import CANCELLED_THERE, ENDED_BY_ADMIN, PartState


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
