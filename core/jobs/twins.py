"""Clusters that are one machine, read by several owners: none of its slots goes twice.

What a part holds counts on the *twins* of its cluster until they have been read since it was
granted: then their own readings have it, as work of others. So a reading bounds its owner's jobs
only, and nobody keeps another's slots by mere statements. A policy plans each cluster by itself; of
its plan, a node is for one owner at a time (`once`), and the next round plans the others.

A reading of one that the operator names in ``readings.readers`` is that of its twins, too
(`as_twin`). What our parts hold there of the reader's own is then counted from their records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State
from coalloc.model.plan import Deferred, Placement, Plan, Reason
from coalloc.model.sites.parts import PART_ENDED
from coalloc.model.sites.reading import ClusterReading
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.values import replace

Kept = TypeVar("Kept", Running, Reservation)
LATER = "its nodes go to a job of another user of the same machine first"


def twins_of(state: State, name: str) -> list[str]:
    """The other clusters that are the same machine (`ClusterReading.site`)."""
    reading = state.clusters[name].reading if name in state.clusters else None
    if reading is None or not reading.site:
        return []
    others = ((n, c.reading) for n, c in state.clusters.items() if n != name)
    return [other for other, read in others if read is not None and read.site == reading.site]


def reader_of(state: State, name: str, now: float) -> str:
    """The twin that is read for this cluster, too; empty: its own executor has to read it."""
    readings = state.settings.readings
    if not readings.readers or name in readings.readers or state.clusters[name].has_failed:
        return ""
    found = (twin for twin in twins_of(state, name) if twin in readings.readers)
    return next((t for t in found if not state.clusters[t].is_stale(now, readings.max_age_s)), "")


def as_twin(state: State, reading: ClusterReading, own: ClusterReading) -> ClusterReading:
    """A reading as that of a twin: without the twin's parts, and with its user's rules in `own`."""
    twin = own.cluster
    parts = {
        (record.id, record.attempt)
        for record in state.placed_records()
        for part in record.parts
        if part.cluster == twin and part.state not in PART_ENDED
    }
    mine = {claim.id: claim for claim in reading.claims if (claim.job, claim.attempt) in parts}

    def named(each: Kept) -> Kept:
        return replace(each, id=twin + each.id.removeprefix(reading.cluster))

    return replace(
        reading,
        cluster=twin,
        nodes=tuple(replace(node, name=_node_on(twin, node.name)) for node in reading.nodes),
        running=tuple(
            replace(named(work), nodes={_node_on(twin, n): k for n, k in work.nodes.items()})
            for work in reading.running
            if work.id not in mine
        ),
        reservations=tuple(
            replace(named(each), nodes=tuple(_node_on(twin, name) for name in each.nodes))
            for each in reading.reservations
            if each.id not in mine
        ),
        waiting=reading.waiting - sum(not claim.holds for claim in mine.values()),
        claims=(),
        **{word: getattr(own, word) for word in ("rules", "way", "share", "rpcs_per_min")},
    )


def held_on(state: State, twins: list[str], name: str, node: str) -> int:
    """Slots of a cluster's node that parts on its twins hold, and its readings do not have yet."""
    return sum(
        part.held.get(_node_on(twin, node), 0)
        for twin in twins
        for record in state.held_on((_node_on(twin, node),))
        for part in record.parts
        if part.cluster == twin and _is_unread(state, part, name)
    )


def runs_on_twins(state: State, record: JobRecord, run: Running) -> Iterator[Running]:
    """A placed job's run as the twins of its clusters have it."""
    for part in record.parts:
        for twin in twins_of(state, part.cluster):
            nodes = {_node_on(twin, n): run.nodes[n] for n in part.held if n in run.nodes}
            if nodes and _is_unread(state, part, twin):
                yield Running(id=f"{run.id}@{twin}", nodes=nodes, start=run.start, end=run.end)


def once(state: State, snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without placements on nodes that a twin's placement has at the time.

    The one that starts first stays, or the one whose job is first in the queue.
    """
    twins = {cluster.name: twins_of(state, cluster.name) for cluster in snapshot.clusters}
    if not any(twins.values()):
        return plan
    home = {node.name: cluster.name for cluster, node in snapshot.nodes() if twins[cluster.name]}
    place = {job.id: index for index, job in enumerate(snapshot.queue)}
    kept: dict[str, list[Placement]] = defaultdict(list)
    dropped: dict[int, Placement] = {}
    order = sorted(plan.placements, key=lambda p: (p.start, place.get(p.job, 0)))
    for one in order:
        mine = [name for name in one.nodes if name in home]
        theirs = (kept[_node_on(twin, name)] for name in mine for twin in twins[home[name]])
        if any(one.start < then.end and then.start < one.end for on in theirs for then in on):
            dropped[id(one)] = one
        for name in mine if id(one) not in dropped else ():
            kept[name].append(one)
    if not dropped:
        return plan
    stay = tuple(one for one in plan.placements if id(one) not in dropped)
    later = [(one.job, one.task) for one in dropped.values()]
    said = (Deferred(job=j, task=t, reason=Reason.INSUFFICIENT, detail=LATER) for j, t in later)
    return replace(plan, placements=stay, deferred=(*plan.deferred, *said))


def _node_on(twin: str, node: str) -> str:
    return f"{twin}/{node.rpartition('/')[2]}"


def _is_unread(state: State, part: PartRecord, twin: str) -> bool:
    if part.state in PART_ENDED or part.is_waiting:
        return False
    if state.clusters[twin].read_by == part.cluster:
        return True
    # A reading may have begun so long before it was taken in.
    begun = state.clusters[twin].read_at - state.settings.readings.timeout_s
    return part.granted is None or begun <= part.granted
