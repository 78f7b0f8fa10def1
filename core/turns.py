"""Where a job takes its turn of which the plan says nothing.

Policies that plan starts of now only leave a job that does not fit now without a placement. On
crowded clusters it would never fit: it is sent to one that can hold it, the quickest of late, or
over as few as can, within what their links have left.
"""

from __future__ import annotations

from collections.abc import Sequence

from coalloc.core.negotiating import expected_wait, jobs_ahead, may_queue, others, suits
from coalloc.core.occupation import LINK_TOLERANCE, Occupation
from coalloc.core.records import JobRecord
from coalloc.core.state import State
from coalloc.model.cost import run_time
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement, Plan, Reason
from coalloc.model.platform import NodeState
from coalloc.model.reading import NodeReading
from coalloc.model.split import low_side, split

LEFT_OUT = frozenset({Reason.NOT_SELECTED, Reason.OUT_OF_TIME})
"""Reasons of jobs that the plan leaves for later without saying when."""


def left_out(plan: Plan) -> list[str]:
    """The jobs, in the plan's order, that have no start in it and may take a turn."""
    placed = {placement.job for placement in plan.placements}
    return [
        deferred.job
        for deferred in plan.deferred
        if deferred.reason in LEFT_OUT and deferred.task is None and deferred.job not in placed
    ]


def turn_of(state: State, record: JobRecord, view: Occupation, start: float) -> Placement | None:
    """A placement of a rigid job as if its clusters were idle; None where there is none."""
    job = record.job
    if not isinstance(job, RigidJob):
        return None
    rooms = _rooms(state, record, start)
    slots = [sum(node.slots for node in nodes) for nodes in rooms.values()]
    low = [
        low_side(job.procs, job.proc_gbps, view.link_free[name], LINK_TOLERANCE) for name in rooms
    ]
    shares = _even(job.procs, slots, low) or split(job.procs, slots, low)
    if shares is None:
        return None
    nodes: dict[str, int] = {}
    power = 1.0
    for share, room in zip(shares, rooms.values(), strict=True):
        left = share
        for node in room:
            count = min(node.slots, left)
            if count:
                nodes[node.name] = count
                power = min(power, node.power)
                left -= count
    end = start + run_time(job.base_time, job.sigma, max(power, 1e-6))
    return Placement(job=record.id, start=start, end=end, nodes=nodes)


def _even(procs: int, slots: Sequence[int], low: Sequence[int]) -> list[int] | None:
    """Spread a job that no cluster can hold evenly: the fuller a cluster, the longer the wait.

    None where one can hold it, or a link would not carry its share.
    """
    total = sum(slots)
    if max(slots, default=0) >= procs or total < procs:
        return None
    shares = [procs * count // total for count in slots]
    for k in sorted(range(len(slots)), key=lambda k: shares[k] - slots[k]):
        more = min(slots[k] - shares[k], procs - sum(shares), 1)
        shares[k] += more
    carried = all(t <= w or t >= procs - w for t, w in zip(shares, low, strict=True))
    return shares if carried and sum(shares) == procs else None


def _crowd(state: State, name: str) -> tuple[float, float]:
    """What a job has before it in a cluster's queue, for each of its nodes, and as time."""
    reading = state.clusters[name].reading if name in state.clusters else None
    if reading is None:
        return 0.0, 0.0
    ahead = jobs_ahead(state, name)
    return ahead / max(1, len(reading.nodes)), expected_wait(state, name, ahead)


def _rooms(state: State, record: JobRecord, now: float) -> dict[str, list[NodeReading]]:
    """The nodes that suit the job, of clusters where it may wait: the quickest cluster first."""
    allowed = others(state, record, record.late) or record.job.clusters or tuple(state.clusters)
    age = state.settings.reading_max_age_s
    rooms: dict[str, list[NodeReading]] = {}
    for name in sorted(allowed, key=lambda name: _crowd(state, name)):
        cluster = state.clusters.get(name)
        if cluster is None or cluster.drained or cluster.reading is None:
            continue
        if not may_queue(state, (name,)) or cluster.is_stale(now, age):
            continue
        rooms[name] = [
            node
            for node in cluster.reading.nodes
            if node.state is NodeState.UP
            and node.name not in cluster.drained_nodes
            and suits(record, node)
        ]
    return rooms
