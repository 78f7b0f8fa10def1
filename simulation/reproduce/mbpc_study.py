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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce.experiment import Row, Run
from coalloc.simulation.reproduce.mbpc_cases import ABW, case_1, case_2
from coalloc.simulation.reproduce.mbpc_slowdowns import slowdowns, standalone
from coalloc.simulation.reproduce.rows import column, grouped, where
from coalloc.simulation.reproduce.solving import NotAllowedError, Solved, solve

POLICIES = ("mbpc", "cbs", "jpn")
TIGHT = min(ABW)
"""Of Figs. 5, 6 and 9, Gbit/s."""
TIES = ("first", "strong", "weak")
SEEDS, QUICK_SEEDS = 30, 2
SOLVED = ("mbpc", "jpn")
"""Policies that solve a program."""
SECONDS, QUICK_SECONDS = 10.0, 3.0
"""Most time of one program."""
COLUMNS = {
    "case": "1 or 2",
    "seed": "of the nodes' powers, case 2",
    "abw_gbps": "capacity of each link, Gbit/s",
    "policy": "of the registry",
    "ties": "how jpn chooses between allocations of equal traffic",
    "job": "J1 to J3",
    "sigma": "weight of processing",
    "sp": "processing slowdown",
    "sp_alone": "with the platform to itself, under the same policy",
    "sp_best": "with the platform to itself, under mbpc",
    "sc": "communication slowdown, at least 1",
    "sc_alone": "with the platform to itself, under the same policy",
    "ratio": "load by capacity of the fullest link that the job uses",
    "ratio_alone": "with the platform to itself, under the same policy",
    "processing": "sigma SP, in base times (which are 1)",
    "communication": "(1 - sigma) SC, in base times",
    "status": "how the search ended",
    "gap": "share by which the sum of run times may be above the least, where a bound is known",
    "cpu_s": "processor time of the call, s",
}


def study(run: Run, case: int) -> list[Row]:
    """Every policy on a case at every bandwidth, over the seeds; made once per run.

    Returns
    -------
    list of rows
        At the tightest links `jpn` is there once for each way to break ties, elsewhere with its
        default.
    """
    return run.share(("mbpc", case), lambda: list(_study(run, case)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One policy on one platform."""

    case: int
    seed: int
    abw: float
    policy: str
    ties: str | None


def _study(run: Run, case: int) -> Iterator[Row]:
    count = 1 if case == 1 else QUICK_SEEDS if run.quick else SEEDS
    first = run.seed * SEEDS
    places = [(seed, abw) for seed in range(first, first + count) for abw in bandwidths(run)]
    for seed, abw in run.steps(f"MBPC case {case}", places):
        best: dict[str, float] = {}
        for policy, ties in variants(abw):
            point = Point(case=case, seed=seed, abw=abw, policy=policy, ties=ties)
            yield from _jobs(point, run.quick, best)


def _jobs(point: Point, quick: bool, best: dict[str, float]) -> Iterator[Row]:
    """A row per job; the first policy, which is `mbpc`, leaves its standalone SP in `best`."""
    snapshot = platform(point.case, point.abw, point.seed)
    joint = place(point, snapshot, quick)
    together = slowdowns(snapshot, joint.plan)
    alone = standalone(snapshot, lambda queued: place(point, queued, quick).plan)
    for job, found in together.items():
        own = alone[job]
        yield {
            "case": point.case,
            "seed": point.seed if point.case == 2 else None,
            "abw_gbps": point.abw,
            "policy": point.policy,
            "ties": point.ties,
            "job": job,
            "sigma": found.sigma,
            "sp": found.sp,
            "sp_alone": own.sp,
            "sp_best": best.setdefault(job, own.sp),
            "sc": found.sc,
            "sc_alone": own.sc,
            "ratio": found.link_ratio,
            "ratio_alone": own.link_ratio,
            "processing": found.processing,
            "communication": found.communication,
            "status": str(joint.plan.status),
            "gap": joint.plan.objective.gap,
            "cpu_s": joint.cpu_s,
        }


def place(point: Point, snapshot: Snapshot, quick: bool = False) -> Solved:
    """Allocate the queue at once.

    Raises
    ------
    NotAllowedError
        If a job was left out: its figures would be missing from every mean.
    """
    options: dict[str, Any] = {} if point.ties is None else {"ties": point.ties}
    if point.policy in SOLVED:
        options["solver_seconds"] = QUICK_SECONDS if quick else SECONDS
    solved = solve(snapshot, point.policy, options, seed=point.seed)
    if solved.plan.deferred:
        left = solved.plan.deferred[0]
        raise NotAllowedError(f"{point.policy} leaves out {left.job}: {left.detail}")
    return solved


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


def dispersion(
    rows: Sequence[Row], name: str, against: str, *, weighted: bool = False
) -> Dispersion:
    """Of one column less another; weighted by sigma if asked for."""
    groups = [
        [(row[name] - row[against]) * (row["sigma"] if weighted else 1.0) for row in group]
        for group in grouped(rows, "seed").values()
    ]
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


def proofs(rows: Sequence[Row]) -> str:
    """One sentence on what is proved of the allocations of `mbpc`."""
    mine = [group[0] for group in grouped(where(rows, policy="mbpc"), "seed", "abw_gbps").values()]
    proved = where(mine, status="optimal")
    said = (
        f"`mbpc` was proved optimal on {len(proved)} of {len(mine)} platforms; the longest call "
        f"took {max(column(mine, 'cpu_s')):.2f} s of processor time."
    )
    gaps = [row["gap"] for row in mine if row not in proved and row["gap"] is not None]
    if gaps:
        said += (
            f" Where the time ended first, its sum of run times is above the least by at most "
            f"{fmean(gaps):.1%} in the mean and {max(gaps):.1%} in the worst case, so what it "
            "shows there is a lower limit of what the model can do."
        )
    return said.replace("%", " %")
