"""The snapshot of a round, from what the daemon knows."""

from __future__ import annotations

from dataclasses import replace

from coalloc.core.power import floored
from coalloc.core.records import PART_ENDED, JobRecord, JobState
from coalloc.core.state import ClusterState, State
from coalloc.model.jobs import Job
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.snapshot import Reservation, Running, Snapshot


def snapshot(state: State, now: float, *, held: bool = True) -> Snapshot:
    """Clusters, queue and running work at this instant.

    Work that was committed but has not started yet, undelivered decisions included, counts
    as running from now on. A round leaves held jobs out: there is nothing to decide of them.
    """
    clusters = tuple(
        cluster_view(name, cluster, state, now) for name, cluster in state.clusters.items()
    )
    known = {node.name for cluster in clusters for node in cluster.nodes}
    names = frozenset(cluster.name for cluster in clusters)
    running = [running_view(record, known, now) for record in state.placed_records()]
    reservations: list[Reservation] = []
    for cluster in state.clusters.values():
        if cluster.reading is not None:
            running += cluster.reading.running
            reservations += cluster.reading.reservations
    queue = [
        waiting_view(record, state, names)
        for record in state.waiting_records()
        if held or record.state is JobState.PENDING
    ]
    return Snapshot(
        time=now,
        clusters=clusters,
        queue=tuple(queue),
        running=tuple(running),
        reservations=tuple(reservations),
        overrun_s=state.settings.overrun_s,
    )


def cluster_view(name: str, cluster: ClusterState, state: State, now: float) -> Cluster:
    """A cluster as planning sees it: powers in steps, drained nodes, staleness."""
    site = cluster.settings
    nodes = []
    for read in cluster.reading.nodes if cluster.reading is not None else ():
        power = cluster.powers.get(read.name)
        is_drained = cluster.drained or read.name in cluster.drained_nodes
        nodes.append(
            Node(
                name=read.name,
                power=floored(read.power, state.settings.power_step)
                if power is None
                else power.published,
                slots=read.slots,
                features=read.features,
                memory_mb=read.memory_mb,
                free_at=now,
                state=NodeState.DRAINING
                if is_drained and read.state is NodeState.UP
                else read.state,
            )
        )
    return Cluster(
        name=name,
        nodes=tuple(nodes),
        link_gbps=site.link_gbps,
        intra_gbps=site.intra_gbps,
        link_latency_s=site.link_latency_s,
        intra_latency_s=site.intra_latency_s,
        stale=cluster.is_stale(now, state.settings.reading_max_age_s),
    )


def running_view(record: JobRecord, known: set[str], now: float) -> Running:
    """A placed job as running work; nodes that are no longer read are left out."""
    start = now if record.started is None else record.started
    nodes = {
        node: count
        for part in record.parts
        if part.state not in PART_ENDED
        for node, count in part.nodes.items()
        if node in known
    }
    return Running(
        id=record.id,
        nodes=nodes,
        start=min(start, now),
        end=max(start + record.planned, min(start, now)),
        link_gbps=record.link_gbps,
    )


def waiting_view(record: JobRecord, state: State, clusters: frozenset[str]) -> Job:
    """A waiting job as the planner sees it."""
    job = record.job
    unmet = tuple(
        needed
        for _, needed in record.needs
        if needed in state.jobs and not state.jobs[needed].is_ended
    )
    changes: dict[str, object] = {}
    if unmet:
        changes["after"] = unmet
    if record.state is JobState.HELD:
        changes["held"] = True
    if record.not_before > job.earliest:
        changes["earliest"] = record.not_before
    if passed := state.passed_over.get(record.id, 0):
        changes["passed_over"] = passed
    if job.clusters is not None and not clusters.issuperset(job.clusters):
        changes["clusters"] = tuple(name for name in job.clusters if name in clusters)
    return replace(job, **changes) if changes else job  # type: ignore[arg-type]
