"""Attempts at a start that are given up before any process ran: the job waits again.

Safe at once, without hearing from every executor: none starts a part without the start order, and
that was never given, or every part has said that it did not start.
"""

from __future__ import annotations

from typing import Any

from coalloc.core.base.effects import Wake
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.commands.admission import bar, has_other
from coalloc.core.jobs.avoided_nodes import note_refused
from coalloc.core.jobs.ends import abort_parts, end_waiting
from coalloc.core.jobs.workflows import settle, task_ended
from coalloc.core.starts import negotiation as negotiating
from coalloc.core.starts import packs, siblings
from coalloc.core.starts.waits import due, overdue, remember
from coalloc.model.event_kinds import EventKind
from coalloc.model.settings import StartConfig
from coalloc.model.sites.parts import (
    ADMIN,
    CANCELLED_THERE,
    ENDED_BY_ADMIN,
    HELD_BY_ADMIN,
    HELD_BY_OWNER,
    NOT_BEGUN,
    OVER_LIMIT,
    PERMANENT,
    PartReport,
    PartState,
)
from coalloc.model.values import replace

PREEMPTED = "preempted"
"""Reason of a part that its batch system ended for the sake of another job."""
GAVE_WAY = "gave_way"
"""Reason of an attempt that was given up because it stood in the way of an older job's."""
NOT_GRANTED = "not_granted"
"""Reason of an attempt that was given up while some of its claims still waited."""


def give_back(
    state: State, record: JobRecord, now: float, cluster: str, reason: str, detail: str
) -> None:
    """Give up an attempt: no process of it ever started, and none ever will."""
    abort_parts(state, record, detail or reason)
    if reason in ADMIN:
        detail = negotiating.words_of_hold(reason, cluster)
    is_cancelled = reason == CANCELLED_THERE or (reason == ENDED_BY_ADMIN and bool(record.flow))
    if is_cancelled or reason in PERMANENT:
        end, why = JobState.FAILED, f"{cluster}: {detail}"
        if is_cancelled:
            end, why, reason = JobState.CANCELLED, f"cancelled in {cluster}", CANCELLED_THERE
        end_waiting(state, record, now, end, why, reason)
        if record.flow:
            task_ended(state, state.jobs[record.id], now)
        return
    note_refused(state, record, now)
    if bar(state, record, now, cluster, reason, detail):
        return
    text = f"{cluster}: {detail or reason or 'refused'}"
    idle = negotiating.idle_node_s(state, record, now)
    ungranted = (part for part in record.parts if part.granted is None and part.asked < now)
    for part in ungranted if reason == NOT_GRANTED else ():
        remember(state, part, now - part.asked)  # at least
    is_behind = reason in {negotiating.OTHERS_FIRST, OVER_LIMIT}
    if reason == negotiating.OTHERS_FIRST:
        text = f"other jobs of {cluster} go first"
    was_ahead = reason == NOT_BEGUN
    if was_ahead:
        text = "was taken ahead, and did not begin"
    pause = _pause(state.settings.start, record.refusals, reason)
    state.put(
        replace(
            record.unplaced(),
            refusals=record.refusals + (not was_ahead),
            not_before=now + pause,
            reason=OVER_LIMIT if reason == OVER_LIMIT else "backing_off",
            detail=text,
            idle_node_s=record.idle_node_s + idle,
            late=negotiating.late_clusters(record, now) if reason == NOT_GRANTED else (),
            behind=cluster if is_behind else "",
        )
    )
    fields: dict[str, Any] = {"detail": text, "pause_s": pause}
    if record.queued:
        fields["idle_node_s"] = round(idle, 3)
    if record.started is not None:
        fields["ran"] = True
    level = "info" if was_ahead else "warning"
    state.tell(now, EventKind.JOB_REQUEUED, record.id, level=level, **fields)
    state.marked.backing_off.add(record.id)
    state.out.append(Wake(at=now + pause))
    if record.flow in state.composites:
        settle(state, state.composites[record.flow], now)


def settle_packs(state: State, now: float) -> None:
    """Follow what has become of members of packs, before anything else is started.

    One that was taken out before the start takes out all: none has been told to start.
    """
    while state.packs.left:
        pack, _ = state.packs.left.popitem()
        members = list(packs.living(state, pack))
        unstarted = [each for each in members if each.state is JobState.PREPARING]
        for record in unstarted:
            give_back(state, record, now, "", NOT_BEGUN, "")
        if members and not unstarted:
            packs.hand_on(state, pack)


def _pause(start: StartConfig, refusals: int, reason: str) -> float:
    """Until a job that was given back may be tried again, seconds.

    One behind other jobs, or over a limit of accounts, is tried when that cluster's queue changes
    or a job of ours ends there, and no later than after the longest pause; one that has waited its
    turn in vain asks for the next at once, one that was taken ahead is placed anew at once.
    """
    if reason == NOT_BEGUN:
        return 0.0
    if reason in {negotiating.OTHERS_FIRST, OVER_LIMIT}:
        return start.backoff_max_s
    if reason in {NOT_GRANTED, GAVE_WAY}:
        return start.backoff_first_s
    return min(start.backoff_max_s, start.backoff_first_s * 2.0 ** min(refusals, 60))


def try_those_behind(state: State, name: str, now: float, *, has_moved: bool = True) -> None:
    """Let the jobs be tried again that this cluster refused because of others.

    One over a limit of accounts only where jobs have started or ended there since.
    """
    behind = [
        record
        for record in (state.jobs[job] for job in state.marked.backing_off)
        if record.is_waiting
        and record.behind == name
        and record.not_before > now
        and (has_moved or record.reason != OVER_LIMIT)
    ]
    for record in behind:
        state.put(replace(record, not_before=now))
    if behind:
        state.rounds.want("queue_moved")


def give_up_late(state: State, now: float) -> None:
    """Take back the preparations whose time is over."""
    for job in list(state.placed):
        record = state.jobs[job]
        if record.deadline is None or record.deadline > now:
            continue
        if record.siblings:
            _drop_late(state, record, now)
            continue
        late = negotiating.late_clusters(record, now)
        if late:
            why = negotiating.why_given_up(state, record, now)
            if why:
                give_back(state, record, now, ", ".join(late), NOT_GRANTED, why)
            else:
                deadline = now + state.settings.start.max_wait_s
                state.put(replace(record, deadline=deadline))
                state.out.append(Wake(at=deadline))
            continue
        late = tuple(p.cluster for p in record.parts if p.state is PartState.PREPARING)
        limit = state.settings.start.prepare_timeout_s
        give_back(state, record, now, ", ".join(late), "not_ready", f"not ready within {limit:g} s")


def _drop_late(state: State, record: JobRecord, now: float) -> None:
    """Drop the siblings that are not ready in time, and give the attempt up with the last one."""
    unheard = ", ".join(sorted(state.presence.unreconciled))
    why = f"not ready within {state.settings.start.prepare_timeout_s:g} s"
    for part in overdue(state, record, now):
        if part.state is PartState.READY:
            why = f"not started before {unheard} is heard of, since the store was restored"
        if len(record.parts) == 1:
            give_back(state, record.alone(part), now, part.cluster, "not_ready", why)
            return
        record = siblings.drop(state, record, part, now, "not_ready", why)
    state.put(replace(record, deadline=due(state, record)))


def see_hold(state: State, record: JobRecord, cluster: str, report: PartReport, now: float) -> None:
    """Obey the hold of a claim in its batch system, unless it just waits there until released.

    One that waits alone goes on when it is released there. Else its user's holds the job, which
    waits nowhere else. An administrator's bars the cluster if another one may take the job. The
    parts of a job on several clusters would hold nodes for the one that is held: the job is held
    here.
    """
    if report.reason not in negotiating.WILL or record.flow or record.foreign:
        return
    why, is_admins = (
        negotiating.words_of_hold(report.reason, cluster),
        report.reason == HELD_BY_ADMIN,
    )
    several = len(record.parts) > 1
    if record.siblings and several:
        for part in record.parts:
            if (part.cluster == cluster) is is_admins:
                record = siblings.drop(state, record, part, now, report.reason, why)
    elif is_admins and (several or has_other(state, record, cluster)):
        give_back(state, record, now, cluster, HELD_BY_ADMIN, why)
    elif several:
        abort_parts(state, record, why)
        state.put(replace(record.unplaced(), state=JobState.HELD, reason=HELD_BY_OWNER, detail=why))
        state.tell(now, EventKind.JOB_HELD, record.id, why=why)
