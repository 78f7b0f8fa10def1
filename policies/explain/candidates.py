"""The short list of relaxations that are worth a try for one job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, isfinite

from coalloc.model.jobs import Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.platform import NodeState
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import TableSpeedup
from coalloc.policies.explain.changes import WhyChange
from coalloc.policies.explain.room import Room

EACH = 4
"""Reservations, clusters and links that are tried one by one; more are tried together."""


def gates(snapshot: Snapshot, job: Job) -> Iterator[WhyChange]:
    """List what keeps the job whatever is free."""
    if job.held:
        yield WhyChange(kind="release")
    known = {other.id for other in (*snapshot.queue, *snapshot.running)}
    waits_for = tuple(name for name in job.after if name in known)
    if waits_for:
        yield WhyChange(kind="dependency", names=waits_for)
    if isinstance(job, WorkflowJob):
        parents = {edge.parent for edge in job.edges}
        open_ones = [s.task for s in job.started if s.end > snapshot.time and s.task in parents]
        if open_ones:
            yield WhyChange(kind="tasks", names=tuple(open_ones))
    if job.earliest > snapshot.time:
        yield WhyChange(kind="earliest", before=job.earliest)


def site_side(snapshot: Snapshot, job: Job, splits: bool) -> Iterator[WhyChange]:
    """List what the site could change: links, readings, nodes, reservations."""
    allowed = [c for c in snapshot.clusters if job.clusters is None or c.name in job.clusters]
    if len(snapshot.clusters) > 1 and _uses_links(job, splits):
        limited = [c.name for c in allowed if isfinite(c.link_gbps)]
        yield from _each("link", limited)
    yield from _each("reachable", [c.name for c in allowed if c.stale])
    wanted = set(job.features)
    closed = [
        node.name
        for cluster in allowed
        for node in cluster.nodes
        if wanted <= set(node.features)
        and (node.state is not NodeState.UP or node.free_at > snapshot.time)
    ]
    if closed:
        yield WhyChange(kind="nodes", names=tuple(closed))
    suits = {n.name for c in allowed for n in c.nodes if wanted <= set(n.features)}
    kept = [
        r.id
        for r in snapshot.reservations
        if job.id not in r.jobs and r.end > snapshot.time and not suits.isdisjoint(r.nodes)
    ]
    yield from _each("reservation", kept)


def job_side(snapshot: Snapshot, job: Job, splits: bool) -> Iterator[WhyChange]:
    """List what the user asked for beyond processes."""
    if job.clusters is not None:
        others = tuple(c.name for c in snapshot.clusters if c.name not in job.clusters)
        if others:
            yield WhyChange(kind="clusters", names=others)
    if job.features:
        yield WhyChange(kind="features", names=job.features)
    if job.memory_mb_per_proc:
        yield WhyChange(kind="memory", before=job.memory_mb_per_proc, after=0.0)
    for key in ("memory_mb_per_node", "all_memory", "exclusive"):
        if amount := getattr(job.shape, key):
            yield WhyChange(kind="shape", names=(key,), before=float(amount), after=0.0)
    for key in ("per_proc", "per_node", "per_job"):
        for name, count in getattr(job.shape, key).items():
            yield WhyChange(kind="shape", names=(key, name), before=float(count), after=0.0)
    is_single = not isinstance(job, RigidJob | MoldableJob) or job.one_cluster
    if not splits and len(snapshot.clusters) > 1 and not is_single:
        yield WhyChange(kind="split")


def _uses_links(job: Job, splits: bool) -> bool:
    if isinstance(job, WorkflowJob):
        return any(edge.gb > 0.0 for edge in job.edges)
    return splits and isinstance(job, RigidJob | MoldableJob) and bool(job.proc_gbps)


def _each(kind: str, names: list[str]) -> Iterator[WhyChange]:
    if len(names) <= EACH:
        for name in names:
            yield WhyChange(kind=kind, names=(name,))
    if len(names) > 1:
        yield WhyChange(kind=kind, names=tuple(names))


def fewer_procs(job: Job, room: Room) -> list[WhyChange]:
    """Smaller allotments: what fits now, on one cluster or on all; half, a quarter. Fewer CPUs."""
    if not isinstance(job, RigidJob | MoldableJob):
        return []
    now = room.snapshot.time
    most = job.procs if isinstance(job, RigidJob) else job.max_procs
    here = room.by_cluster(room.nodes, now)
    empty = sum(room.by_cluster(room.nodes, inf).values())
    counts = {sum(here.values()), max(here.values(), default=0), most // 2, most // 4, empty}
    if isinstance(job, MoldableJob):
        counts |= {job.min_procs, job.min_procs // 2}
        if isinstance(job.speedup, TableSpeedup):
            listed = job.speedup.procs
            counts = {max((n for n in listed if n <= c), default=0) for c in counts}
    fitting = sorted((c for c in counts if 1 <= c < most), reverse=True)
    fewer = [WhyChange(kind="procs", before=float(most), after=float(c)) for c in fitting]
    cpus = WhyChange(kind="cpus", names=("cpus_per_proc",), before=float(job.shape.cpus_per_proc))
    return [*fewer, *halves(cpus)]


def halves(change: WhyChange) -> list[WhyChange]:
    """Half of a whole number, and a quarter."""
    count = int(change.before or 0)
    return [replace(change, after=float(count // n)) for n in (2, 4) if count >= n]


def less_memory(job: Job, room: Room) -> list[WhyChange]:
    """Amounts at which another process fits on a node, largest first."""
    asked = job.memory_mb_per_proc
    values = {
        node.memory_mb // count
        for _, node in room.snapshot.nodes()
        if node.memory_mb
        for count in range(1, min(node.slots, 64) + 1)
    }
    less = sorted((value for value in values if 0 < value < asked), reverse=True)
    return [WhyChange(kind="memory", before=float(asked), after=float(v)) for v in less]


def less_bandwidth(job: Job) -> list[WhyChange]:
    """Half the bandwidth of a process, a quarter, none."""
    if not isinstance(job, RigidJob | MoldableJob) or not job.proc_gbps:
        return []
    asked = job.proc_gbps
    return [
        WhyChange(kind="bandwidth", before=asked, after=value)
        for value in (asked / 2.0, asked / 4.0, 0.0)
    ]


def ancestors(snapshot: Snapshot, job: Job) -> set[str]:
    """The job and those it waits for, directly or not."""
    queue = {other.id: other for other in snapshot.queue}
    found, left = {job.id}, [job.id]
    while left:
        for name in queue[left.pop()].after:
            if name in queue and name not in found:
                found.add(name)
                left.append(name)
    return found
