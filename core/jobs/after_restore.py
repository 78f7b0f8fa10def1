"""Reconciliation with the executors after the store was restored from a backup.

The store is an older copy of itself. What it takes for waiting may run, what it takes for running
may have ended, and of jobs that came later it knows nothing. Executors know what they have, so:

- a part of a later attempt than the record's means that the job was started after the copy was
  made: the job is held with that for its reason, and is not started again unless somebody releases
  it, which ends the older attempt;
- a start that an executor remembers, and has forgotten otherwise (`recalled`), counts as its part
  would: the job is held, though it has ended;
- a claim of a job that came later, or of a later attempt of one that has ended, or waits here and
  there, is released, since nobody will ever start it;
- a part of a job that somebody has cancelled in the meantime is ended, of whatever attempt it is;
- a part that its executor does not have any more has ended, nobody can say how: it is lost. A job
  that a batch system has handed over waits again instead: it may have been put back there into the
  queue, and the next readings tell;
- a part that was told to start, and whose start may have been dropped with the copy's orders, is
  told again, which does nothing to one that runs.

The daemon's wall clock may be set back too; what lies ahead then stays as far ahead as it was. A
clock that is set forward needs nothing: deadlines are over early, and what they end is tried
again. One that is set back by an hour would otherwise hold every back-off, every deadline and the
next round up for an hour.
"""

from __future__ import annotations

from coalloc.core.base.composites import ChunkPool, WorkflowState, flow_of, named
from coalloc.core.base.effects import SaveMeta
from coalloc.core.base.messages import Abort, Hello, Report, Start, Started
from coalloc.core.base.records import REQUEUED, WAITING, JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.jobs import arrays
from coalloc.core.jobs.workflows import part_record, settle, task_record
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import DivisibleJob
from coalloc.model.sites.parts import PART_ENDED, PartKey, PartReport, PartState
from coalloc.model.values import replace

OVERTAKEN = "started_after_backup"
"""Reason of a held job of which an executor knows a later attempt than the store."""
MARK = "restored."
"""Before a cluster's name: the key under which the store says that it was restored."""
RESTORED = "restored"
"""The key under which a restored store names its restoration."""
TOLD = "told."
"""Before a cluster's name: the key under which the store says since which restoration the executor
there has said what it had started."""
CANCELLED = "cancelled"
"""Reason of a job that somebody has cancelled; other ends without a run have others."""
CLAIMED = frozenset({PartState.WAITING, PartState.PREPARING, PartState.READY})
UNSTARTED = frozenset({PartState.WAITING, PartState.PREPARING, PartState.REFUSED})
"""No daemon before us can have it started any more, once its executor follows us."""


def started_after_backup(state: State, cluster: str, report: PartReport, now: float) -> bool:
    """Hold a job that an executor has started, and the store takes for waiting.

    True: it is held for this reason, now or before, and its part is left alone.
    """
    record = arrays.reached(state, report.job, now)
    if record is None:
        return _hold_workflow(state, cluster, report, now)
    if record.flow and record.state in WAITING:
        if report.attempt > record.attempt:
            return _hold_workflow(state, cluster, report, now)
        is_known = report.attempt == record.attempt and report.state not in PART_ENDED
        return is_known and is_held(state.jobs.get(record.flow))
    if is_held(record):
        known = report.attempt <= record.attempt and report.state not in PART_ENDED
        if not known:
            _hold(state, record, cluster, report, max(record.attempt, report.attempt), now)
        return True
    if record.state not in WAITING or report.attempt <= record.attempt:
        return False
    if report.state in UNSTARTED:
        # It never started, though a sibling may have; a later attempt must have another number.
        if report.attempt > record.reserved:
            state.put(replace(record, reserved=report.attempt))
        return report.state is not PartState.REFUSED
    _hold(state, record, cluster, report, report.attempt, now)
    return True


def is_held(record: JobRecord | None) -> bool:
    """A job waits for somebody to decide whether it runs again."""
    return record is not None and record.state is JobState.HELD and record.reason == OVERTAKEN


def _hold_workflow(state: State, cluster: str, report: PartReport, now: float) -> bool:
    """A task or a piece that the store does not know to have begun."""
    whole, task = flow_of(report.job)
    if whole not in state.composites:
        return False
    flow = state.composites[whole]
    is_refused = report.state is PartState.REFUSED
    if isinstance(flow, WorkflowState):
        # The number of a task's attempt is never given to another one.
        found = named(state.jobs[whole].job, task)
        if found is not None and found[1] in flow.open:
            record = task_record(state, flow, found[1])
            if report.attempt > record.attempt:
                state.put(replace(record, attempt=report.attempt))
    elif is_refused and report.job in state.jobs:
        state.put(replace(state.jobs[report.job], attempt=report.attempt))
    else:
        _give_chunks_back(state, flow, report, now)
    if is_refused:
        return False
    record = state.jobs[whole]
    if not is_held(record):
        _hold(state, record, cluster, report, record.attempt, now)
    return True


def _give_chunks_back(state: State, pool: ChunkPool, report: PartReport, now: float) -> None:
    """Never give a piece's number to other chunks; those it has here wait under a new one."""
    _, _, number = report.job.partition(".")
    if not number.isdecimal():
        return
    whole = state.jobs[pool.id]
    fresh = part_record(whole, max(pool.last, int(number)) + 1)
    known = state.jobs.get(report.job)
    if known is not None and known.chunks:
        fresh = replace(fresh, chunk_first=known.chunk_first, chunks=known.chunks)
        state.put(replace(fresh, failures=known.failures))
    ended = known or part_record(whole, int(number))
    detail = "it began after the copy was made that the store is now"
    state.put(
        replace(ended, chunks=0, state=JobState.LOST, ended=now, reason=OVERTAKEN, detail=detail)
    )


def recalled(state: State, told: Started, now: float) -> None:
    """Take in what an executor has started: nothing of it is started again, no number is given."""
    for job, attempt, how in told.starts:
        state_of_part = PartState.FINISHED if how == PartState.FINISHED else PartState.LOST
        report = PartReport(job=job, attempt=attempt, part=0, state=state_of_part)
        reserve_attempt(state, report)
        started_after_backup(state, told.cluster, report, now)
    if told.is_last:
        restored = state.presence.restored
        state.presence.told[told.cluster] = restored
        state.out.append(SaveMeta(key=f"{TOLD}{told.cluster}", value=restored))


def is_untold(state: State, cluster: str) -> bool:
    """The store was restored, and an executor has yet to say what it had started before."""
    restored = state.presence.restored
    return restored != "" and state.presence.told.get(cluster) != restored


def _hold(
    state: State, record: JobRecord, cluster: str, report: PartReport, attempt: int, now: float
) -> None:
    how = str(report.state)
    if report.state is PartState.FINISHED:
        how += "" if report.exit_code is None else f" with exit code {report.exit_code}"
    part = "piece" if isinstance(record.job, DivisibleJob) else "task"
    task = "" if report.job == record.id else f"{part} {report.job}, "
    detail = f"{task}attempt {report.attempt} on {cluster} is {how}; the store is an older copy"
    held = replace(record, state=JobState.HELD, attempt=attempt, reason=OVERTAKEN, detail=detail)
    state.put(held)
    state.emit(now, EventKind.JOB_HELD, record.id, why=detail)
    state.log("job_overtaken", level="warning", job=record.id, detail=detail)


def is_cancelled(state: State, report: PartReport) -> bool:
    """Whether somebody has cancelled a job, or the whole of a task or piece, that has ended so."""
    record = state.jobs.get(flow_of(report.job)[0] or report.job)
    return record is not None and record.state is JobState.CANCELLED and record.reason == CANCELLED


def reserve_attempt(state: State, report: PartReport) -> None:
    """A number that an executor knows is not given to a new job."""
    text = report.job.partition("_")[0].partition(".")[0]
    if text.isdigit() and int(text) > state.last.job:
        state.last.job = int(text)
        state.out.append(SaveMeta(key="last_job", value=text))


def reconcile(state: State, hello: Hello) -> tuple[PartReport, ...]:
    """The parts that the store believes on a cluster, and its executor does not have.

    Every other start is told again. From now on the cluster counts as known.
    """
    state.presence.unreconciled.discard(hello.cluster)
    state.out.append(SaveMeta(key=f"{MARK}{hello.cluster}", value=""))
    lost = missing_parts(state, hello, "its executor does not know it; the store is an older copy")
    repeat_starts(state, hello.cluster)
    theirs = {record.id for record in state.placed_records() if record.foreign}
    return tuple(replace(p, reason=REQUEUED) if p.job in theirs else p for p in lost)


def end_stopped(state: State, now: float) -> None:
    """End workflows that were to end with what was prepared for them, which waits again.

    Not before every cluster was heard of: some of it may run.
    """
    for flow in () if state.presence.unreconciled else [*state.composites.values()]:
        if not is_held(state.jobs[flow.id]):
            settle(state, flow, now)


def release_claims(state: State, report: Report) -> None:
    """Have claims released that no daemon will start any more.

    `report` is of an executor that has heard our welcome, and takes no start from the daemon before
    us any more. One that it has taken may run, though its part was said to be ready.
    """
    for part in report.parts:
        if part.state in CLAIMED and _is_unknown(state, part):
            why = "the daemon does not know this start"
            order = Abort(job=part.job, attempt=part.attempt, reason=why, claim_only=True)
            state.send(report.cluster, order)


def _is_unknown(state: State, part: PartReport) -> bool:
    """A part of a job that the store does not have, or a claim of a later attempt than it has."""
    record = state.jobs.get(part.job)
    if record is None:
        return flow_of(part.job)[0] not in state.composites
    is_over = record.is_ended or (record.is_waiting and part.state in UNSTARTED)
    return is_over and part.attempt > record.attempt


def missing_parts(state: State, hello: Hello, detail: str) -> tuple[PartReport, ...]:
    """Reports that the parts on a cluster are lost which its executor does not name."""
    there = {part.key for part in hello.parts}
    lost = []
    for record in state.placed_records():
        for part in record.parts:
            if part.cluster != hello.cluster or part.state in PART_ENDED:
                continue
            key = PartKey(job=record.id, attempt=record.attempt, part=part.index)
            if key not in there:
                lost.append(key.report(PartState.LOST, reason="lost", detail=detail))
    return tuple(lost)


def repeat_starts(state: State, cluster: str) -> None:
    """Tell a cluster again to start what it has ready and was told to start."""
    for record in list(state.placed_records()):
        waits = any(p.cluster == cluster and p.state is PartState.READY for p in record.parts)
        is_alone = not record.pack or record.is_pack_first
        if record.state is JobState.STARTING and waits and is_alone:
            state.send(cluster, Start(job=record.id, attempt=record.attempt))


def set_back(state: State, now: float, seconds: float) -> None:
    """Shift every time that the core compares with the clock, which was set back to `now`."""
    rounds = state.rounds
    if rounds.last_start is not None:
        rounds.last_start -= seconds
    for cluster in state.clusters.values():
        cluster.read_at -= seconds
        if cluster.behind_since is not None:
            seq, since = cluster.behind_since
            cluster.behind_since = (seq, since - seconds)
    if state.round is not None:
        state.round.started -= seconds
    state.schedule.time -= seconds
    # their alarms come that much too early
    state.maintenance.reserved_due = state.deadlines.due = None
    state.schedule.later = {entry: at - seconds for entry, at in state.schedule.later.items()}
    for record in _timed(state, now):
        put_off = record.id in state.marked.backing_off
        parts = (
            replace(
                part,
                asked=part.asked - seconds,
                granted=None if part.granted is None else part.granted - seconds,
            )
            for part in record.parts
        )
        state.put(
            replace(
                record,
                not_before=record.not_before - seconds if put_off else min(record.not_before, now),
                deadline=None if record.deadline is None else record.deadline - seconds,
                parts=tuple(parts),
            )
        )
    state.log("clock_set_back", level="warning", seconds=round(seconds, 3))


def after_restart(state: State, now: float) -> None:
    """Bring back what an earlier run set by a clock that was ahead of this one."""
    start = state.settings.start
    for record in _timed(state, now):
        not_before = min(record.not_before, now + start.backoff_max_s)
        deadline = record.deadline
        if deadline is not None:
            patience = start.max_wait_s if record.queued else start.prepare_timeout_s
            deadline = min(deadline, now + patience)
        if (not_before, deadline) != (record.not_before, record.deadline):
            state.put(replace(record, not_before=not_before, deadline=deadline))


def _timed(state: State, now: float) -> list[JobRecord]:
    """Jobs with a deadline, or that may not be tried before some time to come."""
    return [
        record
        for record in state.jobs.values()
        if not record.is_ended and (record.deadline is not None or record.not_before > now)
    ]
