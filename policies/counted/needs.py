"""Whether a queue needs counted resources, or slots alone say what fits."""

from __future__ import annotations

from coalloc.model.jobs import Job, WorkflowJob
from coalloc.model.platform import Node
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.snapshot import Snapshot


def needs_counting(snapshot: Snapshot) -> bool:
    """Whether some job takes more of a node that it may use than a slot for each process.

    So does memory beside running work that tells its own.
    """
    told = any(work.memory_mb for work in snapshot.running)
    seen: set[tuple[Shape, tuple[str, ...] | None, tuple[str, ...]]] = set()
    for job in snapshot.queue:
        if told and job.memory_mb_per_proc:
            return True
        if job.shape is ONE_SLOT and not isinstance(job, WorkflowJob):
            continue
        for shape in _shapes(job):
            key = shape, job.clusters, job.features
            if shape == ONE_SLOT or key in seen:
                continue
            seen.add(key)
            nodes = (
                node
                for cluster in snapshot.clusters
                if job.clusters is None or cluster.name in job.clusters
                for node in cluster.nodes
                if set(job.features) <= set(node.features)
            )
            if not all(_is_slots(shape, node) for node in nodes):
                return True
    return False


def _shapes(job: Job) -> list[Shape]:
    tasks = job.tasks if isinstance(job, WorkflowJob) else ()
    return [job.shape, *(task.shape for task in tasks if task.shape is not None)]


def _is_slots(shape: Shape, node: Node) -> bool:
    """Whether so many processes as a node has slots, and no more, fit there by this shape."""
    cpus = node.cpus or node.slots
    each = shape.cpus_per_proc
    nothing = not (shape.memory_mb_per_node or shape.all_memory or shape.max_nodes)
    nothing = nothing and not (shape.per_proc or shape.per_node or shape.per_job)
    alone = shape.exclusive or (shape.procs_per_node or node.slots) < node.slots
    even = each == 0 or (each * node.slots == cpus and each % node.cpus_per_core == 0)
    return nothing and even and shape.min_nodes == 1 and (node.slots == 1 or not alone)
