"""Snapshots and platforms from JSON and back (``coalloc-snapshot/1``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from math import inf
from typing import Any

from msgspec import Struct

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import of_format, shown
from coalloc.model.formats.job_json import amounts, checked, completed, write_job
from coalloc.model.formats.nodeset import expand, expand_counts
from coalloc.model.formats.structs import read_json, written
from coalloc.model.jobs import Job, WorkflowJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import (
    OVERRUN_S,
    SNAPSHOT_FORMAT,
    Reservation,
    Running,
    Snapshot,
    SnapshotFields,
)
from coalloc.model.values import replace


def read_snapshot(value: Any) -> Snapshot:
    """Read a snapshot from decoded JSON; `InputError` with the path of the first fault."""
    given = of_format(value, SNAPSHOT_FORMAT, "clusters")
    time = given.get("time", 0.0)
    # A time that is wrong is told before the times of jobs that stem from it.
    top = {"time": time, **given}
    if isinstance(top.get("queue"), list | tuple):
        top["queue"] = [completed(job, f"queue[{i}]", time) for i, job in enumerate(top["queue"])]
    top["clusters"] = _limited(top["clusters"], "clusters")
    read = read_json(top, SnapshotFields, "", _amounts)
    clusters = _expanded(read.clusters, "clusters")
    slots = {node.name: node.slots for cluster in clusters for node in cluster.nodes}
    names = {cluster.name for cluster in clusters}
    queue, warnings = _queue(read.queue, names)
    running = tuple(
        _running(job, f"running[{i}]", slots, names) for i, job in enumerate(read.running)
    )
    reservations = tuple(
        _reservation(one, f"reservations[{i}]", slots) for i, one in enumerate(read.reservations)
    )
    _no_doubles((job.id for job in running), "running")
    _no_doubles((one.id for one in reservations), "reservations")
    return Snapshot(
        time=read.time,
        clusters=clusters,
        queue=queue,
        running=running,
        reservations=reservations,
        resources=read.resources,
        overrun_s=read.overrun_s,
        warnings=warnings,
    )


def read_clusters(value: Any, where: str) -> tuple[Cluster, ...]:
    """Read cluster objects, of a snapshot or of a platform file; node sets are expanded."""
    clusters: tuple[Cluster, ...] = read_json(
        _limited(value, where), tuple[Cluster, ...], where, lambda read: read
    )
    return _expanded(clusters, where)


def _amounts(read: SnapshotFields) -> Iterator[Struct]:
    yield from read.clusters
    yield from chain.from_iterable(map(amounts, read.queue))


def _limited(clusters: Any, where: str) -> Any:
    """Clusters without the bandwidths that are null: unlimited, as by default."""
    if not isinstance(clusters, list | tuple):
        return clusters
    out = []
    for i, cluster in enumerate(clusters):
        if isinstance(cluster, dict):
            cluster = {
                key: item
                for key, item in cluster.items()
                if item is not None or key not in ("link_gbps", "intra_gbps")
            }
            if "nodes" not in cluster:
                raise InputError(f"{where}[{i}].nodes", "is missing")
        out.append(cluster)
    return out


def _expanded(clusters: Iterable[Cluster], where: str) -> tuple[Cluster, ...]:
    """The clusters with a node for each name of their node sets."""
    out = []
    taken: set[str] = set()
    for i, cluster in enumerate(clusters):
        nodes: list[Node] = []
        for k, node in enumerate(cluster.nodes):
            place = f"{where}[{i}].nodes[{k}].name"
            for name in expand(node.name, place):
                if name in taken:
                    raise InputError(place, f"node {shown(name)} is named twice")
                taken.add(name)
                nodes.append(node if name == node.name else replace(node, name=name))
        out.append(replace(cluster, nodes=tuple(nodes)))
    _no_doubles((cluster.name for cluster in out), where)
    return tuple(out)


def _queue(jobs: Iterable[Job], clusters: set[str]) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The jobs, each checked, and what was repaired."""
    queue: list[Job] = []
    warnings: list[str] = []
    seen: set[str] = set()
    for i, read in enumerate(jobs):
        job, repairs = checked(read, f"queue[{i}]")
        if job.id in seen:
            raise InputError(f"queue[{i}].id", f"{shown(job.id)} is used twice")
        seen.add(job.id)
        _known_clusters(job, f"queue[{i}]", clusters)
        queue.append(job)
        warnings += repairs
    return tuple(queue), tuple(warnings)


def _known_clusters(job: Job, where: str, names: set[str]) -> None:
    listed = [(f"{where}.clusters", job.clusters)] if job.clusters else []
    if isinstance(job, WorkflowJob):
        begun = enumerate(job.started)
        listed += [(f"{where}.started[{i}].clusters", one.clusters) for i, one in begun]
    for place, clusters in listed:
        for k, cluster in enumerate(clusters):
            if cluster not in names:
                raise InputError(f"{place}[{k}]", f"there is no cluster {shown(cluster)}")


def _running(job: Running, where: str, slots: dict[str, int], clusters: set[str]) -> Running:
    nodes = expand_counts(job.nodes, f"{where}.nodes")
    for name, count in nodes.items():
        if name not in slots:
            raise InputError(f"{where}.nodes.{name}", f"there is no node {shown(name)}")
        if count > slots[name]:
            what = f"{count} slots of a node that has {slots[name]}"
            raise InputError(f"{where}.nodes.{name}", what)
    for name in job.link_gbps:
        if name not in clusters:
            raise InputError(f"{where}.link_gbps.{name}", f"there is no cluster {shown(name)}")
    if job.end < job.start:
        raise InputError(f"{where}.end", f"{job.end:g} is before start {job.start:g}")
    memory = expand_counts(job.memory_mb, f"{where}.memory_mb")
    resources = expand_counts(job.resources, f"{where}.resources")
    for key, named in (("memory_mb", memory), ("resources", resources)):
        for name in named:
            if name not in nodes:
                raise InputError(f"{where}.{key}.{name}", f"{shown(name)} is not in nodes")
    return replace(job, nodes=nodes, memory_mb=memory, resources=resources)


def _reservation(one: Reservation, where: str, slots: dict[str, int]) -> Reservation:
    names: list[str] = []
    for i, text in enumerate(one.nodes):
        for name in expand(text, f"{where}.nodes[{i}]"):
            if name not in slots:
                raise InputError(f"{where}.nodes[{i}]", f"there is no node {shown(name)}")
            names.append(name)
    if one.end <= one.start:
        raise InputError(f"{where}.end", f"{one.end:g} is not after start {one.start:g}")
    return replace(one, nodes=tuple(dict.fromkeys(names)))


def _no_doubles(names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise InputError(f"{where}[{i}]", f"{shown(name)} is used twice")
        seen.add(name)


def write_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as a JSON object that reads back equal."""
    out: dict[str, Any] = {"format": SNAPSHOT_FORMAT, "time": snapshot.time}
    if snapshot.overrun_s != OVERRUN_S:
        out["overrun_s"] = snapshot.overrun_s
    out["clusters"] = [write_cluster(cluster) for cluster in snapshot.clusters]
    out["queue"] = [write_job(job) for job in snapshot.queue]
    out["running"] = [written(job, "ours") for job in snapshot.running]
    out["reservations"] = [written(one, "jobs") for one in snapshot.reservations]
    if snapshot.resources:
        out["resources"] = dict(snapshot.resources)
    return out


def write_cluster(cluster: Cluster) -> dict[str, Any]:
    """The cluster as a JSON object; unlimited is null."""
    out = written(replace(cluster, nodes=()), *_ALWAYS)
    for key in ("link_gbps", "intra_gbps"):
        if out[key] == inf:
            out[key] = None
    out["nodes"] = [written(node, "power", "slots") for node in cluster.nodes]
    return out


_ALWAYS = ("link_gbps", "intra_gbps", "link_latency_s", "intra_latency_s", "stale", "nodes")
