"""What Figs. 3 to 9 of the MBPC paper share: one study per case, one row per job.

Notes
-----
Three jobs of 18 processes are allocated at once on 4 clusters of 16 nodes by each policy, for each
available bandwidth ABW of the links. Case 1 gives each cluster one power; case 2 draws every
node's. The standalone values of a job are those of the same policy with the platform to itself.

SC is 1 where no link is saturated, which every policy here sees to; the paper plots the raw ratio
max_k (sum of BW) / ABW instead, which falls below 1. Both are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from coalloc.model.cost import link_loads
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce.experiment import Row, Run
from coalloc.simulation.reproduce.mbpc_cases import ABW, alone, case_1, case_2
from coalloc.simulation.reproduce.rows import grouped
from coalloc.simulation.reproduce.solving import Solved, rigid_jobs, solve

POLICIES = ("mbpc", "cbs", "jpn")
TIGHT = min(ABW)
"""Of Figs. 5, 6 and 9, Gbit/s."""
TIES = ("first", "strong", "weak")
SEEDS, QUICK_SEEDS = 30, 2
SECONDS = 60.0
COLUMNS = {
    "case": "1 or 2",
    "seed": "of the nodes' powers, case 2",
    "abw_gbps": "capacity of each link, Gbit/s",
    "policy": "of the registry",
    "ties": "how jpn chooses between allocations of equal traffic",
    "job": "J1 to J3",
    "sigma": "weight of processing",
    "sp": "processing slowdown",
    "sp_alone": "with the platform to itself",
    "sc": "communication slowdown, at least 1",
    "sc_alone": "with the platform to itself",
    "ratio": "load by capacity of the fullest link that the job uses",
    "ratio_alone": "with the platform to itself",
    "processing": "sigma SP, in base times",
    "communication": "(1 - sigma) SC, in base times",
    "status": "how the search ended",
    "cpu_s": "processor time of the call, s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdowns:
    """Of one job in a plan: SP, SC clamped at 1, and the raw ratio of the fullest link used."""

    sp: float
    sc: float
    ratio: float


def study(run: Run, case: int) -> list[Row]:
    """Every policy on a case at every bandwidth, over the seeds; made once per run.

    Returns
    -------
    list of rows
        At the tightest links `jpn` is there once for each way to break ties, elsewhere with its
        default.
    """
    return run.share(("mbpc", case), lambda: list(_study(run, case)))


def _study(run: Run, case: int) -> Iterator[Row]:
    count = 1 if case == 1 else QUICK_SEEDS if run.quick else SEEDS
    points = [(seed, abw) for seed in range(run.seed, run.seed + count) for abw in bandwidths(run)]
    for seed, abw in run.steps(f"MBPC case {case}", points):
        snapshot = platform(case, abw, seed)
        for policy, ties in variants(abw):
            options = {} if ties is None else {"ties": ties}
            joint = solve(snapshot, policy, options, seconds=SECONDS, seed=seed)
            together = slowdowns(snapshot, joint.plan.placements)
            for job in rigid_jobs(snapshot):
                alone = _alone(snapshot, job, policy, options, seed)
                yield _row(case, seed, abw, policy, ties, job, joint, together[job.id], alone)


def bandwidths(run: Run) -> tuple[float, ...]:
    """Of the links, Gbit/s."""
    return (ABW[0], ABW[2], ABW[-1]) if run.quick else ABW


def platform(case: int, abw: float, seed: int) -> Snapshot:
    """The snapshot of a case."""
    return case_1(abw) if case == 1 else case_2(abw, seed)


def variants(abw: float) -> Iterator[tuple[str, str | None]]:
    """Policies, and how `jpn` breaks ties: in each way where the links are tightest."""
    for policy in POLICIES:
        if policy != "jpn":
            yield policy, None
            continue
        for ties in TIES if abw == TIGHT else TIES[:1]:
            yield policy, ties


def _alone(
    snapshot: Snapshot, job: RigidJob, policy: str, options: Mapping[str, Any], seed: int
) -> Slowdowns:
    single = alone(snapshot, job.id)
    solved = solve(single, policy, options, seconds=SECONDS, seed=seed)
    return slowdowns(single, solved.plan.placements)[job.id]


def _row(
    case: int,
    seed: int,
    abw: float,
    policy: str,
    ties: str | None,
    job: RigidJob,
    joint: Solved,
    together: Slowdowns,
    alone: Slowdowns,
) -> Row:
    return {
        "case": case,
        "seed": seed if case == 2 else None,
        "abw_gbps": abw,
        "policy": policy,
        "ties": ties,
        "job": job.id,
        "sigma": job.sigma,
        "sp": together.sp,
        "sp_alone": alone.sp,
        "sc": together.sc,
        "sc_alone": alone.sc,
        "ratio": together.ratio,
        "ratio_alone": alone.ratio,
        "processing": job.sigma * together.sp,
        "communication": (1.0 - job.sigma) * together.sc,
        "status": str(joint.plan.status),
        "cpu_s": joint.cpu_s,
    }


def slowdowns(snapshot: Snapshot, placements: Sequence[Placement]) -> dict[str, Slowdowns]:
    """Equations (4) to (7) for placements that run at the same time, by job."""
    home = {node.name: cluster for cluster in snapshot.clusters for node in cluster.nodes}
    power = {node.name: node.power for cluster in snapshot.clusters for node in cluster.nodes}
    gbps = {job.id: job.proc_gbps for job in rigid_jobs(snapshot)}
    loads: dict[str, dict[str, float]] = {}
    for placement in placements:
        inside: dict[str, int] = {}
        for node, count in placement.nodes.items():
            inside[home[node].name] = inside.get(home[node].name, 0) + count
        loads[placement.job] = link_loads(gbps[placement.job], inside)
    capacity = {cluster.name: cluster.link_gbps for cluster in snapshot.clusters}
    total = {name: sum(load.get(name, 0.0) for load in loads.values()) for name in capacity}
    out = {}
    for placement in placements:
        used = loads[placement.job]
        ratio = max((total[name] / capacity[name] for name in used), default=0.0)
        weakest = min(power[node] for node in placement.nodes)
        out[placement.job] = Slowdowns(sp=1.0 / weakest, sc=max(1.0, ratio), ratio=ratio)
    return out


def plotted(rows: Sequence[Row]) -> list[Row]:
    """Without the other ways in which `jpn` breaks ties."""
    return [row for row in rows if row["ties"] in (None, TIES[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispersion:
    """Differences to the standalone values over the jobs, mean over the seeds.

    Attributes
    ----------
    high, mean, low : float
        Largest, mean and smallest difference over the jobs of a run.
    width, widest : float
        Largest less smallest: mean and largest over the seeds.
    """

    high: float
    mean: float
    low: float
    width: float
    widest: float


def dispersion(rows: Sequence[Row], name: str, *, weighted: bool = False) -> Dispersion:
    """Of a column against its standalone one; weighted by sigma if asked for."""
    groups = []
    for group in grouped(rows, "seed").values():
        groups.append(
            [
                (row[name] - row[f"{name}_alone"]) * (row["sigma"] if weighted else 1.0)
                for row in group
            ]
        )
    widths = [max(values) - min(values) for values in groups]
    return Dispersion(
        high=fmean(map(max, groups)),
        mean=fmean(map(fmean, groups)),
        low=fmean(map(min, groups)),
        width=fmean(widths),
        widest=max(widths),
    )


def total_times(rows: Iterable[Row]) -> dict[Any, float]:
    """Sum of the jobs' run times by seed, in base times."""
    return {
        seed: sum(row["processing"] + row["communication"] for row in group)
        for (seed,), group in grouped(rows, "seed").items()
    }
