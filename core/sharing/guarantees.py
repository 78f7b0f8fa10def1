"""Guarantees of projects on clusters, as reservations for their waiting jobs.

While jobs of a project wait, nodes of the cluster are kept for them until the project has what it
is guaranteed there, those that are free first, then those that are free soonest. Nothing that runs
is ended for it, and what the project does not ask for is anybody's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.suitable_nodes import least_slots
from coalloc.core.sharing.priority import project_of
from coalloc.model.cost import within_limit
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob
from coalloc.model.platform import Cluster, NodeState
from coalloc.model.ranges import EVENT
from coalloc.model.snapshot import Reservation, Running

LONGEST_S = 3600.0
"""For work whose length is not known before it is placed, seconds."""


def reservations(
    state: State,
    views: Sequence[tuple[JobRecord, Job]],
    clusters: Sequence[Cluster],
    running: Sequence[Running],
    now: float,
) -> Iterator[Reservation]:
    """Reservations for the projects that have guarantees, as long as their jobs wait."""
    of = {cluster.name: cluster for cluster in clusters}
    for project, given in state.sharing.tree.guaranteed.items():
        mine = [
            (record, job)
            for record, job in views
            if project in state.sharing.tree.path(project_of(state, record))
            and not (job.held or job.after)
            and job.earliest <= now
        ]
        for name, procs in given.guarantees.items():
            wanting = [job for _, job in mine if job.clusters is None or name in job.clusters]
            asking = (record for record, job in mine if job in wanting)
            wanted = sum(least_slots(state, each.job, narrowest(each.job)) for each in asking)
            needed = min(procs - _used(state, project, name), wanted)
            if needed > 0 and name in of and not of[name].stale:
                nodes = _nodes(of[name], needed, _busy_until(running, now, state))
                if nodes:
                    yield Reservation(
                        id=f"guarantee:{project}:{name}",
                        nodes=nodes,
                        start=now,
                        end=min(now + max(map(_length_s, wanting)), EVENT.high),
                        jobs=tuple(job.id for job in wanting),
                    )


def _length_s(job: Job) -> float:
    match job:
        case RigidJob():
            return within_limit(job, job.base_time)
        case MoldableJob(min_procs=procs):
            return within_limit(job, job.speedup.time(procs))
        case DivisibleJob(chunk_s=seconds):
            return max(seconds, LONGEST_S)
        case _:
            return LONGEST_S


def _used(state: State, project: str, cluster: str) -> int:
    """Slots of a project, and of those below it, in a cluster."""
    return sum(
        sum(part.held.values())
        for record in state.placed_records()
        if project in state.sharing.tree.path(project_of(state, record))
        for part in record.parts
        if part.cluster == cluster and not (record.siblings and part.is_waiting)
    )


def _busy_until(running: Sequence[Running], now: float, state: State) -> Mapping[str, float]:
    until: dict[str, float] = {}
    for work in running:
        end = work.busy_until(now, state.settings.start.overrun_s)
        for node in work.nodes:
            until[node] = max(until.get(node, 0.0), end)
    return until


def _nodes(cluster: Cluster, procs: int, until: Mapping[str, float]) -> tuple[str, ...]:
    """Nodes with so many slots, the soonest free first, in the cluster's order among equals."""
    usable = [node for node in cluster.nodes if node.state is NodeState.UP]
    chosen = []
    for node in sorted(usable, key=lambda node: until.get(node.name, 0.0)):
        if procs <= 0:
            break
        chosen.append(node.name)
        procs -= node.slots
    return tuple(chosen)
