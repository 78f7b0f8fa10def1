"""How much of each cluster the waiting jobs could use, so that its executor may ask for it."""

from __future__ import annotations

from coalloc.core.records import JobState
from coalloc.core.state import State
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.parts import PartState


def wanted_slots(state: State, name: str) -> int:
    """Slots of a cluster that waiting jobs could fill, or that unclaimed parts will.

    No more than the cluster has: a workflow or a divisible job could fill it.
    """
    cluster = state.clusters[name]
    if cluster.reading is None or cluster.drained or state.rounds.paused:
        return 0
    most = sum(node.slots for node in cluster.reading.nodes)
    wanted = sum(
        sum(part.nodes.values())
        for record in state.placed_records()
        for part in record.parts
        if part.cluster == name and part.state is PartState.PREPARING
    )
    for job in state.waiting:
        if wanted >= most:
            return most
        record = state.jobs[job]
        is_allowed = record.job.clusters is None or name in record.job.clusters
        if is_allowed and record.state is not JobState.HELD:
            wanted += _slots(record.job, most)
    return min(wanted, most)


def _slots(job: Job, most: int) -> int:
    match job:
        case RigidJob(procs=procs):
            return procs
        case MoldableJob(max_procs=procs):
            return procs
    return most
