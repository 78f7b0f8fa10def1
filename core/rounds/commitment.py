"""The commitment of a plan: what starts now and still fits, what is queued, what fills the rest."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import RoundState, State, arrival
from coalloc.core.base.state_tables import Outlook
from coalloc.core.jobs.dependencies import open_needs
from coalloc.core.rounds.turn import StartRule
from coalloc.core.sharing import limits
from coalloc.core.starts import queued_claims as queueing
from coalloc.core.starts.free_places import FreePlaces, bills_differ
from coalloc.core.starts.placements import NOW_S, divisible, place_pieces, startable
from coalloc.model.plan import Plan, Reason
from coalloc.model.snapshot import Snapshot


def start_now(state: State, current: RoundState, plan: Plan, now: float) -> None:
    """Start what the plan has now and still fits."""
    time = current.snapshot.time
    rule = StartRule(state, now, plan.policy, current.number)
    if bills_differ(state):
        rule.places = FreePlaces(state, current.snapshot, plan, now)
    started: list[str] = []
    for placement in plan.placements:
        if placement.start > time + NOW_S or placement.chunks is not None:
            continue
        record = startable(state, placement, now)
        if record is None:
            continue
        why = rule.obstacle(record, placement, now)
        if why and (record.flow or not current.taken.isdisjoint(placement.nodes)):
            continue  # It starts along the plan when its nodes are free.
        if why:
            _superseded(state, current, record.id, why)
            continue
        chosen = rule.begin(record, placement)
        if chosen is not None:
            current.count(chosen)
            started.append(record.id)
    if started:
        _count_passed_over(state, current, started, now)


def _superseded(state: State, current: RoundState, job: str, why: str) -> None:
    outlook = Outlook(round=current.number, reason=Reason.SUPERSEDED, detail=why)
    state.findings.outlook[job] = outlook
    state.log("start_superseded", job=job, why=why)
    state.rounds.want("superseded")


def fill(state: State, current: RoundState, plan: Plan, now: float) -> None:
    """Start the pieces of divisible jobs that the final plan has now, in what others leave free.

    Earlier incumbents start none: a better plan may want those nodes for other jobs.
    """
    begun = current.snapshot.time + NOW_S
    pieces = [p for p in plan.placements if p.chunks is not None and p.start <= begun]
    if not pieces:
        return
    starts = _starts(current.snapshot, plan)
    rule = StartRule(state, now, plan.policy, current.number)
    for planned in pieces:
        pool = divisible(state, planned, now)
        if pool is None:
            continue
        whole = state.jobs[pool.id]
        placement = limits.trimmed(state, whole, planned, now)
        if placement is None:
            continue
        if why := rule.obstacle(whole, placement, now):
            _superseded(state, current, pool.id, why)
            continue
        queued = queueing.may_wait(rule, whole, placement)
        if not queued and queueing.must_wait(rule, placement):
            continue  # As many claims as may wait there already, and others go first.
        later = [start for node in placement.nodes for start in starts.get(node, ())]
        current.committed.update(place_pieces(rule, pool, placement, later, queued=queued))


def _starts(snapshot: Snapshot, plan: Plan) -> dict[str, list[float]]:
    """Starts on each node after the plan's own time, of jobs and reservations, not of pieces."""
    starts: dict[str, list[float]] = {}
    others = [(p.start, p.nodes) for p in plan.placements if p.chunks is None]
    others += [(kept.start, dict.fromkeys(kept.nodes, 1)) for kept in snapshot.reservations]
    for start, nodes in others:
        if start > snapshot.time + NOW_S:
            for node in nodes:
                starts.setdefault(node, []).append(start)
    return starts


def _count_passed_over(state: State, current: RoundState, started: list[str], now: float) -> None:
    """Waiting jobs that arrived before one that was started now were passed over.

    Those that may not start yet were not: they are in no order. Nor were they by a job whose turn
    it was before theirs, see `core.priority`.
    """
    first = {job.id: job.priority for job in current.snapshot.queue}
    begun = sorted((first.get(job.partition(".")[0], 0.0), arrival(job)) for job in started)
    levels = [level for level, _ in begun]
    latest = list(accumulate((arrived for _, arrived in begun), max))
    for job in state.waiting:
        not_before = bisect_right(levels, first.get(job, 0.0))
        is_over = not_before > 0 and arrival(job) < latest[not_before - 1]
        if is_over and _is_eligible(state, state.jobs[job], now):
            state.findings.passed_over[job] = state.findings.passed_over.get(job, 0) + 1


def _is_eligible(state: State, record: JobRecord, now: float) -> bool:
    """Whether a waiting job may start now, if there is room."""
    if record.state is not JobState.PENDING or record.opens(now) > now:
        return False
    if record.throttle and record.id in state.findings.limited:
        return False
    return not open_needs(state, record)
