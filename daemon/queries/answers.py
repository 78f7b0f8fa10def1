"""Questions of clients, by type: each answers from memory or the store and changes nothing."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct

from coalloc.core.base.accuracy import run_time_accuracy, start_accuracy
from coalloc.core.base.composites import flow_of, named
from coalloc.core.base.events import Caller, Requested
from coalloc.core.base.records import JobRecord
from coalloc.core.base.requests import RequestError, Submit
from coalloc.core.base.start_intervals import FIRST, MISSES, Calibration
from coalloc.core.base.state import State, whole_id
from coalloc.core.commands.queue import admitted
from coalloc.core.jobs import arrays
from coalloc.core.jobs.deadlines import DEADLINE, misses
from coalloc.core.jobs.workflows import first_record
from coalloc.core.rounds import snapshots
from coalloc.core.starts.placements import NOW_S
from coalloc.daemon.queries import accounts, job_views, workflow_views
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.daemon.store.records_json import read_launch, read_object, read_record
from coalloc.daemon.store.sqlite import Store
from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.formats.snapshot_json import write_snapshot
from coalloc.model.jobs import DivisibleJob, WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import fields_of, replace
from coalloc.runtime.texts import instant
from coalloc.wire import answers
from coalloc.wire.codec import decode_command
from coalloc.wire.frames import PROTOCOL, WireError
from coalloc.wire.job_rows import JobDetails
from coalloc.wire.questions import (
    QUESTIONS,
    EventsQuestion,
    OfJob,
    Plain,
    PriorityQuestion,
    QueueQuestion,
    read_question,
)
from coalloc.wire.share_answers import AccuracyAnswer, PriorityAnswer, RulesAnswer

EVENTS_AT_ONCE = 10_000
ROWS_AT_ONCE = 2_000
"""Rows of one answer to ``queue``: to write them keeps everybody waiting for some 30 ms."""
JOB_ID = re.compile(r"\d{1,18}(_(\d{1,18}|\[[-0-9,:%]+\]))?")


class Sources(Struct, frozen=True, kw_only=True):
    """Sources of answers."""

    state: State
    store: Store
    caller: Caller
    health: Callable[[], answers.Health]
    costs: Callable[[], answers.RuleCostsRow | None] = lambda: None
    """Of the site's rules, in the newest round for which they were computed."""


def find_job(sources: Sources, job: str) -> JobRecord:
    """A job or a long array from memory, or an old one from the store."""
    job = job.partition("[")[0]
    record = arrays.found(sources.state, job) or sources.state.jobs.get(whole_id(job))
    if record is None and "." in job:
        return _find_task(sources, *flow_of(job))
    if record is None:
        row = sources.store.job(job) or sources.store.job(whole_id(job))
        if row is None:
            raise RequestError("not_found", f"there is no job {job}")
        record = read_record(row.body)
    return record


def _find_task(sources: Sources, number: str, text: str) -> JobRecord:
    """A task by its number or name, or a piece by its number; a task never placed has no nodes."""
    workflow = find_job(sources, number)
    if isinstance(workflow.job, DivisibleJob):
        row = sources.store.job(f"{number}.{text}")
        if row is None:
            raise RequestError("not_found", f"job {number} has no piece {text}")
        return read_record(row.body)
    found = named(workflow.job, text)
    if found is None:
        raise RequestError("not_found", f"job {number} has no task {text}")
    place, name = found
    task = f"{number}.{place}"
    if task in sources.state.jobs:
        return sources.state.jobs[task]
    row = sources.store.job(task)
    if row is not None:
        return read_record(row.body)
    record = first_record(workflow, name, place)
    return workflow_views.not_run(record, workflow) if workflow.is_ended else record


def _parts_of(sources: Sources, whole: JobRecord) -> list[JobRecord]:
    """Tasks that were ever placed, or pieces, from memory or the store."""
    rows = sources.store.tasks(whole.id)
    return [sources.state.jobs.get(row.id) or read_record(row.body) for row in rows]


def array_of(sources: Sources, job: str) -> list[JobRecord]:
    """The job, or the members of the array of that number."""
    members = [r for name, r in sources.state.jobs.items() if name.startswith(f"{job}_")]
    return members or [find_job(sources, job)]


def whole_of(sources: Sources, job: str) -> list[JobRecord]:
    """The job, or the array: a long one as its one record, which ends with its last member."""
    whole = sources.state.jobs.get(whole_id(job))
    return array_of(sources, job) if whole is None else [whole]


def explained_job(sources: Sources, job: str) -> JobRecord:
    """The job, of a long array the first member that waits."""
    record = find_job(sources, job)
    members = () if record.rest is None else array_of(sources, record.array)
    return next((each for each in members if each.is_waiting and each.rest is None), record)


def _queue(sources: Sources, asked: QueueQuestion, now: float) -> answers.QueueAnswer:
    if asked.after and not JOB_ID.fullmatch(asked.after):
        raise RequestError("bad_request", "after: is no job's id")
    rows, more = job_views.queue_page(
        sources.state,
        everything=asked.all,
        user=asked.user,
        now=now,
        after=asked.after.partition("[")[0],
        limit=min(asked.limit, ROWS_AT_ONCE),
    )
    return answers.QueueAnswer(jobs=rows, more=more, time=now)


def _show(sources: Sources, asked: OfJob, now: float) -> answers.ShowAnswer:
    record = find_job(sources, asked.job)
    caller = sources.caller
    # Command, folder and arguments of a job are its owner's business.
    if record.user != caller.user and not caller.operator:
        message = f"job {record.id} belongs to {record.user}; the queue has what others may see"
        raise RequestError("not_allowed", message)
    details = job_views.job_details(record, sources.state, now)
    text = sources.store.launch(record.id.partition("_")[0])
    if text is None and record.flow:
        text = sources.store.launch(record.flow)
    launch = replace(read_launch(text), env={}) if text else details.launch
    events = tuple(
        {"seq": e.seq, "time": e.time, "kind": e.kind, **read_object(e.body)}
        for e in sources.store.events(0, EVENTS_AT_ONCE, record.id)
    )
    details = _with_members(sources, record, details)
    return answers.ShowAnswer(job=replace(details, launch=launch, events=events), time=now)


def _with_members(sources: Sources, record: JobRecord, details: JobDetails) -> JobDetails:
    if isinstance(record.job, WorkflowJob):
        known = {task.task: task for task in _parts_of(sources, record)}
        tasks = workflow_views.task_rows(record, known, sources.state)
        details = replace(details, tasks=tasks)
        if record.is_ended:
            tally = workflow_views.tally((task.state for task in tasks), len(tasks))
            details = replace(details, progress=tally)
    elif isinstance(record.job, DivisibleJob):
        pieces = _parts_of(sources, record)
        details = replace(details, pieces=workflow_views.piece_rows(pieces))
        if record.is_ended:
            tally = workflow_views.chunk_tally(pieces, record.job.chunks)
            details = replace(details, progress=tally)
    return details


def _nodes(sources: Sources, asked: Plain, now: float) -> answers.NodesAnswer:
    state = sources.state
    return answers.NodesAnswer(
        clusters=tuple(
            row
            for row in job_views.cluster_rows(state, now)
            if sources.caller.operator or row.owner in {"", sources.caller.user}
        ),
        reservations=job_views.reservation_rows(state),
        time=now,
    )


def _priority(sources: Sources, asked: PriorityQuestion, now: float) -> PriorityAnswer:
    named = {record.id for record in array_of(sources, asked.job)} if asked.job else None
    return accounts.priority_rows(sources.state, named, now)


def _plan(sources: Sources, asked: Plain, now: float) -> answers.PlanAnswer:
    state, plan = sources.state, sources.state.schedule.plan
    if plan is not None:
        body = write_plan(plan)
        newest = answers.NewestPlan(round=state.last.round, time=state.schedule.time, plan=body)
    elif (row := sources.store.plan()) is not None:  # of an earlier run of the daemon
        newest = answers.NewestPlan(round=row.round, time=row.time, plan=read_object(row.body))
    else:
        newest = answers.NewestPlan()
    return answers.PlanAnswer(
        plan=newest,
        node_clusters=dict(state.node_cluster()),
        edges={} if plan is None else workflow_views.edges_of(plan, state),
        running=job_views.running_rows(state, now),
        proc_gbps=job_views.proc_gbps(state),
        rules=tuple(snapshots.rules_of(state)),
        rule_costs=sources.costs(),
        time=now,
    )


def _events(sources: Sources, asked: EventsQuestion, now: float) -> answers.EventsAnswer:
    limit = min(asked.limit, EVENTS_AT_ONCE)
    rows = sources.store.events(asked.since, limit, asked.job or None)
    events = tuple(
        answers.Event(seq=e.seq, time=e.time, kind=e.kind, job=e.job, fields=read_object(e.body))
        for e in rows
    )
    return answers.EventsAnswer(events=events, last=sources.state.last.event, time=now)


def _snapshot(sources: Sources, asked: Plain, now: float) -> answers.SnapshotAnswer:
    return answers.SnapshotAnswer(snapshot=write_snapshot(snapshots.snapshot(sources.state, now)))


def _rules(sources: Sources, asked: Plain, now: float) -> RulesAnswer:
    lifted = snapshots.without_each_rule(sources.state, now).items()
    without = write_snapshot(snapshots.without_rules(sources.state, now))
    return RulesAnswer(snapshot=without, lifted={rule: write_snapshot(v) for rule, v in lifted})


def _status(sources: Sources, asked: Plain, now: float) -> answers.ServiceStatus:
    state = sources.state
    flows = sum(state.jobs[flow].is_waiting for flow in state.composites)
    return answers.ServiceStatus(
        time=now,
        protocol=PROTOCOL,
        user=sources.caller.user,
        epoch=state.epoch,
        rounds=state.last.round,
        paused=state.rounds.paused,
        waiting=flows + len(state.waiting) - len(state.composites) + state.pending.behind,
        placed=len(state.placed),
        clusters={name: c.connected for name, c in state.clusters.items()},
        **fields_of(sources.health(), answers.Health),
        last_round=None if state.schedule.plan is None else _last_round(state, state.schedule.plan),
        read_age_s={
            name: now - c.read_at for name, c in state.clusters.items() if c.reading is not None
        },
        notices=tuple(notices(state, now)),
    )


def notices(state: State, now: float) -> Iterator[str]:
    """Policies that are not asked since they were too slow, and users who may submit no more."""
    for policy, overrun in state.rounds.overruns.items():
        if now < overrun.until:
            yield (
                f"{policy} did not plan {overrun.queued} jobs in time: others of the chain plan "
                f"queues as long for another {overrun.until - now:.0f} s"
            )
    limit = state.settings.daemon.max_jobs_per_user
    for user, count in state.pending.entries.items():
        if 0 < limit <= count:
            yield f"{user} has {count} waiting jobs, as many as one user may (max_jobs_per_user)"


def _last_round(state: State, plan: Plan) -> answers.LastRound:
    elapsed_s = plan.stats.get("elapsed_s")
    return answers.LastRound(
        round=state.last.round,
        time=state.schedule.time,
        policy=plan.policy,
        status=str(plan.status),
        objective=plan.objective.name,
        value=plan.objective.value,
        bound=plan.objective.bound,
        elapsed_s=elapsed_s if isinstance(elapsed_s, float) else None,
    )


def _estimates(sources: Sources, asked: Plain, now: float) -> AccuracyAnswer:
    """Of the newest starts and runs that are remembered."""
    learning = sources.state.learning
    return AccuracyAnswer(
        wanted=1.0 - MISSES,
        starts=start_accuracy(learning.calibration.newest()),
        run_times=run_time_accuracy(chain.from_iterable(learning.ratios.values())),
        time=now,
    )


ANSWERS: Mapping[str, Callable[[Sources, Any, float], answers.Answer]] = {
    "queue": _queue,
    "show": _show,
    "priority": _priority,
    "nodes": _nodes,
    "plan": _plan,
    "events": _events,
    "snapshot": _snapshot,
    "rules": _rules,
    "status": _status,
    "account": lambda sources, asked, now: accounts.accounts(sources.store, asked, now),
    "usage": lambda sources, asked, now: accounts.usage(sources.store, asked, now),
    "estimates": _estimates,
}
"""Those questions that are answered at once."""


def answered(sources: Sources, body: Mapping[str, Any], now: float) -> answers.Answer:
    """The answer to a question of `ANSWERS`; `WireError`: a field is missing or of another kind."""
    kind = body["type"]
    return ANSWERS[kind](sources, read_question(body, QUESTIONS[kind]), now)


async def estimated(
    planner: RoundPlanner, sources: Sources, body: Mapping[str, Any], policy: str, now: float
) -> answers.Estimate:
    """Start, end and nodes of the job of a submit, by a whole solve; nothing is queued.

    Refused where the submit itself would be, and while no solver is free.
    """
    snapshot, record = what_if(sources, body, now)
    try:
        notes = sources.state.learning.notes.get(policy)
        plan = await planner.solve(snapshot, planner.request(policy, notes=notes))
    except Exception as error:
        raise RequestError("busy", f"no estimate: {error}") from error
    estimate = estimate_of(plan, record.id, now, sources.state.learning.calibration, snapshot)
    start, end = estimate.start_estimate, estimate.end_estimate
    if start is None or end is None or not misses(record, start, end - start):
        return estimate
    detail = f"the plan starts it at {instant(start)}, too late for its deadline"
    return answers.Estimate(reason=DEADLINE, detail=detail, time=estimate.time)


def what_if(sources: Sources, body: Mapping[str, Any], now: float) -> tuple[Snapshot, JobRecord]:
    """The snapshot of a round with the job of a submit in it, and the job's record there."""
    try:
        job_fields = body.get("job")
        is_workflow = isinstance(job_fields, Mapping) and job_fields.get("kind") == "workflow"
        kind = "submit_workflow" if is_workflow else "submit"
        command = decode_command({**body, "type": kind, "token": uuid.uuid4().hex})
        assert isinstance(command, Submit)
        # What it depends on, and that it is held, says nothing of where it would fit.
        command = replace(command, needs=(), hold=False, hold_infeasible=False)
        asked = Requested(origin=None, command=command, **fields_of(sources.caller, Caller))
        record = admitted(sources.state, asked, command, now)
    except (InputError, WireError) as error:
        raise RequestError("bad_request", str(error)) from error
    state = sources.state
    without = {*state.findings.aside, *state.findings.limited}
    return snapshots.snapshot(state, now, without=without, also=record), record


def estimate_of(
    plan: Plan, job: str, now: float, calibration: Calibration, snapshot: Snapshot
) -> answers.Estimate:
    """Start and end of one job in a plan; a start that is not at once with its interval."""
    mine = [p for p in plan.placements if p.job == job]
    placed = min(mine, key=lambda p: p.start, default=None)
    deferred = next((d for d in plan.deferred if d.job == job), None)
    interval = None
    if placed is not None and placed.task is None and placed.chunks is None:
        begin = max(now, next(one.earliest for one in snapshot.queue if one.id == job))
        if placed.start > begin + NOW_S:
            interval = calibration.interval(placed.start, now, FIRST, begin)
    early, late = interval or (None, None)
    return answers.Estimate(
        start_estimate=None if placed is None else placed.start,
        start_early=early,
        start_late=late,
        end_estimate=max((p.end for p in mine), default=None),
        nodes={} if placed is None else dict(placed.nodes),
        reason="" if deferred is None else str(deferred.reason),
        detail="" if deferred is None else deferred.detail,
        time=now,
    )
