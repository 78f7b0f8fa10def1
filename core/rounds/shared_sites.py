"""Plans that have every slot of a machine once, though several owners' clusters are that machine.

A policy plans each cluster by its own reading. Of placements that need the same slots at the same
time on twins (`core.jobs.twins`), the one that starts first stays, or that of the job that is first
in the queue; the next round plans the others beside what has started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from coalloc.core.base.state import State
from coalloc.core.jobs.occupation import slots_on
from coalloc.model.plan import Deferred, Placement, Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace

LATER = "its nodes go to a job of another user of the same machine first"
Span = tuple[float, float, int]
"""Start and end, seconds, and slots."""


def once(state: State, snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without placements on slots that a twin's placement has."""
    machine = _machines(state, snapshot)
    if not machine:
        return plan
    slots = {node.name: node.slots for _, node in snapshot.nodes()}
    running: dict[str, list[Span]] = defaultdict(list)
    for work in snapshot.running:
        for name, count in work.nodes.items():
            span = snapshot.time, work.busy_until(snapshot.time, snapshot.overrun_s), count
            running[name].append(span)
    place = {job.id: index for index, job in enumerate(snapshot.queue)}
    planned: dict[str, list[Span]] = defaultdict(list)
    kept, dropped = [], []
    for placement in sorted(plan.placements, key=lambda p: (p.start, place.get(p.job, 0))):
        mine = _slots(state, placement)
        if all(
            _has_room(slots[name], count, placement, (*running[name], *planned[machine[name]]))
            for name, count in mine.items()
            if name in machine
        ):
            kept.append(placement)
            for name in mine.keys() & machine.keys():
                planned[machine[name]].append((placement.start, placement.end, mine[name]))
        else:
            dropped.append(placement)
    if not dropped:
        return plan
    later = (
        Deferred(job=each.job, task=each.task, reason=Reason.INSUFFICIENT, detail=LATER)
        for each in dropped
    )
    return replace(plan, placements=tuple(kept), deferred=(*plan.deferred, *later))


def _machines(state: State, snapshot: Snapshot) -> dict[str, str]:
    """By node of clusters that have twins: the machine's node that it is."""
    sites = defaultdict(list)
    for cluster in snapshot.clusters:
        reading = state.clusters[cluster.name].reading if cluster.name in state.clusters else None
        if reading is not None and reading.site:
            sites[reading.site].append(cluster)
    return {
        node.name: f"{site}/{node.name.rpartition('/')[2]}"
        for site, clusters in sites.items()
        if len(clusters) > 1
        for cluster in clusters
        for node in cluster.nodes
    }


def _slots(state: State, placement: Placement) -> Mapping[str, int]:
    record = state.jobs.get(placement.job)
    if record is None:
        return placement.nodes
    return slots_on(state.clusters.values(), record.job, placement.nodes) or placement.nodes


def _has_room(slots: int, count: int, placement: Placement, taken: Iterable[Span]) -> bool:
    """Whether a node has so many slots left at every instant of a placement."""
    meeting = [each for each in taken if each[0] < placement.end and each[1] > placement.start]
    instants = {placement.start, *(start for start, _, _ in meeting if start > placement.start)}
    return all(
        count + sum(n for start, end, n in meeting if start <= at < end) <= slots for at in instants
    )
