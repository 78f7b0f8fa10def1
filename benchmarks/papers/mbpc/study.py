"""Study behind Figs. 3 to 9 of the MBPC paper: one per case, one row per job.

Notes
-----
Three jobs of 18 processes are allocated at once on 4 clusters of 16 nodes by each policy, for each
available bandwidth ABW of the links. Case 1 gives each cluster one power; case 2 draws every
node's. The standalone values of a job are those of the same policy with the platform to itself.

SC is 1 where no link is saturated, which every policy here sees to; the paper plots the raw ratio
max_k (sum of BW) / ABW instead, which falls below 1. Both are kept.

Published of the cases: sigma .05, .2 and .3, 0.075 Gbit/s a process; in case 2 powers uniform from
.3 to .9. Not published: the base time (1 s here, so that times are slowdowns) and the powers that
were drawn (seeded here).

What `jpn` could choose beside what it does is no policy: `ties` lists it. A limit of work, not
a clock, ends a program, so that a run tells the same on any machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.papers.mbpc.ties import extremes, least_traffic, of_one_power
from benchmarks.papers.study import Run, Study
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.simulation.reproduce.rows import Row, Rows
from coalloc.simulation.reproduce.solving import (
    NotAllowedError,
    Solved,
    loads_of,
    rigid_jobs,
    solve,
)
from coalloc.simulation.reproduce.words import Facts

POWERS = (0.5, 0.6, 0.7, 0.8)
SIGMAS = (0.05, 0.2, 0.3)
NODES = 16
PROCS = 18
PROC_GBPS = 0.075
ABW = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Capacities of every link in both cases, Gbit/s."""


def case_1(abw: float) -> Snapshot:
    """One power a cluster; `abw` is the capacity of every link, Gbit/s."""
    return _snapshot(abw, [[power] * NODES for power in POWERS])


def case_2(abw: float, seed: int) -> Snapshot:
    """Every node's power drawn from U(.3, .9)."""
    rng = random.Random(seed)
    return _snapshot(abw, [[rng.uniform(0.3, 0.9) for _ in range(NODES)] for _ in POWERS])


def _snapshot(abw: float, powers: Sequence[Sequence[float]]) -> Snapshot:
    clusters = tuple(
        Cluster(
            name=f"C{k}",
            link_gbps=abw,
            nodes=tuple(Node(name=f"c{k}n{n:02}", power=p) for n, p in enumerate(row, 1)),
        )
        for k, row in enumerate(powers, 1)
    )
    queue = tuple(
        RigidJob(id=f"J{n}", procs=PROCS, base_time=1.0, sigma=sigma, proc_gbps=PROC_GBPS)
        for n, sigma in enumerate(SIGMAS, 1)
    )
    return Snapshot(clusters=clusters, queue=queue)


PRINTED = "mbpc, (8) as printed"
POLICIES = ("mbpc", PRINTED, "cbs", "jpn")
COMPARED = ("mbpc", "cbs", "jpn")
"""The paper's."""
AS_PRINTED: Mapping[str, Any] = {"sc": "printed", "engine": "search"}
"""Options of `mbpc-published` that minimise equation (8) with SC below 1 too."""
TIGHT = min(ABW)
"""Of Figs. 5, 6 and 9, Gbit/s."""
CHOSEN, BEST, WORST = "first", "best", "worst"
NARROWEST, WIDEST = "narrowest", "widest"
"""Values of `ties`: how `jpn` itself chooses, then the ends of what it could choose."""
SEEDS, QUICK_SEEDS = 30, 2
TREE_NODES = 2_000
"""Most nodes of the tree of `jpn`'s programs; they take about a hundred."""
EXACT = 1e-9
"""Relative gap of a proof."""
UNKNOWN = ("sp_alone", "sc_alone", "ratio", "ratio_alone", "gap", "cpu_s")
"""What is not known of an allocation that `jpn` did not choose."""


def _study(case: int, run: Run) -> Iterator[Row]:
    """Choices of the policies, and the ends of what `jpn` could choose instead."""
    count = 1 if case == 1 else QUICK_SEEDS if run.quick else SEEDS
    first = run.seed * SEEDS
    widths = (ABW[0], ABW[2], ABW[-1]) if run.quick else ABW
    places = [(seed, abw) for seed in range(first, first + count) for abw in widths]
    for seed, abw in run.steps(f"MBPC case {case}", places):
        snapshot = platform(case, abw, seed)
        where = {"case": case, "seed": seed if case == 2 else None, "abw_gbps": abw}
        best: dict[str, float] = {}
        for policy in POLICIES:
            for row in _jobs(snapshot, policy, seed, best):
                yield where | row
        for ties, found in _ends(snapshot, best, is_tight=abw == TIGHT, splits_tell=case == 1):
            for row in _choice(snapshot, found, best):
                yield where | row | {"policy": "jpn", "ties": ties}


def _jobs(
    snapshot: Snapshot, policy: str, seed: int, best: dict[str, float]
) -> Iterator[dict[str, Any]]:
    """A row per job; the first policy, which is `mbpc`, leaves its standalone SP in `best`."""
    joint = place(snapshot, policy, seed)
    together = slowdowns(snapshot, joint.plan)
    alone = standalone(snapshot, lambda queued: place(queued, policy, seed).plan)
    for job, found in together.items():
        own = alone[job]
        yield {
            **asdict(found),
            "policy": policy,
            "ties": CHOSEN if policy == "jpn" else None,
            "sp_alone": own.sp,
            "sp_best": best.setdefault(job, own.sp),
            "sc_alone": own.sc,
            "ratio_alone": own.ratio,
            **_proof(joint.plan),
            "cpu_s": joint.cpu_s,
        }


def _proof(plan: Plan) -> dict[str, Any]:
    """Status and gap of a search; with (8) as printed, by the bound on that."""
    if "printed_value" not in plan.stats:
        return {"status": str(plan.status), "gap": plan.objective.gap}
    value, bound = plan.stats["printed_value"], plan.stats["printed_bound"]
    gap = None if bound is None else max(value - bound, 0.0) / value
    proved = gap is not None and gap <= EXACT
    return {"status": str(Status.OPTIMAL if proved else plan.status), "gap": gap}


def _ends(
    snapshot: Snapshot, best: Mapping[str, float], *, is_tight: bool, splits_tell: bool
) -> Iterator[tuple[str, list[float]]]:
    """Ends of what JPN could choose: of run times at the tightest links, of SP in case 1."""
    _, splits = least_traffic(snapshot)
    if is_tight:
        yield from zip((BEST, WORST), extremes(snapshot, splits), strict=True)
    if splits_tell:
        jobs = rigid_jobs(snapshot)

        def width(slowdown: list[float]) -> float:
            apart = [
                job.sigma * (sp - best[job.id]) for job, sp in zip(jobs, slowdown, strict=True)
            ]
            return max(apart) - min(apart)

        ordered = sorted(of_one_power(snapshot, splits), key=width)
        yield from ((NARROWEST, ordered[0]), (WIDEST, ordered[-1]))


def _choice(
    snapshot: Snapshot, slowdown: list[float], best: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """A row per job of an allocation that `jpn` could have chosen."""
    for job, sp in zip(rigid_jobs(snapshot), slowdown, strict=True):
        yield {
            **dict.fromkeys(UNKNOWN),
            "job": job.id,
            "sigma": job.sigma,
            "sp": sp,
            "sp_best": best[job.id],
            "sc": 1.0,
            "processing": job.base_time * job.sigma * sp,
            "communication": job.base_time * (1.0 - job.sigma),
            "status": "exact",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """One job of a plan whose jobs all run at the same time."""

    job: str
    sigma: float
    sp: float
    """SP_j, equation (4)."""
    sc: float
    """SC_j, equation (7), at least 1."""
    ratio: float
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
            ratio=ratio,
            processing=job.base_time * job.sigma * sp,
            communication=job.base_time * (1.0 - job.sigma) * sc,
        )
    return out


def standalone(snapshot: Snapshot, solve: Callable[[Snapshot], Plan]) -> dict[str, Slowdown]:
    """The slowdowns of each job with the platform to itself."""
    out: dict[str, Slowdown] = {}
    for job in snapshot.queue:
        alone = replace(snapshot, queue=(job,))
        out |= slowdowns(alone, solve(alone))
    return out


def place(snapshot: Snapshot, policy: str, seed: int) -> Solved:
    """Allocate the queue at once.

    Raises `NotAllowedError` if a job was left out: its figures would be missing from every mean.
    """
    known, options = ("mbpc-published", AS_PRINTED) if policy == PRINTED else (policy, {})
    solved = solve(
        snapshot, known, options, seed=seed, work=TREE_NODES if policy == "jpn" else None
    )
    if solved.plan.deferred:
        left = solved.plan.deferred[0]
        raise NotAllowedError(f"{policy} leaves out {left.job}: {left.detail}")
    return solved


def platform(case: int, abw: float, seed: int) -> Snapshot:
    """The snapshot of a case."""
    return case_1(abw) if case == 1 else case_2(abw, seed)


STUDIES = {case: Study(name=f"mbpc case {case}", measure=partial(_study, case)) for case in (1, 2)}
"""Every policy on a case at every bandwidth, over the seeds."""


def plotted(rows: Rows) -> Rows:
    """Without what `jpn` could choose instead."""
    return rows.only(lambda row: row["ties"] in (None, CHOSEN))


def total_times(rows: Rows) -> dict[Any, float]:
    """Sum of the jobs' run times by seed, in base times."""
    return {
        seed: sum(row["processing"] + row["communication"] for row in group)
        for (seed,), group in rows.grouped("seed").items()
    }


def proofs(rows: Rows) -> Facts:
    """A row of each allocation of `mbpc`, of those that are proved or bounded, and as printed."""
    ours, printed = (
        Rows(group[0] for group in rows.where(policy=one).grouped("seed", "abw_gbps").values())
        for one in ("mbpc", PRINTED)
    )
    unproved = ours.only(lambda row: row["status"] != "optimal")
    return {
        "ours": ours,
        "proved": ours.where(status="optimal"),
        "bounded": unproved.only(lambda row: row["gap"] is not None),
        "printed": printed,
        "printed_proved": printed.where(status="optimal"),
    }
