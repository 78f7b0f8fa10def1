"""Starts between two rounds, along the plan: work that ends or arrives is answered at once.

What the plan has next where room appears starts there if nothing that was planned before it still
waits (`core.base.plan_order`), and the data of a task's parents would have arrived. Room that those
may not have goes to others: see `core.rounds.filling`. What nothing answers asks for a round.

Notes
-----
What a turn costs does not depend on how much waits or runs: the lanes of the nodes concerned, and
`filling.MOST` jobs and nodes. A site that has `commit_first_incumbent` off has only tasks start so.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from coalloc.core.base.composites import ChunkPool, WorkflowState
from coalloc.core.base.plan_order import Entry, PlanOrder
from coalloc.core.base.state import RoundState, State, arrival
from coalloc.core.jobs.occupation import occupation
from coalloc.core.rounds.filling import Filling
from coalloc.core.rounds.turn import Turn, starts_jobs, waits
from coalloc.core.sharing.priority import is_on
from coalloc.core.starts.waits import has_share, is_crowded, is_shared
from coalloc.model.plan import Plan

SHORT_S = 0.1
"""A round that is over so soon is waited for, rather than room be filled without it."""


def adopt(state: State, plan: Plan, current: RoundState, now: float) -> None:
    """Follow a new plan from now on; where only tasks start so, one without leaves nothing to."""
    schedule, queue = state.schedule, current.snapshot.queue
    is_of_tasks = any(placement.task is not None for placement in plan.placements)
    if not (is_of_tasks or starts_jobs(state)):
        schedule.order, schedule.arrived = None, []
        return
    order = schedule.order = PlanOrder.of(
        plan,
        current.number,
        lambda entry: entry[0] not in current.changed and waits(state, entry),
    )
    order.is_fresh = True
    flows = (flow for flow in state.composites.values() if isinstance(flow, WorkflowState))
    order.is_whole = all(
        (flow.id, task) in order.placements for flow in flows for task in flow.open
    )
    if is_on(state):
        order.precedence = {j.id: (-j.priority, -j.weight, arrival(j.id)) for j in queue}
    else:
        schedule.turn_of = None
    for kept in current.snapshot.reservations:
        for node in kept.nodes:
            order.kept.setdefault(node, []).append(kept)
    known = {job.id for job in queue} - current.changed
    schedule.newcomers = {job: None for job in schedule.newcomers if job not in known}
    schedule.ranked, schedule.arrived = [], list(schedule.newcomers)
    free = occupation(state, now).free
    schedule.roomy = {node: None for node, slots in free.items() if slots > 0}
    schedule.freed.update(node for node in order.nodes() if node in schedule.roomy)


def carry_on(state: State, now: float) -> bool:
    """Start what the plan has next, after whatever has just happened.

    Returns whether that answers all that has: then no round is urgent for it.
    """
    schedule, order = state.schedule, state.schedule.order
    is_new = order is not None and order.is_fresh
    if not (is_new or schedule.freed or schedule.ripe or schedule.arrived):
        return False
    freed, schedule.freed = schedule.freed, set()
    ripe, schedule.ripe = schedule.ripe, {}
    has_ended, schedule.has_ended = schedule.has_ended, False
    is_news = has_ended or bool(schedule.arrived)
    if state.rounds.paused or state.rounds.blocked:
        return False
    if order is None:
        if ripe:
            state.rounds.happened("job_finished")
        return False
    if ripe and any(is_crowded(state, name) for name in state.clusters):
        state.rounds.happened("job_finished")  # What has no node yet takes its turn there.
    turn = Turn(state, order, now)
    fronts = {node: _fronts(state, order, node) for node in freed}
    todo = {entry for each in fronts.values() for entry in each}
    for entry in ripe:
        if entry in order.placements:
            todo.add(entry)
        elif waits(state, entry):
            state.rounds.happened("job_finished")
    is_fresh, order.is_fresh = order.is_fresh, False
    may_fill = is_news and starts_jobs(state) and not _is_soon(state, now)
    filling = Filling(turn, freed) if may_fill else None
    if filling is not None:
        filling.start_those_ahead()
    _start_all(turn, todo)
    if filling is not None and not order.is_strict:
        filling.fill()
    asks = _asks(turn, fronts, filling, has_ended=has_ended)
    is_looked_at = filling is not None or (is_fresh and not is_news)
    return is_looked_at and not asks and _has_places(state, now)


def _is_soon(state: State, now: float) -> bool:
    """Whether a round begins or runs that is over at once, as the last one: it chooses better."""
    if state.rounds.last_length_s > SHORT_S:
        return False
    if state.round is not None:
        return now - state.round.started <= SHORT_S
    due = state.rounds.due_at()
    return due is not None and due <= now


def _asks(
    turn: Turn, fronts: Mapping[str, list[Entry]], filling: Filling | None, *, has_ended: bool
) -> bool:
    """Whether a round is to come soon, for room that is left though something waits."""
    state, order, quick = turn.state, turn.order, starts_jobs(turn.state)
    more = state.pending.jobs > 0 or not order.is_whole
    for node, entries in fronts.items() if has_ended else ():
        turn.view.see((node,))
        is_left = not quick or turn.view.free.get(node, 0) > 0
        is_kept = quick and node in turn.kept
        of_jobs = any(not task for _, task in entries)
        if is_left and not is_kept and (of_jobs or (more and not entries)):
            state.rounds.happened("job_finished")
            return True
    return filling is not None and filling.is_room_left()


def _has_places(state: State, now: float) -> bool:
    """Starts between rounds suffice: no pieces wait, and no claims are to be sent ahead."""
    are_pieces = any(isinstance(flow, ChunkPool) for flow in state.composites.values())
    are_queues = any(is_shared(state, n, now) or has_share(state, n) for n in state.clusters)
    return starts_jobs(state) and not (are_pieces or are_queues)


def _fronts(state: State, plan_order: PlanOrder, node: str) -> list[Entry]:
    """The next entries on the lanes of a node; entries that wait no more are dropped."""
    while True:
        fronts = list(plan_order.next_on(node))
        gone = [entry for entry in fronts if not waits(state, entry)]
        if not gone:
            return fronts
        for entry in gone:
            plan_order.drop(entry)


def _start_all(turn: Turn, entries: Iterable[Entry]) -> None:
    """Start these, and what comes next behind them, by their planned starts."""
    order, of_jobs = turn.order, starts_jobs(turn.state)
    is_strict = order.is_strict and of_jobs
    todo = [_ranked(order, entry) for entry in entries if entry[1] or not is_strict]
    if is_strict:
        todo += [_ranked(order, entry) for entry in _first(turn)]
    heapq.heapify(todo)
    seen: set[Entry] = set()
    while todo:
        *_, entry = heapq.heappop(todo)
        placement = order.placements.get(entry)
        if placement is None or entry in seen or not order.is_next(entry):
            continue
        seen.add(entry)
        behind = [other for other in order.behind(entry) if other[1] or not is_strict]
        if not (entry[1] or of_jobs) or not turn.start(entry, placement):
            continue
        for other in (*behind, *(_first(turn) if is_strict else ())):
            if other in order.placements:
                heapq.heappush(todo, _ranked(order, other))


def _ranked(order: PlanOrder, entry: Entry) -> tuple[float, tuple[int, int], Entry]:
    return order.placements[entry].start, arrival(entry[0]), entry


def _first(turn: Turn) -> list[Entry]:
    """The one job that may start where none overtakes another, if the plan has a place for it."""
    return [(job, "") for job in turn.line(1) if (job, "") in turn.order.placements]


def return_due(state: State, now: float) -> None:
    """Look again at the tasks whose data have arrived by now."""
    due = [entry for entry, at in state.schedule.later.items() if at <= now]
    for entry in due:
        del state.schedule.later[entry]
        state.schedule.ripe[entry] = None
