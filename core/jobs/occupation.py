"""From a placement that starts now to the parts of a job, if it still fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coalloc.core.base.composites import ChunkPool, WorkflowState
from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State, arrival
from coalloc.model.cost import link_loads, task_loads
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.plan import Placement
from coalloc.model.platform import NodeState
from coalloc.model.sites.parts import PART_ENDED

LINK_TOLERANCE = 1e-9
PORTS = range(20_000, 30_000)
"""Where ranks meet: below the ports that kernels hand out by themselves."""


@dataclass(slots=True)
class SlotsInUse:
    """Slots and link capacity that are free at this instant."""

    free: dict[str, int] = field(default_factory=dict)
    """By node name: free slots, of nodes only that may get new work."""
    cluster_of: dict[str, str] = field(default_factory=dict)
    """By node name: the name of its cluster."""
    link_free: dict[str, float] = field(default_factory=dict)
    """By cluster name: Gbit/s."""
    links: dict[str, float] = field(default_factory=dict)
    """By cluster name: what its link carries, Gbit/s."""
    composites: Mapping[str, WorkflowState | ChunkPool] = field(default_factory=dict)
    """Workflows and divisible jobs, by id."""

    def take(self, nodes: Mapping[str, int], loads: Mapping[str, float]) -> None:
        """Book slots and link load."""
        for node, count in nodes.items():
            if node in self.free:
                self.free[node] -= count
        for cluster, load in loads.items():
            if cluster in self.link_free:
                self.link_free[cluster] -= load


def occupation(state: State, now: float) -> SlotsInUse:
    """Free slots and links now, counted afresh from the current state."""
    view = SlotsInUse(composites=state.composites)
    for name, cluster in state.clusters.items():
        view.link_free[name] = view.links[name] = cluster.settings.link_capacity_gbps
        if cluster.reading is None:
            continue
        usable = not cluster.drained and not cluster.is_stale(
            now, state.settings.readings.max_age_s
        )
        for node in cluster.reading.nodes:
            view.cluster_of[node.name] = name
            if usable and node.state is NodeState.UP and node.name not in cluster.drained_nodes:
                view.free[node.name] = node.slots
    for cluster in state.clusters.values():
        for job in cluster.reading.running if cluster.reading is not None else ():
            view.take(job.nodes, job.link_gbps)
    for record in state.placed_records():
        for part in record.parts:
            if part.state not in PART_ENDED and not part.is_waiting:
                view.take(part.nodes, {})
        view.take({}, record.link_gbps)
    return view


def misfit(placement: Placement, record: JobRecord, view: SlotsInUse) -> str:
    """Reason why the placement no longer fits; empty if it does."""
    for node, count in placement.nodes.items():
        if node not in view.free:
            return f"node {node} no longer takes work"
        if view.free[node] < count:
            return f"node {node} has {view.free[node]} free slots, {count} were planned"
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
    job, flow = record.job, view.composites.get(record.flow)
    inside: dict[str, int] = {}
    for node, count in placement.nodes.items():
        cluster = view.cluster_of[node]
        inside[cluster] = inside.get(cluster, 0) + count
    if isinstance(flow, WorkflowState):
        return task_loads(flow.tasks[record.task], inside, view.links)
    if isinstance(job, RigidJob | MoldableJob) and job.proc_gbps:
        return link_loads(job.proc_gbps, inside)
    return {}


def parts_of(placement: Placement, view: SlotsInUse) -> tuple[PartRecord, ...]:
    """One part for each cluster, in the order in which the plan first names them.

    Ranks fill nodes in plan order inside each part, and parts one after the other.
    """
    grouped: dict[str, dict[str, int]] = {}
    for node, count in placement.nodes.items():
        grouped.setdefault(view.cluster_of[node], {})[node] = count
    parts, rank = [], 0
    for index, (cluster, nodes) in enumerate(grouped.items()):
        parts.append(PartRecord(cluster=cluster, index=index, nodes=nodes, first_rank=rank))
        rank += sum(nodes.values())
    return tuple(parts)


def meeting_place(state: State, record: JobRecord, parts: tuple[PartRecord, ...]) -> str:
    """host:port of rank 0 for this attempt; no two placed jobs share one."""
    first = parts[0]
    node = next(iter(first.nodes))
    reading = state.clusters[first.cluster].reading
    read = reading.nodes if reading is not None else ()
    host = next((n.address for n in read if n.name == node), "") or node
    if ":" in host:
        host = f"[{host}]"
    start = sum(arrival(record.id)) + record.attempt
    for step in range(len(PORTS)):
        place = f"{host}:{PORTS[(start + step) % len(PORTS)]}"
        if place not in state.meeting:
            return place
    return ""
