"""Siblings: a job waits in the queues of several clusters, and the first part that is ready runs.

Each sibling is the whole job in one cluster, and waits there as any claim does. None starts
anything before its start order. That goes to the first one that is ready, in the turn in which the
others are ordered to end, and the choice is on disk before anyone hears of it. From then on the
record has the chosen part only: whatever another one says is answered by an abort until it has
ended (`core.starts.two_phase`). So a withdrawal that is late or lost starts nothing.

A sibling that ends before the choice, or does not get ready in time, is dropped, and the others
wait on. Its cluster gets another one after a pause, and not before its end was heard: orders name
an attempt, and would mean both. After a restoration nothing is chosen until every cluster was
heard of.
"""

from __future__ import annotations

from typing import Any

from coalloc.core.base.effects import Wake
from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State
from coalloc.core.jobs.avoided_nodes import note_refused
from coalloc.core.jobs.ends import abort_parts, taken_back
from coalloc.core.starts.negotiation import MOST_DOUBLINGS, idle_node_s, words_of_hold
from coalloc.core.starts.waits import due
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.sites.parts import (
    ADMIN,
    CANCELLED_THERE,
    LASTING,
    OVER_LIMIT,
    PART_ENDED,
    PERMANENT,
    PartState,
)
from coalloc.model.values import replace

BARRING = LASTING | ADMIN
"""Reasons for which a cluster gets no other sibling of a job."""
OF_THE_JOB = PERMANENT | {CANCELLED_THERE}
"""Ends of a sibling that are the job's."""


def may_be_one(record: JobRecord) -> bool:
    """Whether one cluster's part may be all of a job: tasks and pieces wait in one queue."""
    is_whole = isinstance(record.job, RigidJob | MoldableJob)
    return is_whole and not record.flow and not record.foreign


def settled(state: State, record: JobRecord, now: float) -> JobRecord:
    """Choose the sibling that is ready, or drop one that has ended.

    Returns the job; with one part that is no sibling where it was chosen, or is the last one.
    """
    ready = next((part for part in record.parts if part.state is PartState.READY), None)
    if ready is not None and not state.presence.unreconciled:
        return _chosen(state, record, ready, now)
    for part in [part for part in record.parts if part.state in PART_ENDED]:
        if len(record.parts) == 1 or part.reason in OF_THE_JOB:
            abort_parts(state, record, part.detail or part.reason)
            return record.alone(part)
        record = drop(state, record, part, now, part.reason, part.detail)
    return record


def _chosen(state: State, record: JobRecord, winner: PartRecord, now: float) -> JobRecord:
    """The job as its chosen sibling alone; the caller writes it with its start."""
    others = [part for part in record.parts if part is not winner]
    idle = sum(idle_node_s(state, record.alone(part), now) for part in others)
    for part in others:
        abort_parts(state, record.alone(part), f"granted in {winner.cluster}")
    if others:
        _tell(state, record, others, now, granted=winner.cluster, idle_node_s=round(idle, 3))
    return replace(record.alone(winner), idle_node_s=record.idle_node_s + idle)


def drop(
    state: State, record: JobRecord, part: PartRecord, now: float, reason: str, detail: str
) -> JobRecord:
    """Take a sibling from those of which one will run; returns the job with the others."""
    start = state.settings.start
    why = words_of_hold(reason, part.cluster) if reason in ADMIN else detail or reason
    abort_parts(state, record.alone(part), why)
    note_refused(state, record.alone(part), now)
    idle = idle_node_s(state, record.alone(part), now)
    pause = min(
        start.backoff_max_s, start.backoff_first_s * 2.0 ** min(record.refusals, MOST_DOUBLINGS)
    )
    if reason == OVER_LIMIT:
        state.clusters[part.cluster].full[record.user] = now + start.backoff_max_s
    again = now + pause if part.state in PART_ENDED else None
    record = replace(
        record,
        parts=tuple(other for other in record.parts if other is not part),
        refusals=record.refusals + 1,
        dropped={**record.dropped, part.cluster: again},
        barred={**record.barred, part.cluster: why} if reason in BARRING else record.barred,
        idle_node_s=record.idle_node_s + idle,
    )
    record = replace(record, deadline=due(state, record))
    state.put(record)
    state.out.append(Wake(at=record.deadline or now + pause))
    _tell(state, record, [part], now, why=why, idle_node_s=round(idle, 3))
    return record


def _tell(
    state: State, record: JobRecord, parts: list[PartRecord], now: float, **fields: Any
) -> None:
    """Note in the job's history and the log where it waits no more, and why."""
    fields["clusters"] = ",".join(part.cluster for part in parts)
    state.tell(now, EventKind.SIBLINGS_WITHDRAWN, record.id, **fields)


def gone(state: State, cluster: str, job: str, attempt: int, now: float) -> None:
    """Note that a sibling which was dropped has ended: its cluster may get another one."""
    record = state.jobs.get(job)
    if record is None or not record.siblings or record.attempt != attempt:
        return
    if record.dropped.get(cluster, now) is None:
        again = now + state.settings.start.backoff_first_s
        state.put(replace(record, dropped={**record.dropped, cluster: again}))


def leave(state: State, cluster: str, now: float) -> None:
    """Take the jobs that only wait out of the queue of a cluster that gets no new work."""
    for record in list(state.placed_records()):
        part = next((part for part in record.parts if part.cluster == cluster), None)
        if part is None or not record.is_in_queues:
            continue
        if record.siblings and len(record.parts) > 1:
            drop(state, record, part, now, "drained", f"{cluster} is drained")
        else:
            taken_back(state, record)
            state.rounds.want("drained")


def may_follow(state: State, record: JobRecord, cluster: str, now: float) -> bool:
    """Whether a cluster without a sibling of a job may get one now, as far as the last one goes."""
    again = record.dropped.get(cluster, now)
    return again is not None and not now < again <= now + state.settings.start.backoff_max_s
