"""One scheduling round, as the daemon's core sees it.

1. assemble the snapshot  2. have it solved  3. on the first incumbent and on the final plan,
commit the placements that start now and still fit  4. keep the rest as start estimates; tasks
of workflows start along it without another round (`core.rounds.dispatch`).
Where a policy fails, the job is looked for with which it does (`core.rounds.isolation`); if none is
found, the next policy of the fallback chain has its turn. So it has at once where the time limit
came first, and the next rounds of queues as long begin with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalloc.core.base.effects import Publish, RoundFinished, SaveNotes, SavePlan, Solve, Wake
from coalloc.core.base.events import IncumbentFound, Solved, SolveFailed
from coalloc.core.base.round_control import OPERATOR, Isolation
from coalloc.core.base.state import RoundState, State
from coalloc.core.base.state_tables import Outlook
from coalloc.core.clusters import presence
from coalloc.core.jobs import deadlines, twins
from coalloc.core.jobs.eligibility import refused_by_all, reserved_text
from coalloc.core.learning import promises
from coalloc.core.learning.estimates import UserProgram, history_for
from coalloc.core.rounds import commitment as committing
from coalloc.core.rounds import dispatch, snapshots
from coalloc.core.rounds import isolation as isolating
from coalloc.core.sharing import limits
from coalloc.core.starts import further_queues
from coalloc.core.starts import queued_claims as queueing
from coalloc.core.starts.placements import NOW_S
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.history import NO_HISTORY
from coalloc.model.plan import NOTES, Plan, Reason
from coalloc.model.snapshot import Snapshot

NO_SNAPSHOTS: Mapping[str, Snapshot] = {}


def begin_if_due(state: State, now: float) -> None:
    """Start the round that is wanted, if its time has come; else ask to be woken then."""
    due = state.rounds.due_at()
    if due is None:
        return
    if state.rounds.wanted != OPERATOR and presence.is_gathering(state, now):
        due = state.presence.gathers_until
    if due > now:
        state.out.append(Wake(at=due))
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
    state.out.append(_solve(state, snapshot, chain[0], lifted))


def _solve(
    state: State, snapshot: Snapshot, policy: str, lifted: Mapping[str, Snapshot] = NO_SNAPSHOTS
) -> Solve:
    """Ask for a plan, with how long jobs like those at hand ran."""
    history = NO_HISTORY
    if state.learning.ratios:
        views = (snapshot, *lifted.values())
        names = dict.fromkeys(job.id for view in views for job in (*view.queue, *view.running))
        records = [state.jobs[name] for name in names if name in state.jobs]
        keys = {r.id: UserProgram.of(r).history_keys for r in records}
        history = history_for(state.learning.ratios, keys)
    return Solve(
        round=state.last.round,
        snapshot=snapshot,
        policy=policy,
        history=history,
        notes=state.learning.notes.get(policy, {}),
        lifted=lifted,
    )


def incumbent(state: State, event: IncumbentFound, now: float) -> None:
    """Commit what the first incumbent starts now."""
    current = state.round
    if current is None or current.number != event.round or current.committed or current.search:
        return
    if state.settings.rounds.commit_first_incumbent:
        plan = twins.once(state, current.snapshot, event.plan)
        committing.start_now(state, current, deadlines.in_time(state, plan, now), now)


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
    committing.start_now(state, current, plan, now)
    queueing.queue_up(state, current, plan, now)
    further_queues.send(state, current.snapshot, plan, now)
    committing.fill(state, current, plan, now)
    _look_ahead(state, current, plan)
    dispatch.adopt(state, plan, current, now)
    state.rounds.was_in_time(current.policy, len(current.snapshot.queue))
    if told is not event.plan and current.committed:
        state.rounds.want("site_shared")  # What was dropped is planned beside what has started.
    body = write_plan(told)
    state.schedule.plan, state.schedule.time = told, current.started
    state.out.append(SavePlan(round=current.number, time=now, body=body))
    notes = event.plan.stats.get(NOTES)  # for its next round; a plan without keeps them
    if isinstance(notes, Mapping) and notes != state.learning.notes.get(plan.policy):
        state.learning.notes[plan.policy] = notes
        state.out.append(SaveNotes(policy=plan.policy, notes=notes))
    summary = {key: body[key] for key in ("policy", "status", "objective")}
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
    if search is None or not isolating.may_go_on(current, search, now):
        return False
    without = {*search.left_out(), *state.findings.aside, *state.findings.limited}
    current.snapshot = snapshots.snapshot(state, now, held=False, without=without)
    state.out.append(_solve(state, current.snapshot, current.policy))
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
        state.out.append(_solve(state, current.snapshot, following))
        return
    state.log("round_failed", level="error", round=current.number, queued=current.queued)
    state.round = None
    state.rounds.finished(now, placed=False, jobs=state.pending.jobs, procs=state.pending.procs)


def _look_ahead(state: State, current: RoundState, plan: Plan) -> None:
    """Keep start estimates and reasons for the jobs that wait."""
    for deferred in plan.deferred:
        if deferred.job in state.waiting:
            reason, detail = str(deferred.reason), deferred.detail
            refused = refused_by_all(state, state.jobs[deferred.job])
            if not refused:
                refused = reserved_text(state, state.jobs[deferred.job], current.snapshot.time)
            if refused and deferred.task is None:
                reason, detail = str(Reason.INSUFFICIENT), refused
            state.findings.outlook[deferred.job] = Outlook(
                round=current.number, reason=reason, detail=detail
            )
    starts: dict[str, float] = {}
    for placement in sorted(plan.placements, key=lambda p: p.start, reverse=True):
        if placement.job in state.waiting and placement.start > current.snapshot.time + NOW_S:
            starts[placement.job] = placement.start
            state.findings.outlook[placement.job] = Outlook(
                round=current.number, start=placement.start, nodes=placement.nodes, reason="planned"
            )
    promises.keep(state, starts, current.snapshot.time)


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
