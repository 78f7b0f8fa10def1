"""Places where a whole job may start at once: slots that are free for all of its run.

They are free beside what runs, what the plan has later, and all reservations, on clusters in whose
queue nobody else waits. A start of now moves to such a place where its accounts are charged less
for it and it ends no later: a process that takes a whole node of eight processors is billed eight.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import inf

from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.jobs.avoided_nodes import asked_of, avoided
from coalloc.core.jobs.eligibility import widest
from coalloc.core.jobs.occupation import occupation, parts_of, slots_on
from coalloc.core.jobs.offers import room_on
from coalloc.core.jobs.suitable_nodes import laid_out
from coalloc.core.starts.queued_claims import LEAST_POWER, nodes_for
from coalloc.core.starts.siblings import may_be_one
from coalloc.core.starts.waits import is_crowded
from coalloc.model.cost import run_time, within_limit
from coalloc.model.jobs import Job, RigidJob
from coalloc.model.plan import Placement, Plan
from coalloc.model.shape import ONE_SLOT, most_procs
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace

ALL_SLOTS = 1 << 40


class FreePlaces:
    """Free slots after a round has placed what it places, and the nodes that suit kinds of jobs.

    Slots are taken by what runs, by reservations, and by what starts now or later. Pieces of
    divisible jobs that the plan has later are left out: they fill what others leave.
    """

    def __init__(self, state: State, snapshot: Snapshot, plan: Plan, now: float) -> None:
        self._state, self._now = state, now
        self._cpus = {n.name: n.slot_cpus for each in state.clusters.values() for n in each.nodes}
        self._rooms: dict[Hashable, Sequence[NodeReading]] = {}
        self._view = occupation(state, now)
        self._busy: dict[str, list[tuple[float, float, int]]] = {}
        for work in snapshot.running:
            self._book(work.nodes, -inf, work.busy_until(now, snapshot.overrun_s))
        for planned in plan.placements:
            record = state.jobs.get(planned.job)
            if planned.chunks is None and record is not None:
                slots = slots_on(state.clusters.values(), record.job, planned.nodes)
                self._book(slots or planned.nodes, planned.start, planned.end)
        for kept in snapshot.reservations:
            self._book(dict.fromkeys(kept.nodes, ALL_SLOTS), kept.start, kept.end)

    def _book(self, nodes: Mapping[str, int], start: float, end: float) -> None:
        for name, count in nodes.items():
            self._busy.setdefault(name, []).append((start, end, count))

    def room(self, record: JobRecord, cluster: str) -> Sequence[NodeReading]:
        """The nodes of a cluster that suit a job; none where it takes no such job now."""
        who = (record.user, record.uid, record.gid)
        key = (cluster, who, asked_of(record), record.job.time_limit, widest(record.job))
        if key not in self._rooms:
            avoid = avoided(self._state.clusters[cluster], record, self._now)
            found = nodes_for(self._state, record, cluster, self._now) or ()
            self._rooms[key] = [node for node in found if node.name not in avoid]
        return self._rooms[key]

    def at_once(self, record: JobRecord, cluster: str, procs: int) -> Mapping[str, int]:
        """Nodes for so many processes that are free from now on for a job's run; {}: too few."""
        room = self.room(record, cluster)
        if not room or is_crowded(self._state, cluster):
            return {}
        end = self._now + seconds_on(self._state, record, cluster, room)
        counts = {node.name: self._procs(record.job, node, end) for node in room}
        free = {name: count for name, count in counts.items() if count}
        nodes = laid_out(record.job.shape, procs, free)
        return nodes if sum(nodes.values()) == procs else {}

    def _procs(self, job: Job, node: NodeReading, end: float) -> int:
        """Processes of a job for which a node is free in all of [now, end).

        Slots are counted over time; of memory and resources, what is free now.
        """
        taken = self._busy.get(node.name, ())
        left = node.slots - sum(count for s, e, count in taken if s < end and e > self._now)
        slots = max(0, min(left, self._view.free.get(node.name, 0)))
        if not slots or job.shape == ONE_SLOT:
            return min(slots, room_on(job, node))
        room = self._view.room(node.name)._replace(slots=slots)
        return min(room_on(job, node), most_procs(job.shape, job.memory_mb_per_proc, node, room))

    def take(self, record: JobRecord, nodes: Mapping[str, int]) -> None:
        """Book the room of a job that starts now."""
        self._view.place(replace(record, parts=parts_of(nodes, record.job, self._view)))

    def billed(self, record: JobRecord, nodes: Mapping[str, int]) -> int:
        """Processors that a job is charged for on these nodes."""
        return billed(self._state, record.job, nodes, self._cpus)


def cheaper(state: State, places: FreePlaces, record: JobRecord, placement: Placement) -> Placement:
    """A start of now on the cluster that bills least of those where it could start as well."""
    names = {name for name, each in state.clusters.items() if any(map(each.node, placement.nodes))}
    if len(names) > 1 or not may_be_one(record):
        return placement
    procs, planned = sum(placement.nodes.values()), placement.end - placement.start
    least, best = places.billed(record, placement.nodes), placement
    for name in record.job.clusters or state.clusters:
        if name in names or name in record.barred or name not in state.clusters:
            continue
        nodes = places.at_once(record, name, procs)
        room = [node for node in places.room(record, name) if node.name in nodes]
        billed = places.billed(record, nodes)
        if not room or billed >= least:
            continue
        seconds = seconds_on(state, record, name, room, planned=planned)
        if seconds <= planned:
            least = billed
            best = replace(placement, nodes=nodes, end=placement.start + seconds)
    if best is not placement:
        places.take(record, best.nodes)
    return best


def billed(state: State, job: Job, nodes: Mapping[str, int], cpus: Mapping[str, int]) -> int:
    """Processors that a job is charged for on these nodes; `cpus`: of a slot, by node."""
    slots = slots_on(state.clusters.values(), job, nodes) or nodes
    return sum(count * cpus.get(name, 1) for name, count in slots.items())


def bills_differ(state: State) -> bool:
    """Whether a slot is charged as more processors on some nodes than on others."""
    return len({n.slot_cpus for each in state.clusters.values() for n in each.nodes}) > 1


def seconds_on(
    state: State,
    record: JobRecord,
    cluster: str,
    used: Sequence[NodeReading],
    planned: float | None = None,
) -> float:
    """Run time of a job on these nodes; one whose size may change keeps its planned one."""
    job, step = record.job, state.settings.power.step
    if not isinstance(job, RigidJob):
        return record.planned if planned is None else planned
    power = min(state.clusters[cluster].power_of(node, step) for node in used)
    return within_limit(job, run_time(job.base_time, job.sigma, max(power, LEAST_POWER)))
