"""Nodes that suit a job by what it asks of each, and the resource of which they have too little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.eligibility import (
    MOST_KEPT,
    UNKNOWN_OWNER,
    JobOwner,
    offered,
    verdict_of,
    widest,
)
from coalloc.model.jobs import Job, WorkflowJob, stays_whole
from coalloc.model.shape import ONE_SLOT, Shape, charged_slots, lays_out, most_procs
from coalloc.model.sites.reading import NodeReading
from coalloc.model.split import filled
from coalloc.model.values import replace

Takes = Counter[tuple[int, int]]
"""Nodes, by the processes that each takes when idle, and the slots of these."""
NO_END = 1 << 40


def procs_on(job: Job, node: NodeReading, shape: Shape) -> int:
    """Processes of a job of this shape that a node takes when it is idle, in whatever state."""
    if job.features and not set(job.features).issubset(node.features):
        return 0
    if shape is not ONE_SLOT and shape != ONE_SLOT:
        return most_procs(shape, job.memory_mb_per_proc, node)
    if node.memory_mb is None or not job.memory_mb_per_proc:
        return node.slots
    return min(node.slots, node.memory_mb // job.memory_mb_per_proc)


def fit(shape: Shape, procs: int, room: Iterable[int]) -> bool:
    """Whether so many processes can be laid out on nodes that take so many each."""
    return sum(room) >= procs if shape == ONE_SLOT else lays_out(shape, procs, list(room))


def laid_out(shape: Shape, procs: int, room: Mapping[str, int]) -> dict[str, int]:
    """Nodes for so many processes, in their order as far as the shape lets them; {}: none."""
    if shape == ONE_SLOT:
        return filled(room, procs)
    if not fit(shape, procs, room.values()):
        return {}
    usable = [name for name, count in room.items() if count > 0]
    chosen = usable[: shape.max_nodes]
    if sum(room[name] for name in chosen) < procs:
        chosen = sorted(usable, key=lambda name: -room[name])[: shape.max_nodes]
    # One for each of the least nodes first: what fills up must not leave the last without any.
    kept = dict.fromkeys(chosen[: shape.min_nodes], 1)
    more = filled({name: room[name] - kept.get(name, 0) for name in chosen}, procs - len(kept))
    found = {name: kept.get(name, 0) + more.get(name, 0) for name in chosen}
    return {name: count for name, count in found.items() if count}


def suitable(
    state: State, job: Job, owner: JobOwner = UNKNOWN_OWNER, shape: Shape | None = None
) -> dict[str, Takes] | None:
    """Nodes of each cluster that suit a job, however busy; None if a cluster is unread.

    Kept until a cluster is read again: a stream of submits asks for the same few kinds. `shape`:
    of a task, where it is not the job's.
    """
    shape = job.shape if shape is None else shape
    rules = () if owner is UNKNOWN_OWNER else (owner, job.time_limit, widest(job), narrowest(job))
    asked = None if shape is ONE_SLOT else shape
    key = (job.clusters, job.features, job.memory_mb_per_proc, asked, rules)
    if key not in state.suitable:
        if len(state.suitable) >= MOST_KEPT:
            state.suitable.clear()
        state.suitable[key] = _counted(state, job, owner, shape)
    return state.suitable[key]


def _counted(state: State, job: Job, owner: JobOwner, shape: Shape) -> dict[str, Takes] | None:
    found: dict[str, Takes] = {}
    for name, cluster in state.clusters.items():
        if cluster.configured and cluster.reading is None:
            return None
        if cluster.configured and (job.clusters is None or name in job.clusters):
            sized = ((procs_on(job, node, shape), node) for node in _offered(cluster, job, owner))
            if shape == ONE_SLOT:
                found[name] = Counter((procs, procs) for procs, _ in sized if procs)
            else:
                found[name] = Counter((n, charged_slots(shape, node, n)) for n, node in sized if n)
    return found


def _offered(cluster: ClusterState, job: Job, owner: JobOwner) -> tuple[NodeReading, ...]:
    verdict = verdict_of(cluster, job, owner)
    return () if verdict.never else offered(cluster, job, owner, verdict, {})


def sizes_of(takes: Takes, shape: Shape = ONE_SLOT) -> list[int]:
    """Processes that each of these nodes takes, of as many as the shape allows, rising."""
    sizes = sorted(procs for procs, _ in takes.elements())
    return sizes if shape.max_nodes is None else sizes[-shape.max_nodes :]


def room_of(takes: Takes, shape: Shape) -> int:
    """Processes that these nodes take, on as many of them as the shape allows."""
    if shape.max_nodes is None:
        return sum(procs * nodes for (procs, _), nodes in takes.items())
    return sum(sizes_of(takes, shape))


def least_slots(state: State, job: Job, procs: int) -> int:
    """Slots that so many processes of a job take at the least, wherever they run."""
    if job.shape is ONE_SLOT or isinstance(job, WorkflowJob):
        return procs
    takes = suitable(state, job) or {}
    each = (slots / n for nodes in takes.values() for n, slots in nodes)
    return ceil(procs * min(each, default=1.0) - 1e-9)


def lacks(state: State, job: Job, owner: JobOwner, shape: Shape, procs: int) -> str:
    """Reason why no nodes, however idle, take so many processes of a shape; empty if some do."""
    takes = suitable(state, job, owner, shape) or {}
    whole = [sum(takes.values(), Counter())]
    groups = [sizes_of(each, shape) for each in (takes.values() if stays_whole(job) else whole)]
    if any(fit(shape, procs, group) for group in groups):
        readings = [state.clusters[name].reading for name, nodes in takes.items() if nodes]
        for name, count in shape.per_job.items():
            most = max((each.resources.get(name, 0) for each in readings if each), default=0)
            if count > most:
                return f"needs {count} {name}; no cluster has more than {most}"
        return ""
    count = max(shape.min_nodes, -(-procs // (shape.procs_per_node or procs)))
    each = -(-procs // shape.max_nodes) if shape.max_nodes else 1
    have = max((sum(size >= each for size in group) for group in groups), default=0)
    what, told = "node", f"{have} such node{'s' * (have != 1)}"
    if have >= count or (count == 1 and shape.max_nodes is None):
        count, each, what = procs, 1, "process" if procs == 1 else "processe"
        told = f"room for {max(map(sum, groups), default=0)}"
    many = ("s", " each") if count > 1 else ("", "")
    short = _short(state, job, owner, shape, procs, each)
    where = "the largest cluster has" if stays_whole(job) else "all clusters have"
    return f"needs {count} {what}{many[0]} with {short}{many[1]}; {where} {told}"


def _short(state: State, job: Job, owner: JobOwner, shape: Shape, procs: int, each: int) -> str:
    """The one thing that is short of what processes on a node need there; else all of it."""
    names = {**shape.per_node, **shape.per_proc}
    words = {n: f"{shape.per_node.get(n, 0) + each * shape.per_proc.get(n, 0)} {n}" for n in names}
    cpus = each * shape.cpus_per_proc
    words["CPUs"] = (f"{cpus} CPU" if cpus else f"{each} slot") + "s" * (max(cpus, each) > 1)
    if memory := shape.memory_mb_per_node + each * job.memory_mb_per_proc:
        words["memory"] = f"{memory} MiB"
    clusters = (state.clusters[name] for name in job.clusters or state.clusters)
    nodes = [n for each in clusters if each.reading for n in _offered(each, job, owner)]
    for what, text in words.items():
        # as if each node had no end of it
        more: dict[str, Any] = {"slots": NO_END, "cpus": None} if what == "CPUs" else {}
        more |= {"memory_mb": None} if what == "memory" else {}
        ends = dict.fromkeys((what, what.partition(":")[0]), NO_END)
        endless = (replace(n, **(more or {"resources": {**n.resources, **ends}})) for n in nodes)
        if fit(shape, procs, (procs_on(job, node, shape) for node in endless)):
            return text
    return " and ".join(words.values())
