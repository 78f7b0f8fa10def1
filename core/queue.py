"""Submit, cancel, hold, release: what users do to jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coalloc.core import admission, workflows
from coalloc.core.effects import Reply, SaveLaunch, SaveMeta, SaveToken
from coalloc.core.ending import abort_parts, cannot_be_met, end_waiting
from coalloc.core.estimates import completed, history_key
from coalloc.core.events import Graph, Requested
from coalloc.core.flows import Flow, are_in_order, flow_of, named
from coalloc.core.records import JobRecord, JobState, Launch
from coalloc.core.requests import (
    Answer,
    Cancel,
    Done,
    Hold,
    Refused,
    Release,
    Submit,
    SubmitWorkflow,
)
from coalloc.core.state import State
from coalloc.model.errors import InputError
from coalloc.model.job_json import check_graph, read_job
from coalloc.model.jobs import DivisibleJob, Job, WorkflowJob

NEEDS = ("afterok", "afterany", "afternotok")
REPAIRED = "repaired"
"""Among the sources: what was repaired of the speed-up a user gave."""


def answered(state: State, event: Requested, answer: Answer) -> None:
    """Reply to the client, after the commit."""
    state.out.append(Reply(origin=event.origin, answer=answer))


def submit(state: State, event: Requested, command: Submit, now: float) -> None:
    """Queue a job, or say why not; a known token answers with the job it made."""
    known = state.tokens.get((event.user, command.token))
    if known is not None:
        ids = [known] if not command.array else [f"{known}_{i}" for i in command.array]
        answered(state, event, Done(body={"job": known, "jobs": ids, "again": True}))
        return
    refusal = _too_many(state, event, command)
    needs = met_needs(state, command.needs)
    if refusal is None and isinstance(needs, Refused):
        refusal = needs
    if refusal is None:
        try:
            job, sources = planned_job(state, event.user, command, now, event.graph)
        except InputError as error:
            refusal = Refused(code="bad_request", message=str(error))
    if refusal is not None:
        answered(state, event, refusal)
        return
    lacking = admission.never_fits(state, job)
    hold = command.hold
    if lacking and not command.hold_infeasible:
        answered(state, event, Refused(code="infeasible", message=lacking))
        return
    if lacking:
        hold = True
    state.last_job += 1
    number = str(state.last_job)
    ids = [f"{number}_{i}" for i in command.array] or [number]
    state.out.append(SaveMeta(key="last_job", value=number))
    state.out.append(SaveToken(user=event.user, token=command.token, job=number))
    state.tokens[event.user, command.token] = number
    state.out.append(SaveLaunch(job=number, launch=command.launch))
    if isinstance(command, SubmitWorkflow) and isinstance(job, WorkflowJob):
        _save_commands(state, number, command, job)
    base = JobRecord(
        id=number,
        job=job,
        name=command.name or _command_name(command),
        user=event.user,
        uid=event.uid,
        gid=event.gid,
        command=_command_name(command),
        submitted=now,
        sources=sources,
        needs=needs if isinstance(needs, tuple) else (),
        state=JobState.HELD if hold else JobState.PENDING,
        reason="infeasible" if lacking else "",
        detail=lacking,
        retries=command.retries,
        keep_going=command.keep_going,
    )
    for job_id, index in zip(ids, command.array or (None,), strict=True):
        record = replace(base, id=job_id, job=replace(job, id=job_id), array_index=index)
        state.put(record)
        state.record(now, "job_submitted", job_id, user=event.user, name=record.name)
        if not hold:
            state.rounds.job_arrived(state.pending_jobs, state.pending_procs)
    warnings = [f"job {number}: {sources[REPAIRED]}"] if REPAIRED in sources else []
    body = {"job": number, "jobs": ids, "again": False, "warnings": warnings}
    answered(state, event, Done(body=body))


def _save_commands(state: State, number: str, command: SubmitWorkflow, job: WorkflowJob) -> None:
    """Keep what each task runs, where that is not one command for all of them."""
    if command.launch.argv:
        return
    for place, task in enumerate(job.tasks, 1):
        launch = Launch(argv=tuple(command.commands[task.id]), cwd="")
        state.out.append(SaveLaunch(job=f"{number}.{place}", launch=launch))


def _command_name(command: Submit) -> str:
    return command.launch.argv[0].rpartition("/")[2] if command.launch.argv else command.name


def planned_job(
    state: State, user: str, command: Submit, now: float, graph: Graph | None = None
) -> tuple[Job, Mapping[str, str]]:
    """The job as the planner will see it, and where its figures came from.

    Parameters
    ----------
    graph : Graph, optional
        Tasks and edges of `command.job`, read already.

    Raises
    ------
    InputError
    """
    name = _command_name(command)
    for key in ("id", "submitted", "passed_over", "held", "after"):
        if key in command.job:
            raise InputError(f"job.{key}", "is set by the daemon")
    fields, sources = completed(
        command.job,
        user=user,
        command=name,
        defaults=state.settings.defaults,
        history=state.history.get(history_key(user, name), ()),
        runs=state.runs.get(history_key(user, name), ()),
        fallback_base_time=state.settings.fallback_base_time,
    )
    body: dict[str, Any] = {**fields, "id": "new"}
    for cluster in body.get("clusters") or ():
        if cluster not in state.clusters or not state.clusters[cluster].configured:
            raise InputError("job.clusters", f"there is no cluster {cluster!r}")
    job, warnings = _read(body, graph, now)
    if warnings:
        sources[REPAIRED] = "; ".join(warnings).removeprefix("job new: ")
    admission.check(command, job, state.settings.max_tasks)
    if job.earliest < now:
        job = replace(job, earliest=now)
    return job, sources


def _read(body: dict[str, Any], graph: Graph | None, now: float) -> tuple[Job, list[str]]:
    """The job, and what was repaired of it.

    Raises
    ------
    InputError
    """
    if graph is None or "started" in body:
        return read_job(body, "job", now)
    job, warnings = read_job({**body, "tasks": body["tasks"][:1], "edges": ()}, "job", now)
    if not are_in_order(graph.tasks, graph.edges):
        check_graph(graph.tasks, graph.edges, "job")
    assert isinstance(job, WorkflowJob)
    return replace(job, tasks=graph.tasks, edges=graph.edges), warnings


def _too_many(state: State, event: Requested, command: Submit) -> Refused | None:
    if len(command.array) > state.settings.max_array:
        return Refused(
            code="too_many",
            message=f"array has {len(command.array)} jobs, at most {state.settings.max_array}",
        )
    if len(set(command.array)) != len(command.array) or any(i < 0 for i in command.array):
        return Refused(code="bad_request", message="array: indices must differ and not be negative")
    limit = state.settings.max_jobs_per_user
    if limit:
        waiting = (state.jobs[job] for job in state.waiting)
        mine = sum(record.user == event.user and record.is_waiting for record in waiting)
        if mine + max(1, len(command.array)) > limit:
            return Refused(
                code="too_many", message=f"{event.user} has {mine} waiting jobs, at most {limit}"
            )
    return None


def met_needs(
    state: State, needs: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...] | Refused:
    """Dependencies on jobs; one on an array's number is one on each of its members."""
    out: list[tuple[str, str]] = []
    for kind, job in needs:
        if kind not in NEEDS:
            choices = ", ".join(NEEDS)
            return Refused(
                code="bad_request", message=f"dependency: {kind!r} is not one of {choices}"
            )
        members = [job] if job in state.jobs else members_of(state, job)
        if not members:
            return Refused(code="not_found", message=f"dependency: there is no job {job}")
        for member in members:
            if why := cannot_be_met(kind, state.jobs[member]):
                return Refused(code="wrong_state", message=f"dependency: {why}")
            out.append((kind, member))
    return tuple(out)


def members_of(state: State, number: str) -> list[str]:
    """Ids of the jobs of the array of this number."""
    return [name for name in state.jobs if name.startswith(f"{number}_")]


def _own(state: State, event: Requested, job: str) -> JobRecord | Refused:
    record = state.jobs.get(job)
    if record is None:
        return Refused(code="not_found", message=f"there is no job {job}")
    if record.user != event.user and not event.operator:
        return Refused(code="not_allowed", message=f"job {job} belongs to {record.user}")
    return record


def _chosen(state: State, event: Requested, job: str) -> list[JobRecord] | Refused:
    """The job, or all jobs of the array of that number."""
    number, task = flow_of(job)
    flow = state.flows.get(number)
    if flow is not None:
        owner = _own(state, event, number)
        if isinstance(owner, Refused):
            return owner
        if not isinstance(flow, Flow):
            absent = Refused(code="not_found", message=f"job {number} has no piece {task}")
            return [state.jobs[job]] if job in state.jobs else absent
        place = named(owner.job, task)
        if place is None:
            return Refused(code="not_found", message=f"workflow {number} has no task {task}")
        return [workflows.task_record(state, flow, place[1])]
    if job in state.jobs or "_" in job:
        found = _own(state, event, job)
        return found if isinstance(found, Refused) else [found]
    members = [_own(state, event, name) for name in members_of(state, job)]
    records = [record for record in members if isinstance(record, JobRecord)]
    if records:
        return records
    return next(
        (r for r in members if isinstance(r, Refused)),
        Refused(code="not_found", message=f"there is no job {job}"),
    )


def cancel(state: State, event: Requested, command: Cancel, now: float) -> None:
    """End a job: at once if it waits, else through its executors."""
    chosen = _chosen(state, event, command.job)
    if isinstance(chosen, Refused):
        answered(state, event, chosen)
        return
    living = [record for record in chosen if not record.is_ended]
    if not living:
        message = f"job {command.job} has ended already ({chosen[0].state})"
        answered(state, event, Refused(code="wrong_state", message=message))
        return
    for record in living:
        if record.id in state.flows:
            workflows.cancel(state, record, event.user, now)
        elif record.flow in state.flows:
            workflows.cancel_task(state, record, event.user, now)
        elif record.is_waiting:
            end_waiting(state, record, now, JobState.CANCELLED, f"cancelled by {event.user}")
        elif record.state is JobState.PREPARING:
            abort_parts(state, record, f"cancelled by {event.user}")
            end_waiting(state, record, now, JobState.CANCELLED, f"cancelled by {event.user}")
        elif not record.cancelled_by:
            state.put(replace(record, cancelled_by=event.user))
            state.record(now, "job_cancelling", record.id, user=event.user)
            state.note("job_cancelling", job=record.id, user=event.user)
            abort_parts(state, record, f"cancelled by {event.user}")
    answered(state, event, Done(body={"jobs": [record.id for record in living]}))


def hold(state: State, event: Requested, command: Hold, now: float) -> None:
    """Keep waiting jobs from being planned."""
    _switch(state, event, command.job, now, JobState.PENDING, JobState.HELD, "job_held")


def release(state: State, event: Requested, command: Release, now: float) -> None:
    """Let held jobs be planned."""
    _switch(state, event, command.job, now, JobState.HELD, JobState.PENDING, "job_released")
    state.rounds.job_arrived(state.pending_jobs, state.pending_procs)
    if command.job in state.flows:
        state.rounds.want("released")


def _switch(
    state: State, event: Requested, job: str, now: float, old: JobState, new: JobState, kind: str
) -> None:
    chosen = _chosen(state, event, job)
    if isinstance(chosen, Refused):
        answered(state, event, chosen)
        return
    if any(record.flow for record in chosen):
        part, whole = ("piece", "job") if chosen[0].chunks else ("task", "workflow")
        message = f"a {part} is neither held nor released by itself; its {whole} is"
        answered(state, event, Refused(code="wrong_state", message=message))
        return
    fitting = [record for record in chosen if _is_in(record, old)]
    if not fitting and not any(record.state is new for record in chosen):
        message = f"job {job} is {chosen[0].state}, not {old}"
        answered(state, event, Refused(code="wrong_state", message=message))
        return
    for record in fitting:
        begun = new is JobState.PENDING and record.started is not None
        to = JobState.RUNNING if begun else new
        state.put(replace(record, state=to, reason="", detail=""))
        state.record(now, kind, record.id, user=event.user)
    answered(state, event, Done(body={"jobs": [record.id for record in chosen]}))


def _is_in(record: JobRecord, state: JobState) -> bool:
    """Test for a state; a job with tasks or pieces counts as held also while it runs."""
    divided = isinstance(record.job, WorkflowJob | DivisibleJob)
    running = divided and record.state is JobState.RUNNING
    return record.state is state or (running and state is JobState.PENDING)
