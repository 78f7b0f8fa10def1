"""Submit, cancel, hold, release: what users do to jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coalloc.core.base.composites import WorkflowState, flow_of, named
from coalloc.core.base.effects import SaveLaunch, SaveMeta, SaveToken
from coalloc.core.base.events import Requested
from coalloc.core.base.records import Cancellation, JobRecord, JobState, SubmitOptions
from coalloc.core.base.requests import (
    Cancel,
    CommandAnswer,
    Done,
    Release,
    RequestError,
    SetPriority,
    Submit,
    SubmitWorkflow,
)
from coalloc.core.base.state import State
from coalloc.core.commands import admission
from coalloc.core.jobs import arrays, deadlines, dependencies, workflows
from coalloc.core.jobs.eligibility import owner_of
from coalloc.core.jobs.ends import abort_parts, begin_cancelling, end_waiting, taken_back
from coalloc.core.learning.estimates import UserProgram, best_known, completed
from coalloc.core.learning.programs import program_of
from coalloc.core.sharing import limits
from coalloc.model.errors import InputError
from coalloc.model.event_kinds import EventKind
from coalloc.model.formats.indices import Indices
from coalloc.model.formats.job_json import read_job
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.mail import is_address
from coalloc.model.sites.batch_options import check_options
from coalloc.model.sites.parts import Launch
from coalloc.model.values import fields_of, replace

MOST_PRIORITY = 30.0
"""Doublings of a weight that an operator may give or take."""
LONGEST_REASON = 500
"""Of a cancellation, characters."""
NO_MAIL = "no mail is sent to users here; coalloc wait, or coalloc events --follow, tells its end"
SWITCHES = {
    JobState.HELD: (JobState.PENDING, EventKind.JOB_HELD),
    JobState.PENDING: (JobState.HELD, EventKind.JOB_RELEASED),
}
"""By the new state: the one before, and the event."""
REPAIRED = "repaired"
"""Among the sources: what was repaired of the speed-up a user gave."""


def submit(state: State, event: Requested, command: Submit, now: float) -> CommandAnswer:
    """Queue a job, or say why not; a known token answers with the job it made."""
    known = state.tokens.get((event.user, command.token))
    if known is not None:
        return Done(body={"job": known, "jobs": command.ids(known), "again": True})
    indices = _indices(state, command)
    _check_number(state, event, command)
    return _queued(state, event, command, indices, now)


def _indices(state: State, command: Submit) -> Indices:
    most = state.settings.daemon.max_array
    if not command.array:
        return Indices(())
    if isinstance(command.array, str):
        try:
            return Indices.read(command.array, most)
        except ValueError as error:
            raise RequestError("bad_request", f"array: {error}") from error
    if len(command.array) > most:
        raise RequestError("too_many", f"array has {len(command.array)} jobs, at most {most}")
    if len(set(command.array)) != len(command.array) or any(i < 0 for i in command.array):
        raise RequestError("bad_request", "array: indices must differ and not be negative")
    return Indices.of(command.array)


def _queued(
    state: State, event: Requested, command: Submit, indices: Indices, now: float
) -> CommandAnswer:
    """Queue a job, or every member of an array, under the next number."""
    name = command.name or _program(command)
    arrays.reach_needed(state, command.needs, now)
    is_long = arrays.is_long(indices, command.needs)
    members: Sequence[int | None] = indices.split(2 if is_long else len(indices))[0] or [None]
    needs = dependencies.resolved(state, command.needs, user=event.user, name=name, array=members)
    base = admitted(state, event, command, now)
    number = numbered(state, event.user, command.token, _launch(command, indices))
    if isinstance(command, SubmitWorkflow) and isinstance(base.job, WorkflowJob):
        own = [] if command.launch.argv else [*enumerate(base.job.tasks, 1)]
        for place, task in own:  # else one command is that of all of them
            launch = Launch(argv=tuple(command.commands[task.id]), cwd="")
            state.out.append(SaveLaunch(job=f"{number}.{place}", launch=launch))
    base = replace(base, id=number, job=replace(base.job, id=number), needs=needs[members[0]])
    if is_long:
        arrays.begin(state, base, indices, now)
    for index in () if is_long else members:
        record = base
        if index is not None:
            record = replace(arrays.member(base, number, index), needs=needs[index])
        state.put(record)
        state.emit(now, EventKind.JOB_SUBMITTED, record.id, user=event.user, name=record.name)
        if record.state is JobState.PENDING:
            state.rounds.job_arrived(state.pending.jobs, state.pending.procs)
    warnings = [f"job {number}: {base.sources[REPAIRED]}"] if REPAIRED in base.sources else []
    if unbounded := admission.unbounded_memory(state, base.job):
        warnings.append(unbounded)
    if unmailed := _unmailed(state, event, command):
        warnings.append(unmailed)
    jobs = command.ids(number)
    return Done(body={"job": number, "jobs": jobs, "again": False, "warnings": warnings})


def _unmailed(state: State, event: Requested, command: Submit) -> str:
    """Warning that mail is not sent which is asked for; empty: it is, or none is."""
    if command.mail_type and not state.settings.notify.user_mail:
        return NO_MAIL
    named = (command.mail_user or event.user).split(",") if command.mail_type else []
    odd = next((each for each in named if not is_address(each)), None)
    return "" if odd is None else f"no mail is sent to {odd!r}, which is no address"


def numbered(state: State, user: str, token: str, launch: Launch) -> str:
    """The next number, kept for the job that this token makes and what that executes."""
    state.last.job += 1
    number = state.tokens[user, token] = str(state.last.job)
    state.out.append(SaveMeta(key="last_job", value=number))
    state.out.append(SaveToken(user=user, token=token, job=number))
    state.out.append(SaveLaunch(job=number, launch=launch))
    return number


def _launch(command: Submit, indices: Indices) -> Launch:
    """The command to save, with variables that tell the members of an array its bounds."""
    if not indices:
        return command.launch
    low, high, step = indices.bounds
    bounds = {"COUNT": len(indices), "MIN": low, "MAX": high, "STEP": step}
    told = {f"COALLOC_ARRAY_TASK_{name}": str(value) for name, value in bounds.items()}
    return replace(command.launch, env={**command.launch.env, **told})


def admitted(state: State, event: Requested, command: Submit, now: float) -> JobRecord:
    """The record of a job, of an array the first member's; raises where it may not be queued."""
    if why := state.sharing.tree.refusal(command.batch.account, event.user):
        raise RequestError("not_allowed", f"account: {why}")
    job, sources = submitted_job(state, event.user, command, now)
    record = JobRecord(
        **{**fields_of(command, SubmitOptions), "name": command.name or _program(command)},
        id="new",
        job=job,
        user=event.user,
        uid=event.uid,
        gid=event.gid,
        command=_program(command),
        submitted=now,
        clock_before_s=state.clock_set_s,
        sources=sources,
        state=JobState.HELD if command.hold else JobState.PENDING,
    )
    project = state.sharing.tree.project(command.batch.account, event.user)
    lacking = admission.never_fits(state, job, owner_of(record)) or limits.never_fits(
        state, project, event.user, job
    )
    if lacking:
        if not command.hold_infeasible:
            raise RequestError("infeasible", lacking)
        record = replace(record, state=JobState.HELD, reason="infeasible", detail=lacking)
    if why := deadlines.impossible(state, record, now):
        raise RequestError("bad_request", why)
    return record


def _program(command: Submit) -> str:
    return program_of(command.launch.argv) or command.name


def submitted_job(
    state: State, user: str, command: Submit, now: float
) -> tuple[Job, Mapping[str, str]]:
    """The job of a submit as planned, and where its figures came from; raises `InputError`."""
    name = _program(command)
    program = UserProgram(
        user=user,
        command=name,
        name=command.name or name,
        launcher=command.launch.argv[0].rpartition("/")[2] if command.launch.argv else "",
    )
    job, sources = planned_job(state, command.job, program, now)
    admission.check(command, job, state.settings.daemon.max_tasks)
    if command.once and isinstance(job, RigidJob | MoldableJob):
        job = replace(job, one_cluster=True)
    check_options(command.batch)
    return job, sources


def planned_job(
    state: State, asked: Mapping[str, Any], program: UserProgram, now: float
) -> tuple[Job, Mapping[str, str]]:
    """A job with what its user left out, and where its figures came from; raises as above."""
    for key in ("id", "submitted", "passed_over", "held", "after", "priority"):
        if key in asked:
            raise InputError(f"job.{key}", "is set by the daemon")
    keys = program.history_keys
    fields, sources = completed(
        asked,
        program,
        state.settings.jobs,
        history=best_known(state.learning.history, keys),
        runs=best_known(state.learning.runs, keys),
    )
    body: dict[str, Any] = {**fields, "id": "new"}
    for cluster in body.get("clusters") or ():
        if cluster not in state.clusters or not state.clusters[cluster].configured:
            raise InputError("job.clusters", f"there is no cluster {cluster!r}")
        if why := state.clusters[cluster].closed_to(program.user):
            raise InputError("job.clusters", f"{cluster} {why}")
    job, warnings = read_job(body, "job", now)
    if warnings:
        repairs = "; ".join(warnings).removeprefix("job new: ")
        sources = {**sources, REPAIRED: repairs}
    if job.earliest < now:
        job = replace(job, earliest=now)
    return job, sources


def _check_number(state: State, event: Requested, command: Submit) -> None:
    limit, mine = state.settings.daemon.max_jobs_per_user, state.pending.entries[event.user]
    if 0 < limit <= mine:
        raise RequestError("too_many", f"{event.user} has {mine} waiting jobs, at most {limit}")
    project = state.sharing.tree.project(command.batch.account, event.user)
    if why := limits.waiting_refusal(state, project, event.user):
        raise RequestError("too_many", why)


def _own(state: State, event: Requested, job: str, now: float) -> JobRecord:
    record = arrays.found(state, job)
    if record is None:
        raise RequestError("not_found", f"there is no job {job}")
    if record.user != event.user and not event.operator:
        raise RequestError("not_allowed", f"job {job} belongs to {record.user}")
    return arrays.reached(state, job, now) or record


def chosen_jobs(state: State, event: Requested, job: str, now: float) -> list[JobRecord]:
    """The job that a caller may change, or all jobs of the array of that number."""
    number, task = flow_of(job)
    flow = state.composites.get(number)
    if flow is not None:
        owner = _own(state, event, number, now)
        if not isinstance(flow, WorkflowState):
            if job not in state.jobs:
                raise RequestError("not_found", f"job {number} has no piece {task}")
            return [state.jobs[job]]
        place = named(owner.job, task)
        if place is None:
            raise RequestError("not_found", f"workflow {number} has no task {task}")
        return [workflows.task_record(state, flow, place[1])]
    # An array is one user's; what is neither a job nor an array is not there.
    members = [] if "_" in job or job in state.jobs else dependencies.members_of(state, job)
    records = [_own(state, event, name, now) for name in members or [job]]
    return [r for r in records if r.rest is None or r.rest.left] or records


def cancel(state: State, event: Requested, command: Cancel, now: float) -> CommandAnswer:
    """End a job: at once if it waits, else through its executors."""
    if len(command.reason) > LONGEST_REASON or not command.reason.isprintable():
        message = f"reason: is not one line of at most {LONGEST_REASON} characters"
        raise RequestError("bad_request", message)
    chosen = chosen_jobs(state, event, command.job, now)
    living = [record for record in chosen if not record.is_ended]
    if not living:
        message = f"job {command.job} has ended already ({chosen[0].state})"
        raise RequestError("wrong_state", message)
    by = Cancellation(user=event.user, reason=command.reason)
    for record in living:
        if record.id in state.composites:
            workflows.cancel(state, record, by, now)
        elif record.flow in state.composites:
            workflows.cancel_task(state, record, by, now)
        elif record.is_waiting:
            end_waiting(state, record, now, JobState.CANCELLED, by.words)
        elif record.state is JobState.PREPARING:
            abort_parts(state, record, by.words)
            end_waiting(state, record, now, JobState.CANCELLED, by.words)
        elif not record.cancelled_by:
            begin_cancelling(state, record, by, now)
            abort_parts(state, record, by.words)
    return Done(body={"jobs": [record.shown_id for record in living]})


def release(state: State, event: Requested, command: Release, now: float) -> CommandAnswer:
    """Let held jobs be planned."""
    answer = switch(state, event, command.job, now, JobState.PENDING)
    state.rounds.job_arrived(state.pending.jobs, state.pending.procs)
    if command.job in state.composites:
        workflows.settle(state, state.composites[command.job], now)
        state.rounds.want("released")
    return answer


def set_priority(state: State, event: Requested, command: SetPriority, now: float) -> CommandAnswer:
    """Give waiting jobs another place among the others."""
    chosen = chosen_jobs(state, event, command.job, now)
    if not abs(command.priority) <= MOST_PRIORITY:
        what = f"priority: {command.priority:g} is outside -{MOST_PRIORITY:g}..{MOST_PRIORITY:g}"
        raise RequestError("bad_request", what)
    chosen = [taken_back(state, record) for record in chosen]
    waiting = [record for record in chosen if record.is_waiting or record.id in state.composites]
    if not waiting:
        message = f"job {command.job} is {chosen[0].state}, and waits no more"
        raise RequestError("wrong_state", message)
    for record in waiting:
        state.put(replace(record, priority=command.priority))
        state.emit(
            now, EventKind.JOB_PRIORITY_SET, record.id, user=event.user, priority=command.priority
        )
    state.rounds.want("priority_set")
    return Done(body={"jobs": [record.shown_id for record in waiting]})


def switch(state: State, event: Requested, job: str, now: float, new: JobState) -> CommandAnswer:
    """Keep waiting jobs from being planned, or let them be."""
    old, kind = SWITCHES[new]
    chosen = chosen_jobs(state, event, job, now)
    if any(record.flow for record in chosen):
        part, whole = ("piece", "job") if chosen[0].chunks else ("task", "workflow")
        message = f"a {part} is neither held nor released by itself; its {whole} is"
        raise RequestError("wrong_state", message)
    if new is JobState.HELD:
        chosen = [taken_back(state, record) for record in chosen]
    fitting = [record for record in chosen if _is_in(record, old)]
    if not fitting and not any(record.state is new for record in chosen):
        message = f"job {job} is {chosen[0].state}, not {old}"
        raise RequestError("wrong_state", message)
    for record in fitting:
        begun = new is JobState.PENDING and record.started is not None
        to = JobState.RUNNING if begun else new
        state.put(replace(record, state=to, reason="", detail="", barred={}))
        state.emit(now, kind, record.id, user=event.user)
    return Done(body={"jobs": [record.shown_id for record in chosen]})


def _is_in(record: JobRecord, state: JobState) -> bool:
    """Test for a state; a job with tasks or pieces counts as held also while it runs."""
    divided = isinstance(record.job, WorkflowJob | DivisibleJob)
    running = divided and record.state is JobState.RUNNING
    return record.state is state or (running and state is JobState.PENDING)
