"""Changes of waiting jobs, with the checks of a submit, and of the time limits of placed ones.

These are changed by a command, or in a batch system. The executors carry a change out (`Limit`);
Slurm may refuse it, which a report says. What people change there is followed, and the other parts
are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalloc.core.base.events import Requested
from coalloc.core.base.messages import Limit
from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.core.base.requests import CommandAnswer, Done, RequestError, Update
from coalloc.core.base.state import State
from coalloc.core.commands import admission
from coalloc.core.commands.queue import chosen_jobs, planned_job
from coalloc.core.jobs import arrays, deadlines, dependencies
from coalloc.core.jobs.eligibility import owner_of
from coalloc.core.jobs.ends import taken_back
from coalloc.core.jobs.offers import Offers
from coalloc.core.learning import promises
from coalloc.core.learning.estimates import UserProgram
from coalloc.core.sharing import limits
from coalloc.model.errors import InputError
from coalloc.model.event_kinds import EventKind
from coalloc.model.formats.job_json import write_job
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.sites.batch_options import NAMES, BatchOptions, check_options
from coalloc.model.sites.parts import PART_ENDED, PartReport
from coalloc.model.values import replace

FIXED = frozenset({"kind", "tasks", "edges", "started", "work", "chunk_s", "one_cluster"})
"""What a job is, rather than what it asks for."""
_SET_BY_DAEMON = frozenset({"id", "submitted", "held", "after", "passed_over", "priority"})
_INSTEAD_OF = {"speedup": ("times",), "times": ("speedup",)}


def update(state: State, event: Requested, command: Update, now: float) -> CommandAnswer:
    """Change a waiting job, or those members of an array that wait, all of them or none."""
    arrays.reach_needed(state, command.needs or (), now, command.job)
    chosen = chosen_jobs(state, event, command.job, now)
    is_alone = command == Update(job=command.job, fields=command.fields)
    is_limit = is_alone and [*command.fields] == ["time_limit"]
    placed = [r for r in chosen if r.is_placed] if is_limit else []
    waiting = [r for r in chosen if r.is_waiting or (r.is_in_queues and r not in placed)]
    if not waiting and not placed:
        message = f"job {command.job} is {chosen[0].state}; only a waiting job can be changed"
        if chosen[0].is_placed:
            message += ", and of one that runs its time limit"
        raise RequestError("wrong_state", message)
    limit = command.fields.get("time_limit")
    for record in placed:
        if why := refusal(state, record, limit, operator=event.operator):
            raise RequestError("not_allowed", why)
    if command.throttle is not None:
        _check_throttle(chosen, command)
    changed = []
    offers: dict[float, Offers] = {}
    for record in waiting:
        record = record.unplaced() if record.is_in_queues else record
        changed.append(_changed(state, record, command, now, offers))
    needs = {record.id: record.needs for record in changed}
    for job in needs if command.needs is not None else ():
        if looped := dependencies.circle(state, job, needs):
            message = f"dependency: job {looped} waits for job {job}"
            raise RequestError("bad_request", message)
    changes = _in_words(command)
    if command.throttle is not None:
        for record in chosen:  # What runs counts, and may have to run again.
            if record.is_placed:
                state.put(replace(record, throttle=command.throttle))
    for record in changed:
        taken_back(state, state.jobs[record.id])
        state.put(record)
        state.findings.limited.pop(record.id, None)
        state.findings.outlook.pop(record.id, None)
        promises.withdraw(state, record.id)
        if state.round is not None:
            state.round.changed.add(record.id)
        state.tell(now, EventKind.JOB_UPDATED, record.id, user=event.user, changes=changes)
    for record in placed:
        ordered(state, record, float(limit or 0.0), now, event.user)
    state.rounds.job_arrived(state.pending.jobs, state.pending.procs)
    return Done(body={"jobs": [record.shown_id for record in (*changed, *placed)]})


def _check_throttle(chosen: list[JobRecord], command: Update) -> None:
    """Refuse a throttle for what is not an array, or only a member of one."""
    if (command.throttle or 0) < 0:
        message = f"throttle: {command.throttle} is below 0"
    elif not chosen[0].array:
        message = f"throttle: job {command.job} is no array"
    elif command.job != chosen[0].array:
        message = f"throttle: is one for the whole array; change job {chosen[0].array}"
    else:
        return
    raise RequestError("bad_request", message)


def _changed(
    state: State, record: JobRecord, command: Update, now: float, offers: dict[float, Offers]
) -> JobRecord:
    """The record with its changes; nothing is kept yet."""
    if why := _fixed(record):
        raise RequestError("wrong_state", why)
    name = command.name if command.name is not None else record.name
    needs = record.needs
    if command.needs is not None:  # none of them on itself
        index = record.array_index
        found = dependencies.resolved(
            state, command.needs, user=record.user, name=name, array=(index,)
        )
        needs = tuple((k, n) for k, n in found[index] if n != record.id)
    batch = _with_options(record.batch, command.batch)
    job, sources = record.job, record.sources
    if command.fields:
        job, sources = _planned(state, record, command.fields, now)
    admission.check_passed(batch, job, once=record.once)
    deadlines.check(command.finish_by or None)
    project = state.sharing.tree.project(batch.account, record.user)
    if why := state.sharing.tree.refusal(batch.account, record.user):
        raise RequestError("not_allowed", f"account: {why}")
    owner = owner_of(replace(record, batch=batch))
    lacking = admission.never_fits(state, job, owner) or limits.never_fits(
        state, project, record.user, job
    )
    if lacking:
        raise RequestError("infeasible", lacking)
    finish_by = record.finish_by
    if command.finish_by is not None:
        finish_by = command.finish_by or None
    is_timed_anew = command.finish_by is not None or bool(command.fields)
    timed = replace(record, job=job, finish_by=finish_by)
    if is_timed_anew and (why := deadlines.impossible(state, timed, now, offers)):
        raise RequestError("bad_request", why)
    was_infeasible = record.state is JobState.HELD and record.reason == "infeasible"
    return replace(
        record,
        job=job,
        sources=sources,
        name=name,
        needs=needs,
        batch=batch,
        throttle=record.throttle if command.throttle is None else command.throttle,
        finish_by=finish_by,
        state=JobState.PENDING if was_infeasible else record.state,
        reason="" if was_infeasible or record.state is JobState.PENDING else record.reason,
        detail="" if was_infeasible or record.state is JobState.PENDING else record.detail,
        barred={},
        behind="",
        late=(),
    )


def _fixed(record: JobRecord) -> str:
    """Reason why nothing of a waiting job can be changed; empty where it can."""
    if record.flow:
        return f"a {'piece' if record.chunks else 'task'} is not changed by itself"
    if record.foreign:
        return f"job {record.id} is {record.origin}'s own job {record.foreign}; change it there"
    if isinstance(record.job, WorkflowJob | DivisibleJob) and record.started is not None:
        return f"job {record.id} has begun; only a job that has not can be changed"
    return ""


def _planned(
    state: State, record: JobRecord, changes: Mapping[str, Any], now: float
) -> tuple[Job, Mapping[str, str]]:
    """The job with its changes, estimated again where the user named no run time."""
    for key in changes:
        if key in FIXED:
            raise InputError(f"job.{key}", "cannot be changed; submit another job")
    old = write_job(record.job)
    fields = {
        key: value
        for key, value in old.items()
        if key not in _SET_BY_DAEMON
        and (key not in record.sources or record.sources[key] == "user")
    }
    for key, value in changes.items():
        for other in _INSTEAD_OF.get(key, ()):
            fields.pop(other, None)
        is_shape = key == "shape" and isinstance(value, dict)
        fields[key] = {**fields.get(key, {}), **value} if is_shape else value
    fields = {key: value for key, value in fields.items() if value is not None}
    job, sources = planned_job(state, fields, UserProgram.of(record), now)
    earliest = job.earliest if "earliest" in changes else record.job.earliest
    return replace(job, id=record.id, submitted=record.job.submitted, earliest=earliest), sources


def _with_options(old: BatchOptions, changes: Mapping[str, str]) -> BatchOptions:
    for name in changes:
        if name not in NAMES or name == "passed":
            known = ", ".join(known for known in NAMES if known != "passed")
            raise InputError(f"batch.{name}", f"is not one of {known}")
    given: dict[str, Any] = dict(changes)
    new = replace(old, **given)
    check_options(new)
    return new


def _in_words(command: Update) -> str:
    """Changes in words, for the event and the log: ``time_limit=60 procs=2``."""
    out: dict[str, object] = {**command.fields, **command.batch}
    if command.name is not None:
        out["name"] = command.name
    if command.needs is not None:
        out["needs"] = ",".join(f"{kind}:{job}" for kind, job in command.needs)
    if command.throttle is not None:
        out["throttle"] = command.throttle or None
    if command.finish_by is not None:
        out["finish_by"] = command.finish_by or None
    return " ".join(f"{key}={_plain(value)}" for key, value in out.items())


def _plain(value: object) -> str:
    match value:
        case None | "" | [] | ():
            return "none"
        case list() | tuple():
            return ",".join(map(_plain, value))
        case float():
            return f"{value:g}"
        case _:
            return str(value)


BEGUN = frozenset({JobState.STARTING, JobState.RUNNING})
LONGEST_S = 10 * 365 * 86_400.0


def refusal(state: State, record: JobRecord, limit: object, *, operator: bool) -> str:
    """Reason why a placed job cannot be given this limit; empty where it can."""
    job, most = record.job, record.run_limit
    if record.flow or not isinstance(job, RigidJob | MoldableJob):
        return f"job {record.id} is {record.state}; its limit stays"
    if record.foreign:
        return f"job {record.id} is {record.origin}'s own job {record.foreign}; change it there"
    if record.pack:
        return f"job {record.id} was taken ahead with others of its array; its limit stays"
    if not isinstance(limit, int | float) or not 0.0 < limit <= LONGEST_S:
        return f"job {record.id} is {record.state}, and needs a time limit"
    if record.state in BEGUN and not operator and (most is None or limit > most):
        return f"job {record.id} is {record.state}; only an operator extends it"
    wanted = replace(job, time_limit=float(limit))
    return "" if operator else admission.never_fits(state, wanted, owner_of(record))


def ordered(state: State, record: JobRecord, limit: float, now: float, user: str) -> None:
    """Have every part of a job run no longer than this."""
    _tell(state, record, limit)
    changes = f"time_limit={limit:g}"
    state.tell(now, EventKind.JOB_UPDATED, record.id, user=user, changes=changes)
    state.put(_with(record, limit))


def followed(
    state: State, record: JobRecord, part: PartRecord, report: PartReport, now: float
) -> JobRecord:
    """The job with the limit that a part has by the will of others than the daemon."""
    limit = report.time_limit
    if limit == part.time_limit or not isinstance(record.job, RigidJob | MoldableJob):
        return record
    parts = tuple(replace(p, time_limit=limit) if p is part else p for p in record.parts)
    record = replace(record, parts=parts)
    if limit is not None and limit != record.job.time_limit:
        is_its_own = bool(record.siblings) and len(parts) > 1
        if not report.limit_refused and not is_its_own:
            _tell(state, record, limit, but=part.cluster)
        record = record if is_its_own else _with(record, limit)
        fields: dict[str, Any] = {"cluster": part.cluster, "time_limit": limit}
        fields["refused"] = report.limit_refused
        state.tell(now, EventKind.JOB_LIMIT_CHANGED, record.id, **fields)
    state.put(record)
    return record


def _tell(state: State, record: JobRecord, limit: float, but: str = "") -> None:
    for part in record.parts:
        if part.cluster != but and part.state not in PART_ENDED:
            before = record.run_limit
            order = Limit(
                job=record.id, attempt=record.attempt, time_limit=limit, instead_of=before
            )
            state.send(part.cluster, order)


def _with(record: JobRecord, limit: float) -> JobRecord:
    """The job with another limit; where its run time was taken from that, it is as long."""
    is_guess = record.sources.get("base_time") == "time_limit"
    job = replace(record.job, time_limit=limit)
    return replace(record, job=job, planned=limit if is_guess else record.planned)
