"""Deadlines that users set: a job starts only where it can end by its own, or not at all.

A run counts as long as the job's time limit, after which it is ended. A job without one counts as
long as the plan expects on its nodes, and until it has any, as on full-speed nodes; so do workflows
and divisible jobs, whose time limits are those of tasks and pieces. It is

- refused at its submit where it could not be kept even if it began at once;
- planned, without a time limit, on nodes that are fast enough only (`core.jobs.offers`);
- not started by a plan that would have it end too late, nor where its nodes are ready too late;
- ended, *cancelled* with the reason ``deadline``, as soon as it cannot be kept any more.

A workflow or divisible job has started with its first task or piece; none starts along a plan in
which any of the others ends too late, or is missing (`in_time`).
What has started goes on to its end or its time limit, also beyond the deadline.
"""

from __future__ import annotations

from math import inf

from coalloc.core.base.effects import Wake
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import Outlook
from coalloc.core.jobs.after_restore import is_held
from coalloc.core.jobs.ends import abort_parts, end_waiting
from coalloc.core.jobs.offers import Offers
from coalloc.core.jobs.workflows import end_resting
from coalloc.model.errors import InputError
from coalloc.model.plan import Plan
from coalloc.model.ranges import EVENT
from coalloc.model.sites.site_rules import span_text
from coalloc.model.values import replace

DEADLINE = "deadline"
"""Why a job was ended, or does not start where the plan has it."""
TOLERANCE_S = 1e-3
WAKE_S = 0.05
"""A job is ended so long after its latest start: an alarm may come a little early."""


def check(finish_by: float | None) -> None:
    """Refuse a deadline that is no time."""
    if finish_by is not None and not EVENT.holds(finish_by):
        raise InputError("finish_by", f"{finish_by:g} is no time")


def impossible(
    state: State, record: JobRecord, now: float, offers: dict[float, Offers] | None = None
) -> str:
    """Reason why a waiting job cannot end by its deadline, as things stand; empty if it may.

    The offers, by time, are filled here, for the jobs of one request.
    """
    if record.finish_by is None:
        return ""
    begin = max(now, record.opens(now))
    late_s = begin - record.latest_start
    if late_s <= TOLERANCE_S:
        if record.run_limit is None:
            return ""
        kept = {} if offers is None else offers
        if begin not in kept:
            kept[begin] = Offers(state=state, now=begin, busy={})
        held_up = kept[begin].of(record).earliest
        late_s = held_up - record.latest_start
        if late_s <= TOLERANCE_S:
            return ""
        return f"deadline: reservations hold it up, and {_ends(record, late_s)}"
    return f"deadline: {_ends(record, late_s)}"


def misses(record: JobRecord, start: float, planned_s: float) -> bool:
    """Test if a start on nodes where its job runs for so long is too late for its deadline."""
    if record.finish_by is None:
        return False
    limit = record.run_limit
    return start + (planned_s if limit is None else limit) > record.finish_by + TOLERANCE_S


def withhold(state: State, job: str, why: str = "on the nodes of the plan it would end") -> None:
    """Say of a job why it does not start now, where the plan has it."""
    detail = f"{why} after its deadline"
    state.findings.outlook[job] = Outlook(reason=DEADLINE, detail=detail)


def in_time(state: State, plan: Plan, now: float) -> Plan:
    """The plan without workflows and divisible jobs that would start by it and end too late."""
    timed = {job for job in state.deadlines.latest_starts if job in state.composites}
    if not timed or state.round is None:
        return plan
    ends = dict.fromkeys((deferred.job for deferred in plan.deferred), inf)
    for placement in plan.placements:
        ends[placement.job] = max(placement.end, ends.get(placement.job, -inf))
    since = max(now - state.round.snapshot.time, 0.0)
    late = {job for job in timed & ends.keys() if misses(state.jobs[job], ends[job], since)}
    for job in late:
        withhold(state, job, "by the plan it would end")
    return replace(plan, placements=tuple(p for p in plan.placements if p.job not in late))


def end_due(state: State, now: float) -> None:
    """End the jobs that cannot be kept to their deadlines any more, and be called for the next."""
    if not state.presence.unreconciled:  # They may run, and the store not know of it yet.
        for job in state.deadlines.take(now - TOLERANCE_S):
            _end(state, state.jobs[job], now)
    due = state.deadlines.queue[0][0] if state.deadlines.queue else None
    if due is not None and (due != state.deadlines.due or due < now):
        state.out.append(Wake(at=due + WAKE_S))
    state.deadlines.due = due


def _end(state: State, record: JobRecord, now: float) -> None:
    if is_held(record):
        return  # It runs, and somebody has to say what becomes of that.
    why = f"could not end by its deadline any more {_by_what(record)}"
    if record.state is JobState.PREPARING:
        abort_parts(state, record, why)
    if (flow := state.composites.get(record.id)) is not None:
        end_resting(state, flow, now)  # of a restored one, some have been tried
    end_waiting(state, record, now, JobState.CANCELLED, why, DEADLINE)


def _by_what(record: JobRecord) -> str:
    limit = record.run_limit
    if limit is not None:
        return f"with its time limit of {span_text(limit)}"
    shortest = (record.finish_by or 0.0) - record.latest_start
    return f"with a run time of at least {span_text(round(shortest, 3))}"


def _ends(record: JobRecord, late_s: float) -> str:
    late = max(round(late_s), 1)
    return f"{_by_what(record)} it ends {span_text(late)} too late at the earliest"
