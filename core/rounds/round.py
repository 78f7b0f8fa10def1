"""One scheduling round, as the daemon's core sees it.

1. assemble the snapshot  2. have it solved  3. on the first incumbent and on the final plan,
commit the placements that start now and still fit  4. keep the rest as start estimates; tasks
of workflows start along it without another round (`core.rounds.dispatch`).
Where a policy fails, the job is looked for with which it does (`core.rounds.isolation`); if none is
found, the next policy of the fallback chain has its turn. So it has at once where the time limit
came first, and the next rounds of queues as long begin with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate

from coalloc.core.base.effects import Publish, RoundFinished, SaveNotes, SavePlan, Solve, Wake
from coalloc.core.base.events import IncumbentFound, Solved, SolveFailed
from coalloc.core.base.plan_order import PlanOrder
from coalloc.core.base.records import JobState
from coalloc.core.base.round_control import OPERATOR, Isolation
from coalloc.core.base.state import RoundState, State, arrival
from coalloc.core.base.state_tables import Outlook
from coalloc.core.clusters import presence
from coalloc.core.jobs import deadlines, twins
from coalloc.core.jobs.dependencies import open_needs
from coalloc.core.jobs.eligibility import refused_by_all, reserved_text
from coalloc.core.learning import promises
from coalloc.core.learning.estimates import history_for
from coalloc.core.rounds import dispatch, snapshots
from coalloc.core.rounds import isolation as isolating
from coalloc.core.rounds.turn import StartRule
from coalloc.core.sharing import limits
from coalloc.core.sharing.priority import is_on
from coalloc.core.starts import further_queues
from coalloc.core.starts import queued_claims as queueing
from coalloc.core.starts.free_places import FreePlaces, bills_differ
from coalloc.core.starts.placements import NOW_S, divisible, place_pieces, startable
from coalloc.model.formats.plan_json import plan_to_keep, write_plan
from coalloc.model.plan import NOTES, Placement, Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace

NO_SNAPSHOTS: Mapping[str, Snapshot] = {}
LONG, TOLD = 500, 200
"""The snapshot of a queue of more jobs is made in no step in which a plan is committed; of what a
plan has to tell (`look_ahead`), each step tells so much."""


def begin_if_due(state: State, now: float, *, has_committed: bool = False) -> None:
    """Start the round that is wanted, if its time has come; else ask to be woken then.

    `has_committed`: in this step the plan of the round before was.
    """
    due = state.rounds.due_at()
    if due is None or state.schedule.unseen:
        return
    if state.rounds.wanted != OPERATOR and presence.is_gathering(state, now):
        due = state.presence.gathers_until
    if due > now or (has_committed and state.pending.jobs > LONG):
        state.out.append(Wake(at=max(due, now)))
        return
    trigger, policy = state.rounds.take(now)
    aside = isolating.still_aside(state, now)
    state.findings.limited = limits.held_back(state, now)
    snapshot = snapshots.snapshot(
        state, now, held=False, without=aside.union(state.findings.limited)
    )
    wanted = policy or state.settings.rounds.policy
    chain = [wanted, *(name for name in state.settings.rounds.fallbacks if name != wanted)]
    if trigger != OPERATOR:
        chain = state.rounds.in_time(chain, len(snapshot.queue), now)
    if not snapshot.queue:
        chain = ["plain"]  # Nothing to decide: no need to wake the solver.
        if aside:
            snapshot = snapshots.snapshot(state, now, held=False, without=state.findings.limited)
    state.last.round += 1
    state.round = RoundState(
        number=state.last.round,
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
        lifted = snapshots.without_each_rule(state, now)
        state.rounds.costs_wanted = not lifted
    state.out.append(_solve(state, state.round, lifted))


def _solve(
    state: State, current: RoundState, lifted: Mapping[str, Snapshot] = NO_SNAPSHOTS
) -> Solve:
    """Ask for a plan, with how long jobs like those at hand ran."""
    return Solve(
        round=current.number,
        snapshot=current.snapshot,
        policy=current.policy,
        history=history_for(state.learning.ratios, state.of_kind),
        notes=state.learning.notes.get(current.policy, {}),
        lifted=lifted,
    )


def incumbent(state: State, event: IncumbentFound, now: float) -> None:
    """Commit what the first incumbent starts now."""
    current = state.round
    if current is None or current.number != event.round or current.committed or current.search:
        return
    if state.settings.rounds.commit_first_incumbent:
        plan = twins.once(state, current.snapshot, event.plan)
        rule = StartRule(state, now, event.plan.policy, current.number)
        plan = deadlines.in_time(state, plan, now)
        _start_now(rule, current, plan, PlanOrder.of(plan).starting(current.snapshot.time + NOW_S))


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
    told = twins.once(state, current.snapshot, event.plan)
    plan = deadlines.in_time(state, told, now)
    order = event.order if event.order and plan is event.plan else PlanOrder.of(plan)
    due = order.starting(current.snapshot.time + NOW_S)
    rule = StartRule(state, now, plan.policy, current.number)
    _start_now(rule, current, plan, due)
    queueing.queue_up(rule, current, plan)
    further_queues.send(state, current.snapshot, plan, now)
    _fill(state, current, plan, due, now)
    state.schedule.time = current.snapshot.time
    _keep_ahead(state, plan, order.planned[len(due) :], now)
    dispatch.adopt(state, order, current, rule.view)
    state.rounds.was_in_time(current.policy, len(current.snapshot.queue))
    if told is not event.plan and current.committed:
        state.rounds.want("site_shared")  # What was dropped is planned beside what has started.
    state.schedule.plan = told
    state.out.append(SavePlan(round=current.number, time=now, body=plan_to_keep(told)))
    notes = event.plan.stats.get(NOTES)  # for its next round; a plan without keeps them
    if isinstance(notes, Mapping) and notes != state.learning.notes.get(plan.policy):
        state.learning.notes[plan.policy] = notes
        state.out.append(SaveNotes(policy=plan.policy, notes=notes))
    head = write_plan(replace(told, placements=(), deferred=(), front=()))
    summary = {key: head[key] for key in ("policy", "status", "objective")}
    state.out.append(Publish(topic="round", body={"round": current.number, **summary}))
    _finish(state, current, told, event.solve_s, now)


def failed(state: State, event: SolveFailed, now: float) -> None:
    """Look for the job with which the policy fails, or fall back to the next of the chain."""
    current = state.round
    if current is None or (current.number, current.policy) != (event.round, event.policy):
        return
    if event.late:
        current.why, goes_on = event.why, False
        state.rounds.overran(event.policy, len(current.snapshot.queue), now)
    elif current.search is None:
        current.why = event.why
        queue = [job.id for job in current.snapshot.queue]
        current.search = Isolation(queue=queue, why=event.why, attempts=current.attempts)
        goes_on = current.search.begin(event.jobs)
    else:
        goes_on = current.search.failed(event.jobs)
    if not (goes_on and _attempt(state, current, now)):
        _next_policy(state, current, now)


def _attempt(state: State, current: RoundState, now: float) -> bool:
    """Ask the same policy without some jobs, if the round has the time."""
    search = current.search
    if search is None:
        return False
    current.attempts = search.attempts
    if search.attempts >= isolating.MOST_ATTEMPTS or now - current.started >= isolating.MOST_S:
        return False
    without = {*search.left_out(), *state.findings.aside, *state.findings.limited}
    current.snapshot = snapshots.snapshot(state, now, held=False, without=without)
    state.out.append(_solve(state, current))
    return True


def _next_policy(state: State, current: RoundState, now: float) -> None:
    """Fall back, with all jobs."""
    searched = current.search is not None and current.search.attempts > 0
    if current.search is not None:
        current.attempts, current.search = current.search.attempts, None
    following = current.chain.pop(0) if current.chain else ""
    overrun = state.rounds.overruns.get(current.policy)
    is_put_off = overrun is not None and now < overrun.until
    state.log(
        "policy_failed",
        level="error",
        round=current.number,
        policy=current.policy,
        why=current.why,
        fallback=following or "none",
        **({"cause": "no job was found that causes it"} if searched else {}),
        **({"asked_again_in_s": overrun.pause_s} if overrun and is_put_off else {}),
    )
    if following:
        current.policy = following
        if current.committed or searched:
            without = {*state.findings.aside, *state.findings.limited}
            current.snapshot = snapshots.snapshot(state, now, held=False, without=without)
        state.out.append(_solve(state, current))
        return
    state.log("round_failed", level="error", round=current.number, queued=current.queued)
    state.round = None
    state.rounds.finished(now, placed=False, jobs=state.pending.jobs, procs=state.pending.procs)


def _start_now(rule: StartRule, current: RoundState, plan: Plan, due: list[Placement]) -> None:
    """Start what the plan has now and still fits."""
    state, now = rule.state, rule.now
    if bills_differ(state):
        rule.places = FreePlaces(state, current.snapshot, plan, now)
    started: list[str] = []
    for placement in due:
        if placement.chunks is not None:
            continue
        record = startable(state, placement, now)
        if record is None:
            continue
        why = rule.obstacle(record, placement, now)
        if why and (record.flow or not current.taken.isdisjoint(placement.nodes)):
            continue  # It starts along the plan when its nodes are free.
        if why:
            _superseded(state, record.id, why)
            continue
        chosen = rule.begin(record, placement)
        if chosen is not None:
            current.count(chosen)
            started.append(record.id)
    if started:
        _count_passed_over(state, current, started, now)


def _superseded(state: State, job: str, why: str) -> None:
    outlook = Outlook(reason=Reason.SUPERSEDED, detail=why)
    state.findings.outlook[job] = outlook
    state.log("start_superseded", job=job, why=why)
    state.rounds.want("superseded")


def _fill(state: State, current: RoundState, plan: Plan, due: list[Placement], now: float) -> None:
    """Start the pieces of divisible jobs that the final plan has now, in what others leave free.

    Earlier incumbents start none: a better plan may want those nodes for other jobs.
    """
    pieces = [placement for placement in due if placement.chunks is not None]
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
            _superseded(state, pool.id, why)
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
    it was before theirs, see `core.sharing.priority`.
    """
    first = {job.id: job.priority for job in current.snapshot.queue} if is_on(state) else {}
    begun = sorted((first.get(job.partition(".")[0], 0.0), arrival(job)) for job in started)
    levels = [level for level, _ in begun]
    latest = list(accumulate((arrived for _, arrived in begun), max))
    for job in state.waiting_before(latest[-1]):
        not_before = bisect_right(levels, first.get(job, 0.0))
        if not_before == 0 or arrival(job) >= latest[not_before - 1]:
            continue
        record = state.jobs[job]
        is_held = record.state is not JobState.PENDING or record.opens(now) > now
        is_throttled = record.throttle and job in state.findings.limited
        if not (is_held or is_throttled or open_needs(state, record)):
            state.findings.passed_over[job] = state.findings.passed_over.get(job, 0) + 1


def _keep_ahead(state: State, plan: Plan, later: list[Placement], now: float) -> None:
    """Have kept what the plan tells of jobs that wait: at once, or in steps of the loop."""
    schedule = state.schedule
    schedule.unseen = [*later, *reversed(plan.deferred)]
    if len(schedule.unseen) > TOLD:
        state.out.append(Wake(at=now))
    else:
        look_ahead(state)


def look_ahead(state: State) -> None:
    """Keep start estimates and reasons for the jobs that wait, as many as one step may."""
    schedule, starts = state.schedule, dict[str, float]()
    for _ in range(min(TOLD, len(schedule.unseen))):
        told = schedule.unseen.pop()
        if told.job not in state.waiting:
            continue
        record = state.jobs[told.job]
        if isinstance(told, Placement):
            starts[record.id] = told.start
            nodes = told.nodes if len(told.nodes) != 1 else _alone(*told.nodes.items())
            outlook = Outlook(start=told.start, nodes=nodes, reason="planned")
        else:
            reason, detail = told.reason.value, told.detail
            refused = refused_by_all(state, record) or reserved_text(state, record, schedule.time)
            if refused and told.task is None:
                reason, detail = Reason.INSUFFICIENT.value, refused
            outlook = Outlook(reason=reason, detail=detail)
        state.findings.outlook[record.id] = outlook
    promises.keep(state, starts, schedule.time)


@lru_cache(maxsize=4096)
def _alone(node: tuple[str, int]) -> Mapping[str, int]:
    """The one node of many jobs, with one mapping for all of them."""
    return dict((node,))


def _finish(state: State, current: RoundState, plan: Plan, solve_s: float, now: float) -> None:
    state.round = None
    objective, gap = plan.objective, plan.objective.gap
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
        between=state.schedule.begun,
        coallocated=current.coallocated,
        stale=current.stale,
        objective=round(objective.value, 6),
        bound=None if objective.bound is None else round(objective.bound, 6),
        gap=None if gap is None else round(gap, 6),
        solve_s=round(solve_s, 4),
        total_s=round(now - current.started, 4),
    )
    state.schedule.begun = 0
    state.rounds.finished(
        now, placed=bool(current.committed), jobs=state.pending.jobs, procs=state.pending.procs
    )
