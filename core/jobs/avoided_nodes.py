"""Nodes that have just refused a claim, and are not tried again at once for the same.

A batch system refuses nodes for reasons that no reading tells, such as memory that local jobs take.
The nodes of a refused claim are left out for jobs that ask for the same of each node, as long as
enough others are there: until other local jobs run on them, or `AVOIDED_S` are over, or `KEPT_S`
where a share of the cluster is kept for us.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import ClusterReading

OF_NODES = frozenset({"nodes_taken", "node_unavailable", "unknown_node"})
"""Reasons of a refusal that another node might not have."""
AVOIDED_S = 60.0
KEPT_S = 10.0
"""The same of nodes that are kept for us: what took them ends, and no other local job begins."""


def asked_of(record: JobRecord) -> Hashable:
    """All that a job asks for of each node."""
    job = record.job
    shape = None if job.shape is ONE_SLOT else job.shape
    return job.memory_mb_per_proc, job.features, record.batch, shape


def note_refused(state: State, record: JobRecord, now: float) -> None:
    """Keep in mind the nodes of the parts of an attempt that were refused."""
    if record.foreign:
        return
    for part in record.parts:
        if part.state is PartState.REFUSED and part.reason in OF_NODES:
            cluster = state.clusters[part.cluster]
            share = None if cluster.reading is None else cluster.reading.share
            until = now + (KEPT_S if share is not None and share.kept else AVOIDED_S)
            for node in part.nodes:
                cluster.refused.setdefault(node, {})[asked_of(record)] = until


def avoided(cluster: ClusterState, record: JobRecord, now: float) -> frozenset[str]:
    """The nodes of a cluster that have just refused a claim like those of this job."""
    asked = asked_of(record) if cluster.refused else None
    return frozenset(node for node, until in cluster.refused.items() if until.get(asked, now) > now)


def forget_changed(cluster: ClusterState, after: ClusterReading, now: float) -> None:
    """Forget refusals that are old, and those of nodes on which other local jobs run now."""
    before = cluster.reading
    if before is None or not cluster.refused:
        return
    nodes = tuple(cluster.refused)
    was, is_now = _running(before, nodes), _running(after, nodes)
    for node in nodes:
        left = {asked: at for asked, at in cluster.refused.pop(node).items() if at > now}
        if left and was[node] == is_now[node]:
            cluster.refused[node] = left


def _running(reading: ClusterReading, nodes: Collection[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {node: set() for node in nodes}
    for work in reading.running:
        for node in found.keys() & work.nodes.keys():
            found[node].add(work.id)
    return found
