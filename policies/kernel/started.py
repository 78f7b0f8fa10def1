"""What tasks that have started mean for the rest of their workflow; plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from coalloc.model.cost import edge_delay
from coalloc.model.jobs import WorkflowJob
from coalloc.model.platform import Cluster


def arrivals(job: WorkflowJob, clusters: Sequence[Cluster]) -> dict[str, tuple[float, ...]]:
    """When the data of started tasks have reached each cluster.

    Returns
    -------
    dict of task id to tuple of float
        Seconds, by cluster, infinite where a link carries nothing; only of tasks that have a
        parent which has started.
    """
    started = {one.task: one for one in job.started}
    if not started:
        return {}
    by_name = {cluster.name: cluster for cluster in clusters}
    out: dict[str, tuple[float, ...]] = {}
    for edge in job.edges:
        parent = started.get(edge.parent)
        if parent is None:
            continue
        before = out.get(edge.child, (-inf,) * len(clusters))
        out[edge.child] = tuple(
            max(ready, parent.end + edge_delay(edge, parent.clusters, (cluster.name,), by_name))
            for ready, cluster in zip(before, clusters, strict=True)
        )
    return out


def last_exit(job: WorkflowJob) -> float:
    """End of the last started task that none of the others waits for, seconds; -inf if none."""
    parents = {edge.parent for edge in job.edges}
    return max((one.end for one in job.started if one.task not in parents), default=-inf)
