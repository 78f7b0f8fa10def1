"""Uses of nodes and links over time, by running work, reservations and placements.

`holds` and `reserved` are the one reading of a snapshot for all policies; the checker has one of
its own (`coalloc.policies.checking.occupation`), which agrees with it. On the uses beside a plan
explanations count what a job could have, and divisible jobs fill what they leave.

Notes
-----
Where a snapshot does not tell how much memory running work uses, on each node that counts
floor(memory_mb * its slots / slots), for each piece of work by itself. Work holds its slots, memory
and link load from before the snapshot's time until max(end, time + overrun_s). What lies on nodes
or links that the snapshot does not have is left out, and so is what has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from coalloc.model.cost import link_loads, pieces_of, task_loads
from coalloc.model.jobs import DivisibleJob, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Placement
from coalloc.model.platform import Node
from coalloc.model.shape import ONE_SLOT, supplies, taken
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.policies.latest import keep_latest


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """Takings of a node in [start, end), seconds; running work starts at -inf."""

    who: str
    node: str
    slots: int
    memory_mb: int
    end: float
    start: float = -inf
    resources: Mapping[str, int] = field(default_factory=dict)
    """With what they come to in each family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Load of a cluster's link in [start, end), seconds; running work starts at -inf."""

    who: str
    cluster: str
    gbps: float
    end: float
    start: float = -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """All holds of running work, in the snapshot's order."""

    nodes: tuple[NodeUse, ...] = ()
    """The memory of a node without a limit counts as 0."""
    links: tuple[LinkUse, ...] = ()


@keep_latest
def nodes_by_name(*clusters: tuple[Node, ...]) -> Mapping[str, Node]:
    """The nodes of these clusters."""
    return {node.name: node for nodes in clusters for node in nodes}


def holds(snapshot: Snapshot) -> Holds:
    """Read what runs."""
    if not snapshot.running:
        return Holds()
    known = nodes_by_name(*(cluster.nodes for cluster in snapshot.clusters))
    clusters = {cluster.name for cluster in snapshot.clusters}
    nodes: list[NodeUse] = []
    links: list[LinkUse] = []
    for work in snapshot.running:
        until = work.busy_until(snapshot.time, snapshot.overrun_s)
        if until <= snapshot.time:
            continue
        for name, slots in work.nodes.items():
            if name in known:
                share = (known[name].memory_mb or 0) * slots // known[name].slots
                nodes.append(
                    NodeUse(
                        who=work.id,
                        node=name,
                        slots=slots,
                        memory_mb=work.memory_mb.get(name, share),
                        end=until,
                        resources=supplies(work.resources.get(name, {})),
                    )
                )
        links += [
            LinkUse(who=work.id, cluster=name, gbps=gbps, end=until)
            for name, gbps in work.link_gbps.items()
            if name in clusters
        ]
    return Holds(nodes=tuple(nodes), links=tuple(links))


def reserved(reservations: Iterable[Reservation]) -> dict[str, tuple[int, ...]]:
    """The reservations that keep each node, by their places in the list."""
    out: dict[str, tuple[int, ...]] = {}
    for number, reservation in enumerate(reservations):
        for name in dict.fromkeys(reservation.nodes):
            out[name] = (*out.get(name, ()), number)
    return out


def node_uses(snapshot: Snapshot, placements: Iterable[Placement]) -> dict[str, list[NodeUse]]:
    """Use of each node that is used."""
    out: dict[str, list[NodeUse]] = {}
    for hold in holds(snapshot).nodes:
        out.setdefault(hold.node, []).append(hold)
    nodes = nodes_by_name(*(cluster.nodes for cluster in snapshot.clusters))
    asked = {
        (job.id, None if task is None else task.id): (
            task.shape if task is not None and task.shape is not None else job.shape,
            job.memory_mb_per_proc,
        )
        for job in snapshot.queue
        for task in (job.tasks if isinstance(job, WorkflowJob) else (None,))
    }
    for placement in placements:
        shape, memory = asked.get((placement.job, placement.task), (ONE_SLOT, 0))
        for name, procs in placement.nodes.items():
            room = taken(shape, memory, nodes[name], procs)
            use = NodeUse(
                who=placement.job,
                node=name,
                start=placement.start,
                end=placement.end,
                slots=room.slots,
                memory_mb=int(room.memory_mb),
                resources=room.resources,
            )
            out.setdefault(name, []).append(use)
    return out


def link_uses(snapshot: Snapshot, placements: Iterable[Placement]) -> dict[str, list[LinkUse]]:
    """Load of each cluster's link."""
    out: dict[str, list[LinkUse]] = {cluster.name: [] for cluster in snapshot.clusters}
    for hold in holds(snapshot).links:
        out[hold.cluster].append(hold)
    cluster_of = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    proc_gbps = {
        job.id: job.proc_gbps or 0.0
        for job in snapshot.queue
        if isinstance(job, RigidJob | MoldableJob)
    }
    links = {cluster.name: cluster.link_gbps for cluster in snapshot.clusters}
    tasks: dict[tuple[str, str | None], Task] = {
        (job.id, task.id): task
        for job in snapshot.queue
        if isinstance(job, WorkflowJob)
        for task in job.tasks
    }
    for placement in placements:
        inside: dict[str, int] = {}
        for name, procs in placement.nodes.items():
            inside[cluster_of[name]] = inside.get(cluster_of[name], 0) + procs
        loads = link_loads(proc_gbps.get(placement.job, 0.0), inside)
        if (task := tasks.get((placement.job, placement.task))) is not None:
            loads = task_loads(task, inside, links)
        for cluster, gbps in loads.items():
            use = LinkUse(
                who=placement.job,
                cluster=cluster,
                start=placement.start,
                end=placement.end,
                gbps=gbps,
            )
            out[cluster].append(use)
    return out


def pieces(
    job: DivisibleJob, start: float, nodes: Mapping[str, int], chunks: int, power: float
) -> list[Placement]:
    """Chunks on these processes from a start on: one piece after the other, as its limit allows."""
    out = []
    for count, seconds in pieces_of(job, chunks, sum(nodes.values()), power):
        left, mine = count, {}
        for name, procs in nodes.items():
            if left > 0:
                mine[name] = min(procs, left)
                left -= mine[name]
        end = start + seconds
        out.append(Placement(job=job.id, start=start, end=end, nodes=mine, chunks=count))
        start = end
    return out


def fitting(slots: int, memory_mb: float, memory_mb_per_proc: int) -> int:
    """Processes that fit in free slots and free memory, which is infinite where not limited."""
    if memory_mb_per_proc > 0 and memory_mb < inf:
        slots = min(slots, int(memory_mb // memory_mb_per_proc))
    return max(slots, 0)
