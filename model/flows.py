"""Clusters on which tasks of a workflow may run for the data they move; plain Python.

Data never leave, or reach, a cluster whose link carries nothing. Tasks that pass data to each other
are a *stream*: all of it runs on clusters with links, or on one without, so that no task can end
where its child cannot go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from coalloc.model.cost import edge_delay
from coalloc.model.jobs import Job, Task, WorkflowJob
from coalloc.model.platform import Cluster

Home = tuple[str, ...] | None
"""Names of clusters; None is any."""

APART = "no clusters between which its data can move take all tasks that share them"


def homes(job: Job, links: Mapping[str, float]) -> list[Home]:
    """Sets of clusters to try a stream of a job on, the best first; `links` are in Gbit/s."""
    moves = isinstance(job, WorkflowJob) and any(edge.gb > 0.0 for edge in job.edges)
    allowed = [name for name in links if job.clusters is None or name in job.clusters]
    linked = tuple(name for name in allowed if links[name] > 0.0)
    if not moves or len(linked) == len(allowed):
        return [job.clusters]
    return [*([linked] if linked else []), *((name,) for name in allowed if links[name] <= 0.0)]


def streams(job: WorkflowJob) -> list[list[Task]]:
    """The tasks, in those that pass data to each other, directly or not."""
    leader = {task.id: task.id for task in job.tasks}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for edge in job.edges:
        if edge.gb > 0.0 and edge.parent in leader:
            leader[find(edge.child)] = find(edge.parent)
    out: dict[str, list[Task]] = {}
    for task in job.tasks:
        out.setdefault(find(task.id), []).append(task)
    return list(out.values())


def arrivals(job: WorkflowJob, clusters: Sequence[Cluster]) -> dict[str, tuple[float, ...]]:
    """Arrival of the data of started tasks at each cluster, by the tasks that wait for them.

    In seconds, infinite where a link carries nothing.
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
