"""From a placement that starts now to a job under way: the record, its parts, its orders."""

from __future__ import annotations

from dataclasses import replace

from coalloc.core.commit import Occupation, loads_of, meeting_place, parts_of
from coalloc.core.records import JobRecord, JobState
from coalloc.core.starting import prepare
from coalloc.core.state import State
from coalloc.core.workflows import begin, task_record
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement

NOW_S = 1e-6
"""A placement that starts within this of the snapshot's time starts now."""


def startable(state: State, placement: Placement, now: float) -> JobRecord | None:
    """The record of a placement that may start now as far as its job is concerned."""
    record = state.jobs.get(placement.job)
    if record is None:
        return None
    if placement.task is None:
        waits = record.state is JobState.PENDING and record.not_before <= now
        return record if waits and record.id not in state.flows else None
    flow = state.flows.get(placement.job)
    if flow is None or not flow.is_ready(placement.task):
        return None
    if record.state not in {JobState.PENDING, JobState.RUNNING} or record.not_before > now:
        return None
    if flow.resting.get(placement.task, 0.0) > now:
        return None
    return task_record(state, flow, placement.task)


def place(
    state: State,
    record: JobRecord,
    placement: Placement,
    view: Occupation,
    now: float,
    *,
    policy: str,
    round: int,
) -> JobRecord:
    """Commit a placement that fits what is free; returns the record without its new state."""
    parts = parts_of(placement, view)
    loads = loads_of(placement, record, view)
    if isinstance(record.job, RigidJob) and record.task:
        procs = sum(placement.nodes.values())
        planned = placement.end - placement.start
        record = replace(record, job=replace(record.job, procs=procs, base_time=planned))
    chosen = replace(
        record,
        attempt=record.attempt + 1,
        parts=parts,
        rendezvous=meeting_place(state, record, parts),
        planned=placement.end - placement.start,
        link_gbps=loads,
        round=round,
        policy=policy,
    )
    if chosen.flow:
        begin(state, state.jobs[chosen.flow], chosen.task, now)
    prepare(state, chosen, now)
    view.take(placement.nodes, loads)
    if state.lanes is not None:
        state.lanes.drop((placement.job, placement.task or ""))
    return chosen
