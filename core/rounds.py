"""One scheduling round, as the daemon's core sees it.

1. assemble the snapshot  2. have it solved  3. on the first incumbent and on the final plan,
commit the placements that start now and still fit  4. keep the rest as start estimates; tasks
of workflows start along it without another round (`core.dispatch`).
Where a policy fails, the job is looked for with which it does (`core.isolating`); if none is found,
the next policy of the fallback chain has its turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

from coalloc.core import deadlines, dispatch, isolating, presence, rules, snapshots
from coalloc.core.base.effects import Publish, RoundFinished, SaveNotes, SavePlan, Solve, Wake
from coalloc.core.base.events import IncumbentFound, Solved, SolveFailed
from coalloc.core.base.records import JobRecord, JobState, Outlook
from coalloc.core.base.round_control import OPERATOR
from coalloc.core.base.state import RoundState, State, arrival
from coalloc.core.dependencies import open_needs
from coalloc.core.eligibility import refused_by_all, reserved_text
from coalloc.core.learning import promises
from coalloc.core.learning.estimates import history_for, history_keys
from coalloc.core.occupation import Occupation, misfit, occupation
from coalloc.core.placing import NOW_S, divisible, place_pieces, startable
from coalloc.core.queues import moving, queueing
from coalloc.core.queues.waits import waiting_claims
from coalloc.core.reserving import is_kept_from
from coalloc.core.sharing import limits
from coalloc.model.history import NO_HISTORY
from coalloc.model.plan import NOTES, Placement, Plan, Reason
from coalloc.model.plan_json import write_plan
from coalloc.model.snapshot import Snapshot

NO_SNAPSHOTS: Mapping[str, Snapshot] = {}


def begin_if_due(state: State, now: float) -> None:
    """Start the round that is wanted, if its time has come; else ask to be woken then."""
    due = state.rounds.due_at()
    if due is None:
        return
    if state.rounds.wanted != OPERATOR and presence.is_gathering(state, now):
        due = state.gathers_until
    if due > now:
        state.out.append(Wake(at=due))
        return
    trigger, policy = state.rounds.take(now)
    aside = isolating.still_aside(state, now)
    limits.hold_back(state, now)
    snapshot = snapshots.snapshot(state, now, held=False, without=aside.union(state.limited))
    wanted = policy or state.settings.policy
    chain = [wanted, *(name for name in state.settings.fallbacks if name != wanted)]
    if not snapshot.queue:
        chain = ["plain"]  # Nothing to decide: no need to wake the solver.
        if aside:
            snapshot = snapshots.snapshot(state, now, held=False, without=state.limited)
    state.last_round += 1
    state.round = RoundState(
        number=state.last_round,
        trigger=trigger,
        policy=chain[0],
        started=now,
        queued=len(snapshot.queue),
        stale=sum(cluster.stale for cluster in snapshot.clusters),
        chain=chain[1:],
        snapshot=snapshot,
    )
    lifted = NO_SNAPSHOTS
    if state.rounds.costs_wanted and state.waiting:
        lifted = rules.without_each_rule(state, now)
        state.rounds.costs_wanted = not lifted
    state.out.append(_solve(state, snapshot, chain[0], lifted))


def _solve(
    state: State, snapshot: Snapshot, policy: str, lifted: Mapping[str, Snapshot] = NO_SNAPSHOTS
) -> Solve:
    """Ask for a plan, with how long jobs like those at hand ran."""
    history = NO_HISTORY
    if state.ratios:
        views = (snapshot, *lifted.values())
        names = dict.fromkeys(job.id for view in views for job in (*view.queue, *view.running))
        records = [state.jobs[name] for name in names if name in state.jobs]
        keys = {r.id: history_keys(r.user, r.command, r.name) for r in records}
        history = history_for(state.ratios, keys)
    return Solve(
        round=state.last_round,
        snapshot=snapshot,
        policy=policy,
        history=history,
        notes=state.notes.get(policy, {}),
        lifted=lifted,
    )


def incumbent(state: State, event: IncumbentFound, now: float) -> None:
    """Commit what the first incumbent starts now."""
    current = state.round
    if current is None or current.number != event.round or current.committed or current.search:
        return
    if state.settings.commit_first_incumbent:
        _commit(state, deadlines.in_time(state, event.plan, now), now)


def solved(state: State, event: Solved, now: float) -> None:
    """Commit the final plan and end the round."""
    current = state.round
    if current is None or current.number != event.round:
        return
    if current.search is not None:
        if current.search.planned() and _attempt(state, current, now):
            return
        if current.search.attempt == "beginning":
            _next_policy(state, current, now)  # There was no time for more than a beginning.
            return
        isolating.set_aside(state, current, current.search, now)
    plan = deadlines.in_time(state, event.plan, now)
    _commit(state, plan, now)
    _queue_up(state, plan, now)
    _fill(state, plan, now)
    moving.order_moves(state, current.snapshot, plan, now)
    _look_ahead(state, plan)
    dispatch.adopt(state, plan, current.number)
    body = write_plan(event.plan)
    state.plan, state.plan_time = event.plan, current.started
    state.out.append(SavePlan(round=current.number, time=now, body=body))
    _keep_notes(state, event.plan)
    summary = {key: body[key] for key in ("policy", "status", "objective")}
    state.out.append(Publish(topic="round", body={"round": current.number, **summary}))
    _finish(state, event.plan, event.solve_s, now)


def _keep_notes(state: State, plan: Plan) -> None:
    """Remember what a policy wants to know in its next round; a plan without notes keeps them."""
    notes = plan.stats.get(NOTES)
    if isinstance(notes, Mapping) and notes != state.notes.get(plan.policy):
        state.notes[plan.policy] = notes
        state.out.append(SaveNotes(policy=plan.policy, notes=notes))


def failed(state: State, event: SolveFailed, now: float) -> None:
    """Look for the job with which the policy fails, or fall back to the next of the chain."""
    current = state.round
    if current is None or current.number != event.round:
        return
    if event.policy != current.policy:
        return
    if current.search is None:
        current.why = event.why
        goes_on = isolating.first_attempt(state, current, event.jobs, event.why)
    else:
        goes_on = current.search.failed(event.jobs)
    if not (goes_on and _attempt(state, current, now)):
        _next_policy(state, current, now)


def _attempt(state: State, current: RoundState, now: float) -> bool:
    """Ask the same policy without some jobs, if the round has the time."""
    search = current.search
    if search is None or not isolating.may_go_on(current, search, now):
        return False
    without = {*search.left_out(), *state.aside, *state.limited}
    current.snapshot = snapshots.snapshot(state, now, held=False, without=without)
    state.out.append(_solve(state, current.snapshot, current.policy))
    return True


def _next_policy(state: State, current: RoundState, now: float) -> None:
    """Fall back, with all jobs."""
    searched = current.search is not None and current.search.attempts > 0
    if current.search is not None:
        current.attempts, current.search = current.search.attempts, None
    following = current.chain.pop(0) if current.chain else ""
    state.log(
        "policy_failed",
        level="error",
        round=current.number,
        policy=current.policy,
        why=current.why,
        fallback=following or "none",
        **({"cause": "no job was found that causes it"} if searched else {}),
    )
    if following:
        current.policy = following
        if current.committed or searched:
            without = {*state.aside, *state.limited}
            current.snapshot = snapshots.snapshot(state, now, held=False, without=without)
        snapshot = current.snapshot
        state.out.append(_solve(state, snapshot, following))
        return
    state.log("round_failed", level="error", round=current.number, queued=current.queued)
    state.round = None
    state.rounds.finished(now, placed=False, jobs=state.pending_jobs, procs=state.pending_procs)


def _commit(state: State, plan: Plan, now: float) -> None:
    current = state.round
    if current is None:
        return
    time = current.snapshot.time
    view = occupation(state, now)
    claims = waiting_claims(state)
    book = limits.LimitBook(state, now) if limits.are_on(state) else None
    started: list[str] = []
    for placement in plan.placements:
        if placement.start > time + NOW_S or placement.chunks is not None:
            continue
        record = startable(state, placement, now)
        if record is None:
            continue
        why = _obstacle(state, placement, record, view, now)
        if why and record.flow:
            continue  # It starts along the plan when its nodes are free.
        if why:
            _superseded(state, current, record.id, why)
            continue
        placement = queueing.gathered(state, record, placement, view, now)
        if deadlines.misses(record, now, placement.end - placement.start):
            deadlines.withhold(state, record.id, current.number)
            continue
        if book is not None and limits.holds(state, book, record, placement):
            continue
        queued = queueing.may_wait(state, record, placement, view, claims)
        if not queued and not record.foreign and queueing.must_wait(state, placement, view):
            continue  # As many claims as may wait there already, and others go first.
        queueing.commit(
            state, current, record, placement, view, claims, now, policy=plan.policy, queued=queued
        )
        if book is not None:
            book.take(record, *limits.start_of(record, placement))
        started.append(record.id)
    if started:
        _count_passed_over(state, started, now)


def _obstacle(
    state: State, placement: Placement, record: JobRecord, view: Occupation, now: float
) -> str:
    """Reason why a placement cannot start now; empty if it can.

    The plan knows of reservations, but its clock may have been set forward since.
    """
    why = misfit(placement, record, view)
    if not why and is_kept_from(state, record.user, placement.nodes, now, now):
        why = "one of its nodes is reserved for others"
    return why


def _queue_up(state: State, plan: Plan, now: float) -> None:
    """Send what the final plan has later into the queues of clusters where others go first."""
    current = state.round
    if current is None:
        return
    queueing.queue_up(state, current, plan, occupation(state, now), now)


def _superseded(state: State, current: RoundState, job: str, why: str) -> None:
    outlook = Outlook(round=current.number, reason=Reason.SUPERSEDED, detail=why)
    state.outlook[job] = outlook
    state.log("start_superseded", job=job, why=why)
    state.rounds.want("superseded")


def _fill(state: State, plan: Plan, now: float) -> None:
    """Start the pieces of divisible jobs that the final plan has now, in what others leave free.

    Earlier incumbents start none: a better plan may want those nodes for other jobs.
    """
    current = state.round
    if current is None:
        return
    begun = current.snapshot.time + NOW_S
    pieces = [p for p in plan.placements if p.chunks is not None and p.start <= begun]
    if not pieces:
        return
    view, starts = occupation(state, now), _starts(current.snapshot, plan)
    claims = waiting_claims(state)
    for planned in pieces:
        pool = divisible(state, planned, now)
        if pool is None:
            continue
        placement = limits.trimmed(state, state.jobs[pool.id], planned, now)
        if placement is None:
            continue
        why = _obstacle(state, placement, state.jobs[pool.id], view, now)
        if why:
            _superseded(state, current, pool.id, why)
            continue
        whole = state.jobs[pool.id]
        queued = queueing.may_wait(state, whole, placement, view, claims)
        if not queued and queueing.must_wait(state, placement, view):
            continue  # As many claims as may wait there already, and others go first.
        later = [start for node in placement.nodes for start in starts.get(node, ())]
        placed = place_pieces(
            *(state, pool, placement, view, later, now),
            policy=plan.policy,
            round=current.number,
            queued=queued,
        )
        queueing.count_claims(state, claims, placed)
        current.committed.update(placed)


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


def _count_passed_over(state: State, started: list[str], now: float) -> None:
    """Waiting jobs that arrived before one that was started now were passed over.

    Those that may not start yet were not: they are in no order. Nor were they by a job whose turn
    it was before theirs, see `core.priority`.
    """
    current = state.round
    first = {} if current is None else {job.id: job.priority for job in current.snapshot.queue}
    begun = sorted((first.get(job.partition(".")[0], 0.0), arrival(job)) for job in started)
    levels = [level for level, _ in begun]
    latest = list(accumulate((arrived for _, arrived in begun), max))
    for job in state.waiting:
        not_before = bisect_right(levels, first.get(job, 0.0))
        is_over = not_before > 0 and arrival(job) < latest[not_before - 1]
        if is_over and _is_eligible(state, state.jobs[job], now):
            state.passed_over[job] = state.passed_over.get(job, 0) + 1


def _is_eligible(state: State, record: JobRecord, now: float) -> bool:
    """Whether a waiting job may start now, if there is room."""
    if record.state is not JobState.PENDING or record.opens(now) > now:
        return False
    if record.throttle and record.id in state.limited:
        return False
    return not open_needs(state, record)


def _look_ahead(state: State, plan: Plan) -> None:
    """Keep start estimates and reasons for the jobs that wait."""
    current = state.round
    if current is None:
        return
    for deferred in plan.deferred:
        if deferred.job in state.waiting:
            reason, detail = str(deferred.reason), deferred.detail
            refused = refused_by_all(state, state.jobs[deferred.job])
            if not refused:
                refused = reserved_text(state, state.jobs[deferred.job], current.snapshot.time)
            if refused and deferred.task is None:
                reason, detail = str(Reason.INSUFFICIENT), refused
            state.outlook[deferred.job] = Outlook(
                round=current.number, reason=reason, detail=detail
            )
    starts: dict[str, float] = {}
    for placement in sorted(plan.placements, key=lambda p: p.start, reverse=True):
        if placement.job in state.waiting and placement.start > current.snapshot.time + NOW_S:
            starts[placement.job] = placement.start
            state.outlook[placement.job] = Outlook(
                round=current.number, start=placement.start, nodes=placement.nodes, reason="planned"
            )
    promises.keep(state, starts, current.snapshot.time)


def _finish(state: State, plan: Plan, solve_s: float, now: float) -> None:
    current = state.round
    if current is None:
        return
    state.round = None
    objective = plan.objective
    gap = objective.gap
    state.out.append(
        RoundFinished(
            policy=plan.policy,
            status=str(plan.status),
            solve_s=solve_s,
            gap=gap,
            stale=current.stale,
        )
    )
    state.log(
        "round_finished",
        round=current.number,
        trigger=current.trigger,
        policy=plan.policy,
        status=str(plan.status),
        queued=current.queued,
        placed=len(plan.placements),
        started=len(current.committed),
        coallocated=current.coallocated,
        stale=current.stale,
        objective=round(objective.value, 6),
        bound=None if objective.bound is None else round(objective.bound, 6),
        gap=None if gap is None else round(gap, 6),
        solve_s=round(solve_s, 4),
        total_s=round(now - current.started, 4),
    )
    state.rounds.finished(
        now, placed=bool(current.committed), jobs=state.pending_jobs, procs=state.pending_procs
    )
