"""Slowdowns of each job of a plan in the MBPC paper's terms: SP, SC and the parts of Te."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.simulation.reproduce.solving import loads_of, rigid_jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """One job of a plan whose jobs all run at the same time."""

    job: str
    sigma: float
    sp: float
    """SP_j, equation (4)."""
    sc: float
    """SC_j, equation (7), at least 1."""
    link_ratio: float
    """The same not clamped: the largest sum of BW / ABW over the links that the job loads, 0 on one
    cluster."""
    processing: float
    """The two parts of the run time, seconds."""
    communication: float


def slowdowns(snapshot: Snapshot, plan: Plan) -> dict[str, Slowdown]:
    """The slowdowns of every rigid job that a plan places, by job; none may start later."""
    power = {node.name: node.power for cluster in snapshot.clusters for node in cluster.nodes}
    jobs = {job.id: job for job in rigid_jobs(snapshot)}
    loads = loads_of(snapshot, plan)
    full = {
        cluster.name: sum(load.get(cluster.name, 0.0) for load in loads.values())
        / cluster.link_gbps
        for cluster in snapshot.clusters
    }
    out = {}
    for placement in plan.placements:
        job = jobs[placement.job]
        ratio = max((full[name] for name in loads[job.id]), default=0.0)
        # an exactly full link is not saturated
        sc = ratio if ratio > 1.0 + 1e-9 else 1.0
        sp = 1.0 / min(power[node] for node in placement.nodes)
        out[job.id] = Slowdown(
            job=job.id,
            sigma=job.sigma,
            sp=sp,
            sc=sc,
            link_ratio=ratio,
            processing=job.base_time * job.sigma * sp,
            communication=job.base_time * (1.0 - job.sigma) * sc,
        )
    return out


def standalone(snapshot: Snapshot, solve: Callable[[Snapshot], Plan]) -> dict[str, Slowdown]:
    """The slowdowns of each job with the platform to itself.

    `solve`: called once for each job.
    """
    out: dict[str, Slowdown] = {}
    for job in snapshot.queue:
        alone = replace(snapshot, queue=(job,))
        out |= slowdowns(alone, solve(alone))
    return out
