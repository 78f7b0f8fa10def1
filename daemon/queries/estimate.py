"""Estimate of the start of a job that would be submitted now."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from coalloc.core.base.events import Caller, Requested
from coalloc.core.base.records import JobRecord
from coalloc.core.base.requests import RequestError, Submit
from coalloc.core.base.start_intervals import FIRST, Calibration
from coalloc.core.commands.queue import admitted
from coalloc.core.jobs.deadlines import DEADLINE, misses
from coalloc.core.rounds import snapshots
from coalloc.core.starts.placements import NOW_S
from coalloc.daemon.queries.answers import Sources
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.model.errors import InputError
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import fields_of, replace
from coalloc.runtime.texts import instant
from coalloc.wire.answers import Estimate
from coalloc.wire.codec import decode_command
from coalloc.wire.frames import WireError


async def estimated(
    planner: RoundPlanner, sources: Sources, body: Mapping[str, Any], policy: str, now: float
) -> Estimate:
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
    return Estimate(reason=DEADLINE, detail=detail, time=estimate.time)


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
) -> Estimate:
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
    return Estimate(
        start_estimate=None if placed is None else placed.start,
        start_early=early,
        start_late=late,
        end_estimate=max((p.end for p in mine), default=None),
        nodes={} if placed is None else dict(placed.nodes),
        reason="" if deferred is None else str(deferred.reason),
        detail="" if deferred is None else deferred.detail,
        time=now,
    )
