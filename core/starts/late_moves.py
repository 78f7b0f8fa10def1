"""Late moves: a job leaves the queue of a batch system where it would start much earlier elsewhere.

At the end of each round, a job that only waits in clusters' queues is compared with the other
clusters: where it would end earlier by more than a margin, the part that is expected to be granted
last is ordered out of its queue. That part alone decides. If it has left, the attempt is given up,
and the next round places the job without the clusters where it waited; if it was granted its nodes
meanwhile, it keeps them, and nothing has changed. Since no part starts before a start order, and
none is given to an attempt that is given up, a job never runs twice.

Notes
-----
- *Expected start* of a claim: what its batch system says; where it says nothing, as long as the
  last claims there waited; where none did, as long again as it has waited so far. What was said
  counts as *now* while it is overdue by no more than the margin.
- *Elsewhere*, where no job of others waits: from when on as many slots are free for the whole run,
  beside what runs, what the plan has later, and all reservations. Where others wait: as long as the
  last claims there waited, if any did.
- The margin doubles with each order for the same job, and the count is written with the order, so
  that a job which could gain G seconds at the most moves no more than log2(G / margin) + 1 times.
- Tasks of workflows and pieces of divisible jobs do not move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from coalloc.core.base.messages import WITHDRAW, Withdraw
from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.core.base.state import State, arrival
from coalloc.core.jobs.avoided_nodes import avoided
from coalloc.core.jobs.free_times import FreeTimes
from coalloc.core.jobs.occupation import LINK_TOLERANCE
from coalloc.core.jobs.offers import room_on
from coalloc.core.starts.queued_claims import LEAST_POWER, nodes_for
from coalloc.core.starts.waits import (
    Claims,
    behind_ours,
    expected_wait,
    is_crowded,
    jobs_ahead,
    nodes_held,
    waiting_claims,
    width_of,
)
from coalloc.model.cost import run_time, within_limit
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import MoldableJob, RigidJob, stays_whole
from coalloc.model.plan import Plan
from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Snapshot
from coalloc.model.split import filled, low_side, split
from coalloc.model.values import replace

MOST_JOBS = 100
"""Of those that wait longest, looked at in one round."""
MOST_DOUBLINGS = 40


class OtherPlace(Struct, frozen=True, kw_only=True):
    """Nodes for a job elsewhere; a queue there if there are none."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""
    nodes: Mapping[str, int]
    cluster: str


def order_moves(state: State, snapshot: Snapshot, plan: Plan, now: float) -> None:
    """Order jobs out of the queues where they would start much earlier elsewhere."""
    if state.settings.start.move_margin_s <= 0.0:
        return
    movable = [record for record in state.placed_records() if _may_move(record)]
    if not movable:
        return
    movable.sort(key=lambda record: arrival(record.id))
    times, claims = FreeTimes(state, snapshot, plan, now), waiting_claims(state)
    for record in movable[:MOST_JOBS]:
        _look_at(state, record, times, claims, now)


def _may_move(record: JobRecord) -> bool:
    """A whole job of ours that holds nothing yet, and waits in queues only."""
    if record.state is not JobState.PREPARING or record.flow or record.foreign:
        return False
    return isinstance(record.job, RigidJob | MoldableJob) and all(
        part.is_waiting and part.granted is None for part in record.parts
    )


def _look_at(state: State, record: JobRecord, times: FreeTimes, claims: Claims, now: float) -> None:
    """Order a job out of its queue if that is worth it, and say so once."""
    expected, last = expected_start(state, record, now)
    if record.leaving:  # Nobody else is asked: one part alone decides.
        last = next(part for part in record.parts if part.cluster == record.leaving)
    cluster = state.clusters[last.cluster]
    is_able = cluster.connected and WITHDRAW in (cluster.abilities or ())
    if not is_able or last.state is not PartState.WAITING:
        return
    before = record.moves - bool(record.leaving)
    margin = state.settings.start.move_margin_s * 2.0 ** min(before, MOST_DOUBLINGS)
    place = best_place(state, record, times, claims, now, before=expected + record.planned - margin)
    if place is None:
        return
    times.take(place.nodes, place.start, place.end)
    if not place.nodes:
        claims[place.cluster, record.user] += 1
    if not record.leaving:
        record = replace(record, leaving=last.cluster, moves=record.moves + 1)
        state.put(record)
        fields: dict[str, Any] = {
            "cluster": last.cluster,
            "to": place.cluster,
            "wait_there_s": round(expected - now, 3),
            "wait_elsewhere_s": round(place.start - now, 3),
            "gain_s": round(expected + record.planned - place.end, 3),
            "moves": record.moves,
        }
        state.emit(now, EventKind.MOVE_ORDERED, record.id, **fields)
        state.log("move_ordered", job=record.id, **fields)
    state.send(last.cluster, Withdraw(job=record.id, attempt=record.attempt))


def expected_start(state: State, record: JobRecord, now: float) -> tuple[float, PartRecord]:
    """The expected instant of a job's last grant, seconds, and the part that gets it.

    One that is put off is hastened when the others are granted.
    """
    parts = [part for part in record.parts if part.asked <= now] or list(record.parts)
    each = [_expected(state, part, now) for part in parts]
    start = max(each)
    return start, parts[each.index(start)]


def _expected(state: State, part: PartRecord, now: float) -> float:
    told = part.expected if part.state is PartState.WAITING else None
    if told is not None and told > now - state.settings.start.move_margin_s:
        return max(told, now)
    width = width_of(state, part)
    learnt = part.asked + expected_wait(state, part.cluster, part.ahead, width=width)
    return learnt if learnt > now else now + max(0.0, now - part.asked)


def best_place(
    state: State,
    record: JobRecord,
    times: FreeTimes,
    claims: Claims,
    now: float,
    *,
    before: float,
) -> OtherPlace | None:
    """The place on other clusters where a job ends first; None: it ends `before` (s) nowhere."""
    here = set(record.clusters)
    allowed = state.clusters if record.job.clusters is None else record.job.clusters
    rooms: dict[str, list[NodeReading]] = {}
    for name in allowed:
        if name in state.clusters and name not in here and name not in record.barred:
            avoid = avoided(state.clusters[name], record, now)
            found = nodes_for(state, record, name, now) or ()
            rooms[name] = [node for node in found if node.name not in avoid]
    free = {name: rooms[name] for name in rooms if not is_crowded(state, name)}
    places = [*_free_places(state, record, times, free, now, before)]
    places += _turns(state, record, claims, rooms, now)
    best = min(places, key=lambda place: place.end, default=None)
    return best if best is not None and best.end < before else None


def _free_places(
    state: State,
    record: JobRecord,
    times: FreeTimes,
    rooms: Mapping[str, list[NodeReading]],
    now: float,
    before: float,
) -> Iterator[OtherPlace]:
    """The first place on free nodes, if there is one."""
    if not any(rooms.values()):
        return
    for start in times.times:
        if start >= before:
            return
        place = _at(state, record, times, rooms, start, record.planned)
        if place is not None and place.end - start > record.planned:
            place = _at(state, record, times, rooms, start, place.end - start)
        if place is not None:
            yield place
            return


def _at(
    state: State,
    record: JobRecord,
    times: FreeTimes,
    rooms: Mapping[str, list[NodeReading]],
    start: float,
    seconds: float,
) -> OtherPlace | None:
    """The job on nodes that are free then for so long, on as few clusters as can hold it."""
    procs = sum(count for part in record.parts for count in part.nodes.values())
    found: dict[str, dict[str, int]] = {}
    for name, nodes in rooms.items():
        counts = {
            node.name: min(times.slots(node, start, start + seconds), room_on(record.job, node))
            for node in nodes
        }
        found[name] = {node: count for node, count in counts.items() if count > 0}
    gbps = (record.job.proc_gbps if isinstance(record.job, RigidJob | MoldableJob) else 0.0) or 0.0
    low = [
        0 if stays_whole(record.job) else low_side(procs, gbps, link, LINK_TOLERANCE)
        for link in map(times.link_free, found)
    ]
    shares = split(procs, [sum(counts.values()) for counts in found.values()], low)
    if shares is None:
        return None
    chosen: dict[str, int] = {}
    for share, counts in zip(shares, found.values(), strict=True):
        chosen |= filled(counts, share)
    used = [node for nodes in rooms.values() for node in nodes if node.name in chosen]
    first = next(name for name, share in zip(found, shares, strict=True) if share)
    end = start + _seconds(record, state, used, rooms)
    return OtherPlace(start=start, end=end, nodes=chosen, cluster=first)


def _seconds(
    record: JobRecord,
    state: State,
    used: Iterable[NodeReading],
    rooms: Mapping[str, list[NodeReading]],
) -> float:
    """Run time of a job on these nodes; one whose size may change keeps its planned one."""
    job = record.job
    if not isinstance(job, RigidJob):
        return record.planned
    step = state.settings.power.step
    home = {node.name: name for name, nodes in rooms.items() for node in nodes}
    powers = (state.clusters[home[node.name]].power_of(node, step) for node in used)
    return within_limit(job, run_time(job.base_time, job.sigma, max(min(powers), LEAST_POWER)))


def _turns(
    state: State,
    record: JobRecord,
    claims: Claims,
    rooms: Mapping[str, list[NodeReading]],
    now: float,
) -> Iterator[OtherPlace]:
    """Turns in the queues of clusters that can hold the job, where waits are known."""
    procs = sum(count for part in record.parts for count in part.nodes.values())
    for name, nodes in rooms.items():
        reading = state.clusters[name].reading
        if reading is None or not reading.queues or not is_crowded(state, name):
            continue
        if claims[name, record.user] >= state.settings.start.max_waiting:
            continue
        chosen = filled({node.name: room_on(record.job, node) for node in nodes}, procs)
        if sum(chosen.values()) < procs:
            continue
        width = nodes_held(state.clusters[name], chosen)
        wait = expected_wait(state, name, jobs_ahead(state, name), width=width)
        if wait > 0.0:
            start = now + max(wait, behind_ours(state, name, now))
            used = [node for node in nodes if node.name in chosen]
            end = start + _seconds(record, state, used, rooms)
            yield OtherPlace(start=start, end=end, nodes={}, cluster=name)
