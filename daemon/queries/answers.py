"""Questions of clients, by type: each answers from memory or the store and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct

from coalloc.core.base.accuracy import run_time_accuracy, start_accuracy
from coalloc.core.base.composites import flow_of, named
from coalloc.core.base.events import Caller
from coalloc.core.base.records import JobRecord
from coalloc.core.base.requests import RequestError
from coalloc.core.base.start_intervals import MISSES
from coalloc.core.base.state import State, whole_id
from coalloc.core.jobs import arrays
from coalloc.core.jobs.workflows import first_record
from coalloc.core.rounds import snapshots
from coalloc.daemon.queries import accounts, job_views, workflow_views
from coalloc.daemon.store.records_json import read_launch, read_object, read_record
from coalloc.daemon.store.sqlite import Store
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.formats.snapshot_json import write_snapshot
from coalloc.model.jobs import DivisibleJob, WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.values import fields_of, replace
from coalloc.wire.answers import (
    Answer,
    Event,
    EventsAnswer,
    Health,
    LastRound,
    NewestPlan,
    NodesAnswer,
    PlanAnswer,
    QueueAnswer,
    RuleCostsRow,
    ServiceStatus,
    ShowAnswer,
    SnapshotAnswer,
)
from coalloc.wire.frames import PROTOCOL
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
    health: Callable[[], Health]
    costs: Callable[[], RuleCostsRow | None] = lambda: None
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


def _queue(sources: Sources, asked: QueueQuestion, now: float) -> QueueAnswer:
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
    return QueueAnswer(jobs=rows, more=more, time=now)


def _show(sources: Sources, asked: OfJob, now: float) -> ShowAnswer:
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
    return ShowAnswer(job=replace(details, launch=launch, events=events), time=now)


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


def _nodes(sources: Sources, asked: Plain, now: float) -> NodesAnswer:
    state = sources.state
    return NodesAnswer(
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


def _plan(sources: Sources, asked: Plain, now: float) -> PlanAnswer:
    state, plan = sources.state, sources.state.schedule.plan
    if plan is not None:
        body = write_plan(plan)
        newest = NewestPlan(round=state.last.round, time=state.schedule.time, plan=body)
    elif (row := sources.store.plan()) is not None:  # of an earlier run of the daemon
        newest = NewestPlan(round=row.round, time=row.time, plan=read_object(row.body))
    else:
        newest = NewestPlan()
    return PlanAnswer(
        plan=newest,
        node_clusters=dict(state.node_cluster()),
        edges={} if plan is None else workflow_views.edges_of(plan, state),
        running=job_views.running_rows(state, now),
        proc_gbps=job_views.proc_gbps(state),
        rules=tuple(snapshots.rules_of(state)),
        rule_costs=sources.costs(),
        time=now,
    )


def _events(sources: Sources, asked: EventsQuestion, now: float) -> EventsAnswer:
    limit = min(asked.limit, EVENTS_AT_ONCE)
    rows = sources.store.events(asked.since, limit, asked.job or None)
    events = tuple(
        Event(seq=e.seq, time=e.time, kind=e.kind, job=e.job, fields=read_object(e.body))
        for e in rows
    )
    return EventsAnswer(events=events, last=sources.state.last.event, time=now)


def _snapshot(sources: Sources, asked: Plain, now: float) -> SnapshotAnswer:
    return SnapshotAnswer(snapshot=write_snapshot(snapshots.snapshot(sources.state, now)))


def _rules(sources: Sources, asked: Plain, now: float) -> RulesAnswer:
    lifted = snapshots.without_each_rule(sources.state, now).items()
    without = write_snapshot(snapshots.without_rules(sources.state, now))
    return RulesAnswer(snapshot=without, lifted={rule: write_snapshot(v) for rule, v in lifted})


def _status(sources: Sources, asked: Plain, now: float) -> ServiceStatus:
    state = sources.state
    flows = sum(state.jobs[flow].is_waiting for flow in state.composites)
    return ServiceStatus(
        time=now,
        protocol=PROTOCOL,
        user=sources.caller.user,
        epoch=state.epoch,
        rounds=state.last.round,
        paused=state.rounds.paused,
        waiting=flows + len(state.waiting) - len(state.composites) + state.pending.behind,
        placed=len(state.placed),
        clusters={name: c.connected for name, c in state.clusters.items()},
        **fields_of(sources.health(), Health),
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


def _last_round(state: State, plan: Plan) -> LastRound:
    elapsed_s = plan.stats.get("elapsed_s")
    return LastRound(
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


ANSWERS: Mapping[str, Callable[[Sources, Any, float], Answer]] = {
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


def answered(sources: Sources, body: Mapping[str, Any], now: float) -> Answer:
    """The answer to a question of `ANSWERS`; `WireError`: a field is missing or of another kind."""
    kind = body["type"]
    return ANSWERS[kind](sources, read_question(body, QUESTIONS[kind]), now)
