"""Starts between two rounds, along the plan: work that ends or arrives is answered at once.

What the plan has next where room appears starts there if nothing that was planned before it still
waits (`core.base.plan_order`), and the data of a task's parents would have arrived. What nothing
answers asks for a round.

Room that what the plan has next there may not have now goes to others. Looked at are the first
`MOST` jobs of the plan's order and of those that came since, and as many nodes. A rigid job starts
on free nodes of one cluster where it ends before every planned start that needs its slots, and no
later than the plan has it. It need not end before what is planned there of others if its owner's
turn comes first (`core.sharing.priority`), wherever the plan has it: the first waiting job of each
owner, and those that came since, are looked at before anything else. So a round weighs shares
against lengths, and a slot that becomes free goes by shares.

Notes
-----
What a turn costs does not depend on how much waits or runs: the lanes of the nodes concerned, and
`MOST` jobs, owners and nodes. A site that has `commit_first_incumbent` off has only tasks start so.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from math import inf
from operator import attrgetter

from coalloc.core.base.composites import ChunkPool, WorkflowState
from coalloc.core.base.effects import Wake
from coalloc.core.base.plan_order import Entry, PlanOrder, Precedence, first_of
from coalloc.core.base.projects import ProjectUser
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import RoundState, State, arrival
from coalloc.core.jobs.occupation import SlotsInUse
from coalloc.core.jobs.suitable_nodes import laid_out, procs_on
from coalloc.core.rounds.turn import Turn, starts_jobs, waits
from coalloc.core.sharing.priority import is_on, owner_of
from coalloc.core.starts.free_places import billed, seconds_on
from coalloc.core.starts.queued_claims import takers
from coalloc.core.starts.waits import has_share, is_crowded, is_shared
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement
from coalloc.model.shape import ONE_SLOT, most_procs
from coalloc.model.sites.reading import NodeReading

SHORT_S = 0.1
"""A round that is over so soon is waited for, rather than room be filled without it; but for one
process that waits alone."""


MOST = 64
"""Jobs, and nodes, that one turn looks at."""
MOST_ARRIVED = 1000
"""Newcomers that are put in the order of their turns at one time."""


class Filling:
    """The free nodes of one turn, by cluster, and the newcomers."""

    def __init__(self, turn: Turn, freed: Collection[str]) -> None:
        schedule = turn.state.schedule
        self.turn, self.arrived = turn, _take_arrived(turn.state, turn.now)
        self._roomy = schedule.roomy
        self._nodes = dict.fromkeys((*islice(freed, MOST), *islice(self._roomy, MOST)))
        self._free: dict[str, list[NodeReading]] = {}

    def start_those_ahead(self) -> None:
        """Start jobs whose owner's turn it is before that of others who have these nodes next."""
        latest = self._latest()
        if latest and not self.turn.order.is_strict and self._look():
            while self._free and any(self._try(job, at) for at, job in self._due(latest)):
                continue

    def _latest(self) -> dict[ProjectUser, Precedence]:
        """The places of what the plan has next on these nodes: of each owner the latest."""
        order, latest = self.turn.order, dict[ProjectUser, Precedence]()
        for entry in chain.from_iterable(map(order.fronts, self._nodes)):
            if (place := order.precedence.get(entry[0])) and waits(self.turn.state, entry):
                owner = self._owner(entry[0])
                latest[owner] = max(place, latest.get(owner, place))
        return latest

    def _due(self, latest: Mapping[ProjectUser, Precedence]) -> Iterator[tuple[Precedence, str]]:
        """The first planned job of each owner, and newcomers, that go before others' `latest`."""
        state, order = self.turn.state, self.turn.order
        heads = (
            first_of(line, 1, lambda job: waits(state, (job, ""))) for line in order.turns[:MOST]
        )
        planned = [(order.precedence[job], job) for job in chain.from_iterable(heads)]
        for place, job in sorted((*planned, *self._newcomers())):
            own = self._owner(job)
            if any(place < other for owner, other in latest.items() if owner != own):
                yield place, job

    def _owner(self, job: str) -> ProjectUser:
        return owner_of(self.turn.state, self.turn.state.jobs[job])

    def fill(self) -> None:
        """Start what fits beside all that is planned, in the plan's order, then newcomers."""
        if not self._look():
            return
        for job in (*self.turn.line(MOST), *(job for _, job in self._newcomers())):
            if not self._free:
                return
            self._try(job)

    def is_room_left(self) -> bool:
        """Whether something that has just arrived waits though nodes have free slots."""
        newcomers = self.turn.state.schedule.newcomers
        return any(job in newcomers for job in self.arrived) and self._look()

    def _newcomers(self) -> list[tuple[Precedence, str]]:
        state = self.turn.state
        of = state.schedule.newcomers
        return first_of(
            state.schedule.ranked, MOST, lambda row: row[1] in of and waits(state, (row[1], ""))
        )

    def _look(self) -> bool:
        """Find the nodes with free slots, the fastest first; whether there are any.

        Of equals the first of their cluster's come first, as in a round.
        """
        view, clusters = self.turn.view, self.turn.state.clusters
        free: dict[str, list[tuple[float, int, NodeReading]]] = {}
        step = self.turn.state.settings.power.step
        view.see(self._nodes)
        for name in self._nodes:
            cluster = view.cluster_of.get(name, "")
            if view.free.get(name, 0) <= 0:
                self._roomy.pop(name, None)
            elif (place := clusters[cluster].place_of(name)) is not None:
                node = clusters[cluster].nodes[place]
                row = -clusters[cluster].power_of(node, step), place, node
                free.setdefault(cluster, []).append(row)
        self._free = {name: [row[2] for row in sorted(rows)] for name, rows in free.items()}
        return bool(free)

    def _try(self, job: str, before: Precedence | None = None) -> bool:
        turn, record = self.turn, self.turn.state.jobs[job]
        placement = self._place(record, before)
        is_begun = placement is not None and turn.start((job, ""), placement, is_early=True)
        if is_begun:
            self._look()
        return is_begun

    def _place(self, record: JobRecord, before: Precedence | None) -> Placement | None:
        """The place where a job ends first on free nodes, beside what is planned there.

        Of those where it ends as soon, one for which its accounts are charged least. `before`:
        where it goes before whatever comes later than this.
        """
        job, turn = record.job, self.turn
        if not isinstance(job, RigidJob) or record.foreign or job.shape.per_job:
            return None
        planned = turn.order.placements.get((job.id, ""))
        latest, best = inf if planned is None else planned.end, None
        least = inf, inf
        for name, free in self._free.items():
            nodes = takers(turn.state, record, name, free, turn.now)
            if not nodes:
                continue
            slowest = turn.now + seconds_on(turn.state, record, name, nodes)
            rooms = {node.name: self._room(job, node, slowest, before) for node in nodes}
            chosen = laid_out(job.shape, job.procs, rooms)
            if sum(chosen.values()) != job.procs:
                continue
            used = [node for node in nodes if node.name in chosen]
            end = turn.now + seconds_on(turn.state, record, name, used)
            cost = billed(turn.state, job, chosen, {node.name: node.slot_cpus for node in used})
            if end <= latest and (end, cost) < least:
                least = end, cost
                best = Placement(job=job.id, start=turn.now, end=end, nodes=chosen)
        return best

    def _room(self, job: RigidJob, node: NodeReading, end: float, before: Precedence | None) -> int:
        """Processes for which a node has room until then."""
        slots = self._spare(job, node.name, end, before)
        if not slots or job.shape == ONE_SLOT:
            return min(slots, procs_on(job, node, job.shape))
        room = self.turn.view.room(node.name)._replace(slots=slots)
        return most_procs(job.shape, job.memory_mb_per_proc, node, room)

    def _spare(self, job: RigidJob, node: str, end: float, before: Precedence | None) -> int:
        """Free slots of a node that no planned start before `end` needs."""
        state, order, now = self.turn.state, self.turn.order, self.turn.now
        free = self.turn.view.free[node]
        starts = []
        for entry in filter(lambda entry: waits(state, entry), order.fronts(node)):
            start, place = order.placements[entry].start, order.precedence.get(entry[0])
            is_after = before is not None and place is not None and place > before
            is_after = is_after and self._owner(entry[0]) != self._owner(job.id)
            if start < end and entry[0] != job.id and not is_after:
                if state.jobs[entry[0]].job.shape != job.shape or job.shape != ONE_SLOT:
                    return 0  # It may need more of the node than slots.
                starts.append(start)
        ends: list[tuple[float, int]] = []
        for record in state.held_on((node,)) if starts else ():
            over = record.planned + (now if record.started is None else record.started)
            slots = sum(part.held.get(node, 0) for part in record.parts)
            ends.append((over if over > now else inf, slots))
        least = free
        for count, start in enumerate(sorted(starts), 1):
            least = min(least, free - count + sum(n for over, n in ends if over <= start))
        return max(0, least)


def _take_arrived(state: State, now: float) -> list[str]:
    """Put newcomers in the order of their turns, as many as may be at one time; returns these."""
    schedule = state.schedule
    if schedule.last_turn != now:
        schedule.last_turn, schedule.room = now, MOST_ARRIVED
    arrived = schedule.arrived[: schedule.room]
    if arrived:
        schedule.room -= len(arrived)
        schedule.arrived = schedule.arrived[len(arrived) :]
    if schedule.arrived:
        state.out.append(Wake(at=now))
    for job in arrived:
        if job in schedule.newcomers and schedule.newcomers[job] is None:
            place = 0.0, 0.0, arrival(job)
            if schedule.turn_of is not None:
                place = schedule.turn_of(state.jobs[job])
            schedule.newcomers[job] = place
            insort(schedule.ranked, (place, job))
    return arrived


def adopt(state: State, order: PlanOrder, current: RoundState, view: SlotsInUse) -> None:
    """Follow a new plan from now on; where only tasks start so, one without leaves nothing to.

    `view`: what is free on all nodes, or was before the last starts of this turn.
    """
    schedule, queue = state.schedule, current.snapshot.queue
    if not (order.tasks or starts_jobs(state)):
        schedule.order, schedule.arrived = None, []
        return
    # As `waits` has it, for many jobs at once: but for these, those of the snapshot wait still.
    looked_at = (*current.touched, *state.composites)
    gone = current.changed.union(job for job in looked_at if not waits(state, (job, "")))
    order.leave_out(gone, lambda task: task[0] in current.changed or not waits(state, task))
    schedule.order, order.round, order.is_fresh = order, current.number, True
    if not queue:  # no policy was asked
        order.policy = state.settings.rounds.policy
    flows = (flow for flow in state.composites.values() if isinstance(flow, WorkflowState))
    order.is_whole = all(
        (flow.id, task) in order.placements for flow in flows for task in flow.open
    )
    if is_on(state):
        order.precedence = {j.id: (-j.priority, -j.weight, arrival(j.id)) for j in queue}
        # Jobs whose priority an operator has set take turns apart from the owner's others.
        order.take_turns(lambda job: (owner_of(state, state.jobs[job]), state.jobs[job].priority))
    else:
        schedule.turn_of = None
    for kept in current.snapshot.reservations:
        for node in kept.nodes:
            order.kept.setdefault(node, []).append(kept)
    known = set(map(attrgetter("id"), queue)).difference(current.changed)
    schedule.newcomers = {job: None for job in schedule.newcomers if job not in known}
    schedule.ranked, schedule.arrived = [], list(schedule.newcomers)
    schedule.roomy = {node: None for node, slots in view.free.items() if slots > 0}
    schedule.freed.update(filter(order.is_on, schedule.roomy))


def carry_on(state: State, now: float) -> bool:
    """Start what the plan has next, after whatever has just happened.

    Returns whether that answers all that has: then no round is urgent for it.
    """
    schedule, order = state.schedule, state.schedule.order
    is_new = order is not None and order.is_fresh
    if not (is_new or schedule.freed or schedule.ripe or schedule.arrived):
        return False
    freed, schedule.freed = schedule.freed, set()
    schedule.roomy.update(dict.fromkeys(freed))
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
    is_soon = not _is_lone_process(state) and _is_soon(state, now)
    if not (is_new or ripe or schedule.roomy or order.is_strict):  # newcomers, and room for none
        if is_soon or not starts_jobs(state):
            return False
        _take_arrived(state, now)
        return _has_places(state, now)
    turn = Turn(state, order, now)
    filling = Filling(turn, freed) if is_news and starts_jobs(state) else None
    if filling is not None:
        filling.start_those_ahead()
    fronts = {node: _fronts(state, order, node) for node in freed}
    todo = {entry for each in fronts.values() for entry in each}
    for entry in ripe:
        if entry in order.placements:
            todo.add(entry)
        elif waits(state, entry):
            state.rounds.happened("job_finished")
    is_fresh, order.is_fresh = order.is_fresh, False
    _start_all(turn, todo)
    if filling is not None and is_soon:
        schedule.arrived, filling = filling.arrived + schedule.arrived, None
    if filling is not None and not order.is_strict:
        filling.fill()
    asks = _asks(turn, fronts, filling, has_ended=has_ended)
    is_looked_at = filling is not None or (is_fresh and not is_news)
    return is_looked_at and not asks and _has_places(state, now)


def _is_lone_process(state: State) -> bool:
    """At most one process waits, and all free nodes are looked at: no round chooses better."""
    return state.pending.procs <= 1 and len(state.schedule.roomy) <= MOST


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
