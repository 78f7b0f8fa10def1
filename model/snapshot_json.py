"""Snapshots and platforms from JSON and back (``coalloc-snapshot/1``)."""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.model import tables
from coalloc.model.decoded import array, shown
from coalloc.model.errors import InputError
from coalloc.model.fields import read_fields
from coalloc.model.job_json import read_job, write_job
from coalloc.model.jobs import Job, WorkflowJob
from coalloc.model.nodeset import expand, expand_counts
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.snapshot import OVERRUN_S, Reservation, Running, Snapshot


def read_snapshot(value: Any) -> Snapshot:
    """Read a snapshot from decoded JSON.

    Raises
    ------
    InputError
        With the path and the reason of the first thing that is wrong.
    """
    top = read_fields(value, tables.SNAPSHOT, "")
    time = top.get("time", 0.0)
    clusters = read_clusters(top["clusters"], "clusters")
    slots = {node.name: node.slots for cluster in clusters for node in cluster.nodes}
    names = {cluster.name for cluster in clusters}
    queue, warnings = [], []
    seen: set[str] = set()
    for i, item in enumerate(array(top.get("queue", ()), "queue")):
        job, repairs = read_job(item, f"queue[{i}]", time)
        if job.id in seen:
            raise InputError(f"queue[{i}].id", f"{shown(job.id)} is used twice")
        seen.add(job.id)
        _known_clusters(job, f"queue[{i}]", names)
        queue.append(job)
        warnings += repairs
    running = [
        _running(item, f"running[{i}]", slots, names)
        for i, item in enumerate(array(top.get("running", ()), "running"))
    ]
    reservations = [
        _reservation(item, f"reservations[{i}]", slots)
        for i, item in enumerate(array(top.get("reservations", ()), "reservations"))
    ]
    _no_doubles([job.id for job in running], "running")
    _no_doubles([r.id for r in reservations], "reservations")
    return Snapshot(
        time=time,
        clusters=clusters,
        queue=tuple(queue),
        running=tuple(running),
        reservations=tuple(reservations),
        overrun_s=top.get("overrun_s", OVERRUN_S),
        warnings=tuple(warnings),
    )


def read_clusters(value: Any, where: str) -> tuple[Cluster, ...]:
    """Read cluster objects, of a snapshot or of a platform file; node sets are expanded."""
    clusters = []
    node_names: set[str] = set()
    for i, item in enumerate(array(value, where)):
        place = f"{where}[{i}]"
        fields = read_fields(item, tables.CLUSTER, place)
        nodes: list[Node] = []
        for k, node in enumerate(array(fields["nodes"], f"{place}.nodes")):
            nodes += _nodes(node, f"{place}.nodes[{k}]", node_names)
        fields["nodes"] = tuple(nodes)
        for key in ("link_gbps", "intra_gbps"):
            if fields.get(key) is None:
                fields[key] = inf
        clusters.append(Cluster(**fields))
    _no_doubles([cluster.name for cluster in clusters], where)
    return tuple(clusters)


def _nodes(value: Any, where: str, taken: set[str]) -> list[Node]:
    fields = read_fields(value, tables.NODE, where)
    fields["state"] = NodeState(fields.get("state", NodeState.UP))
    nodes = []
    for name in expand(fields.pop("name"), f"{where}.name"):
        if name in taken:
            raise InputError(f"{where}.name", f"node {shown(name)} is named twice")
        taken.add(name)
        nodes.append(Node(name=name, **fields))
    return nodes


def _known_clusters(job: Job, where: str, names: set[str]) -> None:
    listed = [(f"{where}.clusters", job.clusters or ())]
    if isinstance(job, WorkflowJob):
        begun = enumerate(job.started)
        listed += [(f"{where}.started[{i}].clusters", one.clusters) for i, one in begun]
    for place, clusters in listed:
        for k, cluster in enumerate(clusters):
            if cluster not in names:
                raise InputError(f"{place}[{k}]", f"there is no cluster {shown(cluster)}")


def _running(value: Any, where: str, slots: dict[str, int], clusters: set[str]) -> Running:
    fields = read_fields(value, tables.RUNNING, where)
    fields["nodes"] = expand_counts(fields["nodes"], f"{where}.nodes")
    for name, count in fields["nodes"].items():
        if name not in slots:
            raise InputError(f"{where}.nodes.{name}", f"there is no node {shown(name)}")
        if count > slots[name]:
            raise InputError(
                f"{where}.nodes.{name}", f"{count} slots of a node that has {slots[name]}"
            )
    for name in fields.get("link_gbps", ()):
        if name not in clusters:
            raise InputError(f"{where}.link_gbps.{name}", f"there is no cluster {shown(name)}")
    if fields["end"] < fields["start"]:
        raise InputError(f"{where}.end", f"{fields['end']:g} is before start {fields['start']:g}")
    return Running(**fields)


def _reservation(value: Any, where: str, slots: dict[str, int]) -> Reservation:
    fields = read_fields(value, tables.RESERVATION, where)
    names: list[str] = []
    for i, text in enumerate(fields["nodes"]):
        for name in expand(text, f"{where}.nodes[{i}]"):
            if name not in slots:
                raise InputError(f"{where}.nodes[{i}]", f"there is no node {shown(name)}")
            names.append(name)
    if fields["end"] <= fields["start"]:
        raise InputError(
            f"{where}.end", f"{fields['end']:g} is not after start {fields['start']:g}"
        )
    return Reservation(**{**fields, "nodes": tuple(dict.fromkeys(names))})


def _no_doubles(names: list[str], where: str) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise InputError(f"{where}[{i}]", f"{shown(name)} is used twice")
        seen.add(name)


def write_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as a JSON object that reads back equal."""
    out: dict[str, Any] = {"format": tables.SNAPSHOT_FORMAT, "time": snapshot.time}
    if snapshot.overrun_s != OVERRUN_S:
        out["overrun_s"] = snapshot.overrun_s
    out["clusters"] = [write_cluster(cluster) for cluster in snapshot.clusters]
    out["queue"] = [write_job(job) for job in snapshot.queue]
    out["running"] = [_write_running(job) for job in snapshot.running]
    out["reservations"] = [
        {"id": r.id, "nodes": list(r.nodes), "start": r.start, "end": r.end, "jobs": list(r.jobs)}
        for r in snapshot.reservations
    ]
    return out


def write_cluster(cluster: Cluster) -> dict[str, Any]:
    """The cluster as a JSON object; unlimited is null."""
    return {
        "name": cluster.name,
        "link_gbps": None if cluster.link_gbps == inf else cluster.link_gbps,
        "intra_gbps": None if cluster.intra_gbps == inf else cluster.intra_gbps,
        "link_latency_s": cluster.link_latency_s,
        "intra_latency_s": cluster.intra_latency_s,
        "stale": cluster.stale,
        "nodes": [_write_node(node) for node in cluster.nodes],
    }


def _write_node(node: Node) -> dict[str, Any]:
    out: dict[str, Any] = {"name": node.name, "power": node.power, "slots": node.slots}
    if node.features:
        out["features"] = list(node.features)
    if node.memory_mb is not None:
        out["memory_mb"] = node.memory_mb
    if node.free_at != -inf:
        out["free_at"] = node.free_at
    if node.state is not NodeState.UP:
        out["state"] = str(node.state)
    return out


def _write_running(job: Running) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": job.id,
        "nodes": dict(job.nodes),
        "start": job.start,
        "end": job.end,
    }
    if job.link_gbps:
        out["link_gbps"] = dict(job.link_gbps)
    return out | {"ours": job.ours}
