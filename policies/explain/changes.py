"""Changes of a snapshot that might help a job, as figures and as the changed snapshot.

Each is one thing that a user or an operator could do, or that could have been otherwise. A change
says nothing of its effect: that is solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from msgspec import Struct

from coalloc.model.jobs import Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.model.values import replace

OWN = "explain-own"
"""Name of the reservation, and of the node, that the change ``slots`` adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyChange:
    """One change."""

    kind: str
    """A key of `CHANGES`."""
    names: tuple[str, ...] = ()
    """The clusters, nodes, jobs, tasks, features or reservations concerned."""
    before: float | None = None
    """Of a figure: processes, MiB, Gbit/s."""
    after: float | None = None
    power: float = 1.0
    """Of the added slots, with ``slots``."""


class WhyCase(Struct, frozen=True, kw_only=True):
    """A snapshot and the options it is planned with, for one job."""

    snapshot: Snapshot
    options: Mapping[str, Any]
    job: str

    @property
    def target(self) -> Job:
        """The job in question."""
        return next(job for job in self.snapshot.queue if job.id == self.job)


def apply(case: WhyCase, changes: Iterable[WhyChange]) -> WhyCase:
    """The case with all changes made."""
    for change in changes:
        case = CHANGES[change.kind](case, change)
    return case


def _fields(
    of: Callable[[WhyCase, WhyChange], Mapping[str, Any]],
) -> Callable[[WhyCase, WhyChange], WhyCase]:
    """A change that gives fields of the job other values."""

    def changed(case: WhyCase, change: WhyChange) -> WhyCase:
        job = replace(case.target, **of(case, change))
        queue = tuple(job if one.id == case.job else one for one in case.snapshot.queue)
        return replace(case, snapshot=replace(case.snapshot, queue=queue))

    return changed


def _tasks(case: WhyCase, change: WhyChange) -> Mapping[str, Any]:
    """Tasks of it that have started end now; their data are still to travel."""
    job, names, now = case.target, set(change.names), case.snapshot.time
    if not isinstance(job, WorkflowJob):
        return {}
    return {"started": tuple(replace(s, end=now) if s.task in names else s for s in job.started)}


def _procs(case: WhyCase, change: WhyChange) -> Mapping[str, Any]:
    """Fewer processes: a rigid job does the same work in proportionally more time."""
    job, count = case.target, int(change.after or 1)
    if isinstance(job, RigidJob):
        return {"procs": count, "base_time": job.base_time * job.procs / count}
    if isinstance(job, MoldableJob):
        return {"min_procs": min(job.min_procs, count), "max_procs": count}
    return {}


def _shape(case: WhyCase, change: WhyChange) -> Mapping[str, Any]:
    """Less of an amount of its shape; with fewer CPUs, a rigid job takes proportionally longer."""
    key, *resource = change.names
    job, count = case.target, int(change.after or 0)
    value: Any = type(getattr(job.shape, key))(count) if not resource else {}
    for name in resource:
        kept = {n: c for n, c in getattr(job.shape, key).items() if n != name}
        value = {**kept, name: count} if count else kept
    fields = {"shape": replace(job.shape, **{key: value})}
    if change.kind == "cpus" and isinstance(job, RigidJob):
        return {**fields, "base_time": job.base_time * job.shape.cpus_per_proc / count}
    return fields


def _features(case: WhyCase, change: WhyChange) -> Mapping[str, Any]:
    return {"features": tuple(f for f in case.target.features if f not in change.names)}


def _clusters(case: WhyCase, change: WhyChange) -> Mapping[str, Any]:
    """Also on the named clusters."""
    return {"clusters": tuple(dict.fromkeys((*(case.target.clusters or ()), *change.names)))}


def _bandwidth(case: WhyCase, change: WhyChange) -> Mapping[str, Any]:
    rated = isinstance(case.target, RigidJob | MoldableJob)
    return {"proc_gbps": change.after or 0.0} if rated else {}


def _over_clusters(case: WhyCase, change: WhyChange) -> Mapping[str, Any]:
    job = case.target
    if isinstance(job, RigidJob | MoldableJob):
        return {"proc_gbps": job.proc_gbps or 0.0, "one_cluster": False}
    return {}


def _split(case: WhyCase, change: WhyChange) -> WhyCase:
    options = {**case.options, "coallocation": "sooner"}
    return replace(_fields(_over_clusters)(case, change), options=options)


def _with_clusters(case: WhyCase, edit: Callable[[Cluster], Cluster]) -> WhyCase:
    clusters = tuple(edit(cluster) for cluster in case.snapshot.clusters)
    return replace(case, snapshot=replace(case.snapshot, clusters=clusters))


def _of_clusters(**fields: Any) -> Callable[[WhyCase, WhyChange], WhyCase]:
    """A change that gives fields of the named clusters other values."""
    return lambda case, change: _with_clusters(
        case, lambda one: replace(one, **fields) if one.name in change.names else one
    )


def _order(case: WhyCase, change: WhyChange) -> WhyCase:
    """The named jobs stand back: they are held."""
    names = set(change.names)
    queue = tuple(
        replace(job, held=True) if job.id in names else job for job in case.snapshot.queue
    )
    return replace(case, snapshot=replace(case.snapshot, queue=queue))


def _running(case: WhyCase, change: WhyChange) -> WhyCase:
    names = set(change.names)
    running = tuple(job for job in case.snapshot.running if job.id not in names)
    return replace(case, snapshot=replace(case.snapshot, running=running))


def _nodes(case: WhyCase, change: WhyChange) -> WhyCase:
    """The named nodes are up, and free from now on but for what runs there."""
    names = set(change.names)
    now = case.snapshot.time

    def edit(cluster: Cluster) -> Cluster:
        nodes = tuple(
            replace(node, state=NodeState.UP, free_at=min(node.free_at, now))
            if node.name in names
            else node
            for node in cluster.nodes
        )
        return replace(cluster, nodes=nodes)

    return _with_clusters(case, edit)


def _reservation(case: WhyCase, change: WhyChange) -> WhyCase:
    kept = tuple(r for r in case.snapshot.reservations if r.id not in change.names)
    return replace(case, snapshot=replace(case.snapshot, reservations=kept))


def _slots(case: WhyCase, change: WhyChange) -> WhyCase:
    """One more node on the named cluster, for this job alone."""
    job, now, count = case.target, case.snapshot.time, int(change.after or 1)
    node = Node(
        name=OWN,
        power=change.power,
        slots=count,
        features=job.features,
        memory_mb=None,
        free_at=now,
    )
    case = _with_clusters(
        case, lambda c: replace(c, nodes=(*c.nodes, node)) if c.name in change.names else c
    )
    end = now + 1e12
    own = Reservation(id=OWN, nodes=(OWN,), start=now, end=end, jobs=(job.id,))
    kept = (*case.snapshot.reservations, own)
    return replace(case, snapshot=replace(case.snapshot, reservations=kept))


CHANGES: Mapping[str, Callable[[WhyCase, WhyChange], WhyCase]] = {
    "release": _fields(lambda case, change: {"held": False}),
    "dependency": _fields(lambda case, change: {"after": ()}),
    "tasks": _fields(_tasks),
    "earliest": _fields(lambda case, change: {"earliest": case.snapshot.time}),
    "procs": _fields(_procs),
    "memory": _fields(lambda case, change: {"memory_mb_per_proc": int(change.after or 0)}),
    "cpus": _fields(_shape),
    "shape": _fields(_shape),
    "features": _fields(_features),
    "clusters": _fields(_clusters),
    "bandwidth": _fields(_bandwidth),
    "split": _split,
    "link": _of_clusters(link_gbps=inf),
    "order": _order,
    "running": _running,
    "reachable": _of_clusters(stale=False),
    "nodes": _nodes,
    "reservation": _reservation,
    "slots": _slots,
}


MOST = 0.98
"""Cost of a change that makes no sense."""


def cost(change: WhyChange) -> float:
    """Size of a change, 0 (nothing to it) to 1: what stands in the way of making it."""
    share = 0.0
    if change.before and change.after is not None:
        share = min(max((change.before - change.after) / change.before, 0.0), 1.0)
    match change.kind:
        case "procs" | "bandwidth" | "memory" | "cpus" | "shape":
            return share
        case "order":
            return min(0.35 + 0.08 * len(change.names), MOST)
        case "running":
            return min(0.65 + 0.05 * len(change.names), MOST)
        case kind:
            return COSTS.get(kind, 0.5)


COSTS: Mapping[str, float] = {
    "release": 0.0,
    "earliest": 0.1,
    "split": 0.2,
    "clusters": 0.2,
    "tasks": 0.9,
    "features": 0.3,
    "slots": 0.95,
}
