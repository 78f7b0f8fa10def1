"""From a placement that starts now to the parts of a job, if it still fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.composites import WorkflowState
from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State, arrival
from coalloc.core.jobs.eligibility import OLDER, is_older
from coalloc.core.jobs.twins import held_on, runs_on_twins, twins_of
from coalloc.model.cost import link_loads, task_loads
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.plan import Placement
from coalloc.model.platform import NodeState
from coalloc.model.shape import (
    ONE_SLOT,
    Amounts,
    Room,
    charged_slots,
    most_procs,
    room_of,
    supplies,
    taken,
)
from coalloc.model.sites.parts import PART_ENDED
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Running

LINK_TOLERANCE = 1e-9
PORTS = range(20_000, 30_000)
"""Where ranks meet: below the ports that kernels hand out by themselves."""


@dataclass(slots=True)
class SlotsInUse:
    """Room that is free at this instant; memory and resources are counted on demand."""

    state: State
    free: dict[str, int] = field(default_factory=dict)
    """By node name: free slots, of nodes only that may get new work."""
    cluster_of: dict[str, str] = field(default_factory=dict)
    """By node name: the name of its cluster."""
    link_free: dict[str, float] = field(default_factory=dict)
    """By cluster name: Gbit/s."""
    links: dict[str, float] = field(default_factory=dict)
    """By cluster name: what its link carries, Gbit/s."""
    usable: dict[str, bool] = field(default_factory=dict)
    """By cluster name: it may get new work."""
    _rooms: dict[str, Room] | None = None

    def see(self, nodes: Iterable[str] | None = None) -> None:
        """Count these nodes too, as they are now; None: all."""
        if nodes is not None:
            nodes = [name for name in nodes if name not in self.cluster_of]
            if not nodes:
                return
        before = set(self.free) if self._rooms is not None else None
        taken_of = busy_slots(self.state).__getitem__ if nodes is None else self._taken
        for name, cluster in self.state.clusters.items():
            found = cluster.nodes if nodes is None else map(cluster.node, nodes)
            twins = twins_of(self.state, name)
            for node in found:
                if node is not None and node.name not in self.cluster_of:
                    self.cluster_of[node.name] = name
                    is_up = node.state is NodeState.UP and node.name not in cluster.drained_nodes
                    if is_up and self.usable[name]:
                        taken = taken_of(node.name)
                        taken += held_on(self.state, twins, name, node.name) if twins else 0
                        self.free[node.name] = node.slots - taken
        if before is not None:
            self._count_rooms(self.free.keys() - before)

    def _taken(self, node: str) -> int:
        """Slots that are taken of a node, by our jobs and others."""
        return self.state.clusters[self.cluster_of[node]].taken(node) + sum(
            part.held.get(node, 0)
            for record in self.state.held_on((node,))
            for part in record.parts
            if part.state not in PART_ENDED and not part.is_waiting
        )

    def take(self, nodes: Mapping[str, int], loads: Mapping[str, float]) -> None:
        """Book slots and link load."""
        for node, count in nodes.items():
            if node in self.free:
                self.free[node] -= count
        for cluster, load in loads.items():
            if cluster in self.link_free:
                self.link_free[cluster] -= load

    def place(self, record: JobRecord) -> None:
        """Book what a job that has just been placed holds."""
        held = held_by(self.state, record)
        self.take(held.nodes, held.link_gbps)
        for run in runs_on_twins(self.state, record, held):
            self.take(run.nodes, {})
        if self._rooms is not None:
            self._subtract(held, self._rooms)

    def node(self, name: str) -> NodeReading | None:
        """A node that is read."""
        cluster = self.state.clusters.get(self.cluster_of.get(name, ""))
        return None if cluster is None else cluster.node(name)

    def room(self, name: str) -> Room:
        """Room that is free on a node that takes work."""
        if self._rooms is None:
            self._rooms = {}
            self._count_rooms(self.free)
        return self._rooms[name]._replace(slots=max(0, self.free[name]))

    def _count_rooms(self, names: Collection[str]) -> None:
        nodes = [node for node in map(self.node, names) if node is not None]
        rooms = {node.name: room_of(node) for node in nodes}
        for work in (w for cluster in self.state.clusters.values() for w in cluster.running):
            self._subtract(work, rooms)
        for record in self.state.held_on(rooms):
            self._subtract(held_by(self.state, record), rooms)
        if self._rooms is not None:
            self._rooms |= rooms

    def _subtract(self, held: Running, rooms: dict[str, Room]) -> None:
        for name, slots in held.nodes.items():
            node = self.node(name) if name in rooms else None
            if node is not None:
                share = (node.memory_mb or 0) * slots // node.slots
                left = Counter(rooms[name].resources)
                left.subtract(supplies(held.resources.get(name, {})))
                free_mb = rooms[name].memory_mb - held.memory_mb.get(name, share)
                rooms[name] = Room(0, free_mb, left)


def occupation(state: State, now: float, nodes: Iterable[str] | None = None) -> SlotsInUse:
    """Free slots and links now; of these nodes only, if they are named.

    What that costs does not depend on how many jobs run elsewhere.
    """
    view = SlotsInUse(state)
    for name, cluster in state.clusters.items():
        view.link_free[name] = view.links[name] = cluster.settings.link_capacity_gbps
        view.usable[name] = state.is_usable(cluster, now)
    for cluster in state.clusters.values():
        for job in cluster.running:
            view.take({}, job.link_gbps)
    for loading in state.loading:
        view.take({}, state.jobs[loading].link_gbps)
    view.see(nodes)
    return view


def busy_slots(state: State) -> Counter[str]:
    """Slots that are taken of each node, by our jobs and others, in one pass over these."""
    taken: Counter[str] = Counter()
    for work in (work for cluster in state.clusters.values() for work in cluster.running):
        taken.update(work.nodes)
    for record in state.placed_records():
        for part in record.parts:
            if part.state not in PART_ENDED and not part.is_waiting:
                taken.update(part.held)
    return taken


def slots_on(
    clusters: Iterable[ClusterState], job: Job, nodes: Mapping[str, int]
) -> dict[str, int]:
    """Slots that processes of a job take of nodes; {}: one for each process."""
    if job.shape == ONE_SLOT:
        return {}
    found = dict(nodes)
    for cluster in clusters:
        for name, procs in nodes.items():
            if (node := cluster.node(name)) is not None:
                found[name] = charged_slots(job.shape, node, procs)
    return {} if found == nodes else found


def held_by(state: State, record: JobRecord, start: float = 0.0, end: float = 0.0) -> Running:
    """Holdings of a placed job on nodes that are read; parts that wait in a queue have none.

    Memory is told where the job has asked for some.
    """
    slots: dict[str, int] = {}
    memory: dict[str, int] = {}
    resources: dict[str, Amounts] = {}
    shape, each_mb = record.job.shape, record.job.memory_mb_per_proc
    tells_memory = bool(each_mb or shape.memory_mb_per_node or shape.all_memory)
    for part in record.parts:
        cluster = state.clusters.get(part.cluster)
        if cluster is None or part.state in PART_ENDED or part.is_waiting:
            continue
        for name, count in part.held.items():
            if (node := cluster.node(name)) is None:
                continue
            slots[name] = count
            if tells_memory and node.memory_mb is not None:
                memory[name] = int(taken(shape, each_mb, node, part.nodes[name]).memory_mb)
            if shape.per_node or shape.per_proc:
                asked = {what: n * part.nodes[name] for what, n in shape.per_proc.items()}
                resources[name] = dict(Counter(shape.per_node) + Counter(asked))
    told: dict[str, Any] = {"memory_mb": memory, "resources": resources}
    told["per_job"] = shape.per_job if slots else {}
    links = record.link_gbps
    return Running(id=record.id, nodes=slots, start=start, end=end, link_gbps=links, **told)


def misfit(placement: Placement, record: JobRecord, view: SlotsInUse) -> str:
    """Reason why the placement no longer fits; empty if it does."""
    job = record.job
    is_shaped = job.shape != ONE_SLOT
    for name, count in placement.nodes.items():
        if name not in view.free:
            return f"node {name} no longer takes work"
        if why := view.state.clusters[view.cluster_of[name]].closed_to(record.user):
            return f"node {name} {why}"
        if not is_shaped and view.free[name] < count:
            return f"node {name} has {view.free[name]} free slots, {count} were planned"
        if is_shaped and (node := view.node(name)) is not None:
            if is_older(view.state.clusters[view.cluster_of[name]], job):
                return f"{view.cluster_of[name]}: {OLDER.closed}"
            room = most_procs(job.shape, job.memory_mb_per_proc, node, view.room(name))
            if room < count:
                return f"node {name} has room for {room} processes, {count} were planned"
    return misfit_of_links(loads_of(placement, record, view), view)


def misfit_of_links(loads: Mapping[str, float], view: SlotsInUse) -> str:
    """Reason why the links no longer carry a placement; empty if they do."""
    for cluster, load in loads.items():
        capacity = view.link_free[cluster]
        if load > capacity + LINK_TOLERANCE * max(1.0, load):
            return f"link of {cluster} has {capacity:g} Gbit/s left, {load:g} were planned"
    return ""


def loads_of(placement: Placement, record: JobRecord, view: SlotsInUse) -> dict[str, float]:
    """Link load of a placement, Gbit/s by cluster."""
    job, flow = record.job, view.state.composites.get(record.flow)
    inside: dict[str, int] = {}
    for node, count in placement.nodes.items():
        cluster = view.cluster_of[node]
        inside[cluster] = inside.get(cluster, 0) + count
    if isinstance(flow, WorkflowState):
        return task_loads(flow.tasks[record.task], inside, view.links)
    if isinstance(job, RigidJob | MoldableJob) and job.proc_gbps:
        return link_loads(job.proc_gbps, inside)
    return {}


def parts_of(nodes: Mapping[str, int], job: Job, view: SlotsInUse) -> tuple[PartRecord, ...]:
    """One part for each cluster, in the order in which the plan first names them.

    Ranks fill nodes in plan order inside each part, and parts one after the other.
    """
    grouped: dict[str, dict[str, int]] = {}
    for node, count in nodes.items():
        grouped.setdefault(view.cluster_of[node], {})[node] = count
    parts, rank = [], 0
    for index, (cluster, own) in enumerate(grouped.items()):
        slots = slots_on([view.state.clusters[cluster]], job, own)
        part = PartRecord(cluster=cluster, index=index, nodes=own, slots=slots, first_rank=rank)
        parts.append(part)
        rank += sum(own.values())
    return tuple(parts)


def meeting_place(state: State, record: JobRecord, parts: tuple[PartRecord, ...]) -> str:
    """host:port of rank 0 for this attempt; no two placed jobs share one."""
    name = next(iter(parts[0].nodes))
    node = state.clusters[parts[0].cluster].node(name)
    host = (node and node.address) or name
    if ":" in host:
        host = f"[{host}]"
    start = sum(arrival(record.id)) + record.attempt
    for step in range(len(PORTS)):
        place = f"{host}:{PORTS[(start + step) % len(PORTS)]}"
        if place not in state.meeting:
            return place
    return ""
