"""One time axis for all arithmetic of a policy: seconds from the snapshot's time.

At today's wall clock two neighbouring doubles are 2.4e-7 s apart, so an end that is added up there
is not the sum of its run times, and a bound that is not added up there passes it. Policies
therefore see every snapshot at time 0, where values and bounds are sums of the same numbers; only
the starts and ends of the finished plan are moved to the snapshot's axis.

Notes
-----
Rounding keeps order: of two times, the earlier one is not the later one after the move. `submitted`
is a record and stays as it is; `Budget.origin` tells its axis.
"""

from __future__ import annotations

from math import inf

from coalloc.model.jobs import Job, WorkflowJob
from coalloc.model.plan import Placement, Plan
from coalloc.model.platform import Cluster
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace


def from_now(snapshot: Snapshot) -> Snapshot:
    """Move the axis of a snapshot so that its time is 0."""
    now = snapshot.time
    if now == 0.0:
        return snapshot
    return replace(
        snapshot,
        time=0.0,
        clusters=tuple(_cluster(cluster, now) for cluster in snapshot.clusters),
        queue=tuple(_job(job, now) for job in snapshot.queue),
        running=tuple(
            replace(work, start=work.start - now, end=work.end - now) for work in snapshot.running
        ),
        reservations=tuple(
            replace(kept, start=kept.start - now, end=kept.end - now)
            for kept in snapshot.reservations
        ),
    )


def at_time(plan: Plan, now: float) -> Plan:
    """Move the starts and ends of a plan made at time 0 to the axis on which that is `now`."""
    if now == 0.0:
        return plan
    return replace(
        plan,
        placements=_moved(plan.placements, now),
        front=tuple(
            replace(point, placements=_moved(point.placements, now)) for point in plan.front
        ),
    )


def _cluster(cluster: Cluster, now: float) -> Cluster:
    if all(node.free_at == -inf for node in cluster.nodes):
        return cluster
    nodes = tuple(replace(node, free_at=node.free_at - now) for node in cluster.nodes)
    return replace(cluster, nodes=nodes)


def _job(job: Job, now: float) -> Job:
    """The job; one that may start at once, on either axis, is left as it is."""
    if isinstance(job, WorkflowJob) and job.started:
        started = tuple(replace(task, end=task.end - now) for task in job.started)
        return replace(job, earliest=job.earliest - now, started=started)
    if job.earliest <= min(now, 0.0):
        return job
    return replace(job, earliest=job.earliest - now)


def _moved(placements: tuple[Placement, ...], now: float) -> tuple[Placement, ...]:
    return tuple(replace(p, start=p.start + now, end=p.end + now) for p in placements)
