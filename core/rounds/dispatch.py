"""Tasks that start between two rounds, along the plan.

When work ends, the tasks that the plan has next on its nodes, and those whose last parent it was,
start at once if nothing that was planned before them still waits there (`core.plan_order`) and the
data of their parents would have arrived. What the plan does not cover asks for a round.
"""

from __future__ import annotations

import heapq
from math import isfinite

from coalloc.core.base.composites import WorkflowState
from coalloc.core.base.effects import Wake
from coalloc.core.base.plan_order import Entry, PlanOrder
from coalloc.core.base.records import JobState
from coalloc.core.base.state import State
from coalloc.core.commands.reservations import is_kept_from
from coalloc.core.jobs.occupation import SlotsInUse, misfit, occupation
from coalloc.core.sharing.limit_book import LimitBook
from coalloc.core.sharing.limits import holds, start_of
from coalloc.core.starts.placements import Commitment, place, startable
from coalloc.core.starts.queued_claims import may_wait, must_wait
from coalloc.core.starts.waits import is_crowded, waiting_claims
from coalloc.model.cost import edge_delay
from coalloc.model.plan import Placement, Plan
from coalloc.model.platform import Cluster


def adopt(state: State, plan: Plan, round: int) -> None:
    """Follow a new plan from now on; one without tasks leaves nothing to follow."""
    if not any(placement.task is not None for placement in plan.placements):
        state.schedule.order = None
        return
    state.schedule.order = PlanOrder.of(plan, round, lambda entry: _waits(state, entry))
    state.schedule.order.is_fresh = True
    planned = state.schedule.order.placements
    state.schedule.order.is_whole = all(
        (flow.id, task) in planned for flow in state.composites.values() for task in flow.open
    )
    state.schedule.freed.update(state.schedule.order.nodes())


def _waits(state: State, entry: Entry) -> bool:
    """A placement has not been started, and still may be."""
    job, task = entry
    if not task:
        record = state.jobs.get(job)
        return record is not None and record.state is JobState.PENDING
    flow = state.composites.get(job)
    return isinstance(flow, WorkflowState) and task in flow.open


def carry_on(state: State, now: float) -> None:
    """Start what the plan has next, after whatever has just happened."""
    plan_order = state.schedule.order
    if not state.schedule.freed and not state.schedule.ripe:
        return
    freed, state.schedule.freed = state.schedule.freed, set()
    ripe, state.schedule.ripe = state.schedule.ripe, {}
    if state.rounds.paused or state.rounds.blocked:
        return
    if plan_order is None:
        if ripe:
            state.rounds.happened("job_finished")
        return
    if ripe and any(is_crowded(state, name) for name in state.clusters):
        state.rounds.happened("job_finished")  # What has no node yet takes its turn there.
    is_news, plan_order.is_fresh = not plan_order.is_fresh, False
    more = state.pending.jobs > 0 or not plan_order.is_whole
    todo: list[tuple[float, Entry]] = []
    for node in freed:
        fronts = _fronts(state, plan_order, node)
        todo += [(plan_order.placements[entry].start, entry) for entry in fronts if entry[1]]
        # Others start in rounds: when it is their turn here, or when nothing is planned here.
        if is_news and (any(not task for _, task in fronts) or (more and not fronts)):
            state.rounds.happened("job_finished")
    for entry in ripe:
        if entry in plan_order.placements:
            todo.append((plan_order.placements[entry].start, entry))
        elif _waits(state, entry):
            state.rounds.happened("job_finished")
    heapq.heapify(todo)
    _start_all(state, plan_order, todo, now)


def _fronts(state: State, plan_order: PlanOrder, node: str) -> list[Entry]:
    """The next entries on the lanes of a node; entries that wait no more are dropped."""
    while True:
        fronts = list(plan_order.next_on(node))
        gone = [entry for entry in fronts if not _waits(state, entry)]
        if not gone:
            return fronts
        for entry in gone:
            plan_order.drop(entry)


def _start_all(
    state: State, plan_order: PlanOrder, todo: list[tuple[float, Entry]], now: float
) -> None:
    view: SlotsInUse | None = None
    book = LimitBook(state, now)
    seen: set[Entry] = set()
    while todo:
        _, entry = heapq.heappop(todo)
        placement = plan_order.placements.get(entry)
        if placement is None or entry in seen or not plan_order.is_next(entry):
            continue
        seen.add(entry)
        record = startable(state, placement, now)
        if record is None:
            continue
        if view is None:
            view = occupation(state, now)
        if misfit(placement, record, view) or _is_reserved(state, placement, view, now):
            continue
        arrives = _arrival(state, placement, view, now)
        if arrives > now:
            if isfinite(arrives):
                state.schedule.later[entry] = arrives
                state.out.append(Wake(at=arrives))
            continue
        if holds(state, book, record, placement, now):
            continue
        queued = may_wait(state, record, placement, view, waiting_claims(state), now)
        if not queued and must_wait(state, placement, view):
            continue
        behind = list(plan_order.behind(entry))
        by = Commitment(
            state=state, view=view, now=now, policy=plan_order.policy, round=plan_order.round
        )
        place(by, record, placement, queued=queued)
        book.take(record, *start_of(state, record, placement))
        for other in behind:
            if other[1] and other in plan_order.placements:
                heapq.heappush(todo, (plan_order.placements[other].start, other))


def _is_reserved(state: State, placement: Placement, view: SlotsInUse, now: float) -> bool:
    """A batch system, or an operator, keeps one of the nodes for others while the task would run.

    The plan has it after such a time; who starts earlier must end before it.
    """
    end = now + placement.end - placement.start
    if is_kept_from(state, state.jobs[placement.job].user, placement.nodes, now, end):
        return True
    for name in dict.fromkeys(view.cluster_of[node] for node in placement.nodes):
        reading = state.clusters[name].reading
        for kept in () if reading is None else reading.reservations:
            is_then = kept.start < end and kept.end > now and placement.job not in kept.jobs
            if is_then and any(node in placement.nodes for node in kept.nodes):
                return True
    return False


def _arrival(state: State, placement: Placement, view: SlotsInUse, now: float) -> float:
    """Arrival of the data of a task's parents on the clusters it is planned on, seconds."""
    assert placement.task is not None
    flow = state.composites[placement.job]
    assert isinstance(flow, WorkflowState)
    there = {view.cluster_of[node] for node in placement.nodes}
    latest = float("-inf")
    for edge in flow.parents[placement.task]:
        parent = state.jobs[flow.job_of(edge.parent)]
        places = {part.cluster for part in parent.parts if part.cluster in state.clusters}
        if not places or places == there or parent.ended is None:
            continue
        links = {name: _link(state, name) for name in places | there}
        latest = max(latest, min(parent.ended, now) + edge_delay(edge, places, there, links))
    return latest


def _link(state: State, name: str) -> Cluster:
    """A cluster as far as data that move to it are concerned."""
    site = state.clusters[name].settings
    return Cluster(
        name=name, nodes=(), link_gbps=site.link_capacity_gbps, link_latency_s=site.link_latency_s
    )


def return_due(state: State, now: float) -> None:
    """Look again at the tasks whose data have arrived by now."""
    due = [entry for entry, at in state.schedule.later.items() if at <= now]
    for entry in due:
        del state.schedule.later[entry]
        state.schedule.ripe[entry] = None
