"""The two-phase start of a job, and its end, as the daemon sees them.

*prepare* to every executor -> all *ready* in time -> *start* -> *finished* from each. A
refusal or silence before the start releases every claim, and the job waits again. The
decision to start is on disk before anyone hears it, and is taken once: if a part then
turns out never to have started while another did, the job ends as failed; it is not
started a second time.
"""

from __future__ import annotations

from typing import Any

from coalloc.core.base.composites import part_fields
from coalloc.core.base.effects import Publish, SaveMeta, Wake
from coalloc.core.base.messages import Abort, Forget, Prepare, Start
from coalloc.core.base.records import REQUEUED, JobRecord, JobState, PartRecord
from coalloc.core.base.state import State
from coalloc.core.commands.updates import followed
from coalloc.core.jobs import deadlines
from coalloc.core.jobs.after_restore import (
    CLAIMED,
    is_cancelled,
    repeat_starts,
    reserve_attempt,
    started_after_backup,
)
from coalloc.core.jobs.dependencies import has_started
from coalloc.core.jobs.eligibility import told
from coalloc.core.jobs.ends import abort_parts, release_dependents, remember, verdict
from coalloc.core.jobs.occupation import slots_on
from coalloc.core.jobs.workflows import task_ended, tries_again
from coalloc.core.sharing.accounting import charge
from coalloc.core.starts import negotiation as negotiating
from coalloc.core.starts import packs, siblings
from coalloc.core.starts.requeue import GAVE_WAY, PREEMPTED, give_back, see_hold, try_those_behind
from coalloc.core.starts.waits import due
from coalloc.model.event_kinds import EventKind
from coalloc.model.formats.nodeset import fold
from coalloc.model.jobs import DivisibleJob
from coalloc.model.sites.parts import PART_ENDED, PartReport, PartState, PartStatus
from coalloc.model.values import fields_of, replace


def prepare(state: State, record: JobRecord, now: float) -> None:
    """Write the decision and send it to every executor concerned.

    `record` has its parts, attempt, round and policy already; where it is queued, their claims
    may wait.
    """
    deadline: float | None = now + state.settings.start.prepare_timeout_s
    if record.siblings:
        deadline = due(state, record)
    record = replace(record, state=JobState.PREPARING, deadline=deadline, reason="", detail="")
    state.put(record)
    for part in record.parts:
        send_part(state, record, part, now)
    for each in packs.living(state, record.pack) if record.pack else (record,):
        state.emit(
            now,
            EventKind.JOB_PLACED,
            each.id,
            attempt=each.attempt,
            round=each.round,
            policy=each.policy,
            nodes=each.nodes,
            parts=list(each.clusters),
        )
    state.out.append(Wake(at=deadline or now))


def send_part(state: State, record: JobRecord, part: PartRecord, now: float) -> None:
    """Send one part of a job that is being prepared to its executor, and tell watchers."""
    state.send(part.cluster, _order(state, record, part, now))
    body = {
        "job": record.id,
        "attempt": record.attempt,
        "part": part.index,
        "parts": len(record.parts),
        "cluster": part.cluster,
        "nodes": dict(part.nodes),
        "start": now,
        "policy": record.policy,
        "round": record.round,
    }
    state.out.append(Publish(topic=f"decision.{part.cluster}.{record.id}", body=body))


def _order(state: State, record: JobRecord, part: PartRecord, now: float) -> Prepare:
    """The order to prepare a part, with all that its executor has to know of the job."""
    record = record.alone(part) if record.siblings else record
    job, nodes = record.job, record.nodes
    may_wait = record.queued and negotiating.may_queue(state, (part.cluster,), record)
    whole = state.jobs[record.flow].job if record.chunks else None
    return Prepare(
        job=record.id,
        attempt=record.attempt,
        part=part.index,
        nodes=part.nodes,
        all_nodes=nodes,
        first_rank=part.first_rank,
        size=sum(nodes.values()),
        uid=record.uid,
        gid=record.gid,
        user=record.user,
        lease_s=state.settings.start.lease_s,
        rendezvous=record.rendezvous,
        name=record.name,
        time_limit=job.time_limit,
        memory_mb_per_proc=job.memory_mb_per_proc,
        shape=job.shape,
        array_index=record.array_index,
        foreign=record.foreign,
        task=record.task,
        chunk_first=record.chunk_first,
        chunks=record.chunks,
        chunks_total=whole.chunks if isinstance(whole, DivisibleJob) else 0,
        members=packs.behind(state, record),
        queue=negotiating.terms(state, record, part, now) if may_wait else None,
        batch=told(state.clusters[part.cluster].settings, record),
        once=record.once,
        stream=record.stream,
        folder=record.staged.get(part.cluster, ""),
    )


def reported(state: State, cluster: str, report: PartReport, now: float) -> None:
    """Take in what an executor says of a part; saying it again changes nothing."""
    record = state.jobs.get(report.job)
    part = None if record is None else _part(record, cluster, report)
    if record is None or part is None:
        _answer_stranger(state, cluster, report, now)
        return
    if part.state in PART_ENDED:
        if report.state in PART_ENDED:
            state.send(cluster, Forget(job=report.job, attempt=report.attempt))
        return
    if report.state is PartState.READY:
        state.clusters[cluster].lead_s = report.lead_s
    record = followed(state, record, part, report, now)
    part = _part(record, cluster, report) or part
    step = _step(report, has_nodes=bool(report.nodes))
    if step <= _step(part, has_nodes=part.granted is not None):
        if report.state is part.state is PartState.WAITING:
            negotiating.still_waits(state, part, report, record, now)
            see_hold(state, state.jobs[record.id], cluster, report, now)
        elif report.state is part.state is PartState.READY and record.siblings:
            _advance(state, record, now)  # It could not be chosen before all were heard of.
        return
    nodes = report.nodes or part.nodes
    nodes = part.nodes if state.clusters[cluster].alien(nodes) else nodes
    slots = part.slots
    if record.pack and report.started is None and slots:
        slots = dict.fromkeys(nodes, 0)  # Behind one that has them.
    elif (record.pack and report.started is not None) or nodes != part.nodes:
        slots = slots_on([state.clusters[cluster]], record.job, nodes)
    changed = replace(
        part,
        **fields_of(report, PartStatus),
        nodes=nodes,
        slots=slots,
        granted=now if part.granted is None and step in HOLDS_NODES else part.granted,
    )
    parts = tuple(changed if p is part else p for p in record.parts)
    record = replace(record, parts=parts)
    state.put(record)
    if report.state in PART_ENDED:
        state.send(cluster, Forget(job=report.job, attempt=report.attempt))
    record = negotiating.went_on(state, record, part, now)
    if pair := negotiating.gives_way(state, record):
        younger, older = pair
        late = ", ".join(negotiating.ungranted(younger))
        why = f"gives way to job {older.id}, which waits for its nodes"
        give_back(state, younger, now, late, GAVE_WAY, why)
        if younger.id == record.id:
            return
    _advance(state, record, now)


ASKED, WAITS, GRANTED, AT_BARRIER, LET_GO, RUNS, OVER = range(7)
HOLDS_NODES = range(GRANTED, OVER)
_STEPS = {
    PartState.PREPARING: ASKED,
    PartState.WAITING: WAITS,
    PartState.READY: AT_BARRIER,
    PartState.RUNNING: RUNS,
}


def _step(part: PartRecord | PartReport, *, has_nodes: bool) -> int:
    """Progress of a part: what is said of an earlier step comes late."""
    if part.state is PartState.PREPARING and has_nodes:
        return GRANTED
    if part.state is PartState.RUNNING and part.started is None:
        return LET_GO
    return _STEPS.get(part.state, OVER)


def _part(record: JobRecord, cluster: str, report: PartReport) -> PartRecord | None:
    if record.attempt != report.attempt:
        return None
    return next((p for p in record.parts if p.cluster == cluster and p.index == report.part), None)


def _answer_stranger(state: State, cluster: str, report: PartReport, now: float) -> None:
    """A part of an earlier attempt, or of a job this daemon does not know.

    The leftovers of an earlier attempt are ended: the job may run elsewhere by now. Work
    of an unknown job, or of a later attempt, is left alone: a database restored from an older
    copy must not end people's jobs. Such work is logged, but for what is told to end already: the
    job may have run elsewhere, and its end be forgotten, before its executor hears of that.
    """
    reserve_attempt(state, report)
    left_alone = started_after_backup(state, cluster, report, now)
    record = state.jobs.get(report.job)
    if report.state in PART_ENDED:
        state.send(cluster, Forget(job=report.job, attempt=report.attempt))
        siblings.gone(state, cluster, report.job, report.attempt, now)
    elif left_alone:
        return
    elif is_cancelled(state, report) or (
        record is not None
        and (
            report.attempt < record.attempt
            or (
                report.attempt == record.attempt
                and (not record.is_placed or report.state in CLAIMED)  # a sibling's
            )
        )
    ):
        # The sibling that runs may be in the same cluster, and the report an old one.
        is_siblings = record is not None and record.attempt == report.attempt and record.is_placed
        order = Abort(
            job=report.job,
            attempt=report.attempt,
            reason="superseded attempt",
            claim_only=is_siblings,
        )
        state.send(cluster, order)
    elif not state.clusters[cluster].is_asked(Abort.__name__, report.job, report.attempt):
        state.log(
            "unknown_part_found",
            level="warning",
            cluster=cluster,
            job=report.job,
            attempt=report.attempt,
            state=str(report.state),
        )


def _advance(state: State, record: JobRecord, now: float) -> None:
    if record.state is JobState.PREPARING and record.siblings:
        record = siblings.settled(state, record, now)
        if record.siblings:
            return
    states = [part.state for part in record.parts]
    if record.state is JobState.STARTING and all(p.started is not None for p in record.parts):
        record = _all_run(state, record, now)
    if record.state is JobState.PREPARING:
        if any(s in PART_ENDED for s in states):
            first = next(part for part in record.parts if part.state in PART_ENDED)
            give_back(state, record, now, first.cluster, first.reason, first.detail)
        elif record.pack and not record.is_pack_first:
            return  # It starts with the first one.
        elif all(s is PartState.READY for s in states):
            if deadlines.misses(record, now, record.planned):
                names = ", ".join(record.clusters)
                why = "its nodes were ready too late for its deadline"
                give_back(state, record, now, names, deadlines.DEADLINE, why)
                return
            record = replace(record, state=JobState.STARTING, deadline=None)
            state.put(record)
            packs.decide(state, record)
            lead_s = max(state.clusters[part.cluster].lead_s for part in record.parts)
            at = now + lead_s if lead_s and len(record.parts) > 1 else 0.0
            for part in record.parts:
                state.send(part.cluster, Start(job=record.id, attempt=record.attempt, at=at))
    elif all(s in PART_ENDED for s in states):
        back = next((p for p in record.parts if p.reason == REQUEUED), None)
        if record.foreign and back is not None and not record.cancelled_by:
            state.clusters[back.cluster].put_back[record.foreign] = back.ended or 0.0
            charge(state, record, now, is_last=False)
            give_back(state, record, now, back.cluster, back.reason, back.detail)
            return
        started = any(p.started is not None or p.state is PartState.LOST for p in record.parts)
        if record.cancelled_by or started:
            _end(state, record, now)
        else:
            first = record.parts[0]
            give_back(state, record, now, first.cluster, first.reason, first.detail)
    elif any(s in PART_ENDED for s in states):
        _some_ended(state, record)


def _all_run(state: State, record: JobRecord, now: float) -> JobRecord:
    starts = [part.started for part in record.parts if part.started is not None]
    skew = max(starts) - min(starts) if len(record.parts) > 1 else None
    idle = negotiating.idle_node_s(state, record, now)
    record = replace(
        record,
        state=JobState.RUNNING,
        started=max(starts, default=now),
        clock_set_s=state.clock_set_s - record.clock_before_s,
        skew_s=skew,
        refusals=0,
        idle_node_s=record.idle_node_s + idle,
    )
    state.put(record)
    has_started(state, record)
    fields: dict[str, Any] = {"clusters": ",".join(record.clusters)}
    fields |= part_fields(record)
    if record.queued:
        fields["idle_node_s"] = round(idle, 3)
        if len(record.parts) > 1:
            fields["idle_for_others_node_s"] = round(negotiating.idle_for_others(state, record), 3)
    if skew is not None:
        fields["skew_ms"] = round(skew * 1e3, 3)
    state.emit(now, EventKind.JOB_STARTED, record.id, **fields)
    if not record.pack or record.is_pack_first:
        nodes = fold(record.nodes)
        state.log("job_started", job=record.id, **_whose(record), nodes=nodes, **fields)
    return record


def _whose(record: JobRecord) -> dict[str, str]:
    """The fields by which an operator knows a job in the log."""
    return {"user": record.user, "name": record.name}


def _some_ended(state: State, record: JobRecord) -> None:
    """One part ended before the others: if it failed, the others are of no use."""
    bad = next(
        (
            part
            for part in record.parts
            if part.state in {PartState.REFUSED, PartState.LOST}
            or (part.state is PartState.FINISHED and part.exit_code != 0)
        ),
        None,
    )
    if bad is None:
        return
    why = bad.detail or (f"exit code {bad.exit_code}" if bad.exit_code else bad.reason)
    abort_parts(state, record, f"part on {bad.cluster}: {why}")


def _end(state: State, record: JobRecord, now: float) -> None:
    end, reason, detail, code = verdict(record)
    starts = [part.started for part in record.parts if part.started is not None]
    ends = [part.ended for part in record.parts if part.ended is not None]
    if record.started is None and starts:
        set_s = state.clock_set_s - record.clock_before_s
        record = replace(record, started=max(starts), clock_set_s=set_s)
    record = replace(
        record,
        state=end,
        ended=max(ends, default=now),
        exit_code=code,
        reason=reason,
        detail=detail,
        deadline=None,
    )
    is_tried_again = bool(record.flow) and tries_again(state, record, now)
    preempted = next((part for part in record.parts if part.reason == PREEMPTED), None)
    is_requeued = preempted is not None and record.requeue and not record.cancelled_by
    charge(state, record, now, is_last=not (is_tried_again or is_requeued))
    if is_tried_again:
        return
    if preempted is not None and is_requeued:
        again = replace(record, ended=None, exit_code=None, skew_s=None)
        give_back(state, again, now, preempted.cluster, PREEMPTED, preempted.detail)
        return
    state.put(record)
    for name in record.clusters:
        try_those_behind(state, name, now)
    if end is JobState.COMPLETED and not record.flow:
        remember(state, record)
    fields: dict[str, Any] = {"state": str(end), "exit_code": code, "detail": detail}
    fields |= part_fields(record)
    state.emit(now, EventKind.JOB_ENDED, record.id, **fields)
    level = "info" if end in {JobState.COMPLETED, JobState.CANCELLED} else "warning"
    told = fields if detail else {key: value for key, value in fields.items() if key != "detail"}
    if end is not JobState.COMPLETED or not record.pack or record.is_pack_first:
        state.log("job_ended", level, job=record.id, **_whose(record), **told)
    release_dependents(state, record.id, now)
    if record.flow:
        task_ended(state, record, now)
        return
    if not state.packs.lives(record.pack):
        state.rounds.happened("job_finished")


def skip_numbers(state: State, cluster: str, last_seq: int) -> None:
    """Go on behind an order that this executor has carried out and we do not know of.

    The store is an older copy of itself. Orders of ours that have these numbers would be
    taken for carried out: a *prepare* among them is given up in time and tried again, an
    *abort* or *forget* is asked for again, and only a *start* has to be repeated here.
    """
    target = state.clusters[cluster]
    first, target.next_seq = target.next_seq, last_seq + 1
    state.log("order_numbers_skipped", "warning", cluster=cluster, first=first, last=last_seq)
    target.asked.clear()
    state.out.append(SaveMeta(key=f"seq.{cluster}", value=str(target.next_seq)))
    repeat_starts(state, cluster)
