"""Floods of small jobs without end, in which jobs as wide as a cluster arrive early."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.simulation.workload import Workload

WIDE = "wide"
"""User of the wide jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """A workload, its platform, and whether jobs may be split."""

    workload: Workload
    platform: Platform
    coallocation: str


def flood(seed: int, seconds: float, most_nodes: int = 64) -> Flood:
    """Small jobs of 20 to 240 s for so long, of one to eight users, some in arrays.

    Their limits are up to ten times their run times. One to three wide jobs of three quarters of a
    cluster or more arrive within a quarter of an hour.
    """
    draw = Random(seed)
    sizes = [n for n in (16, 24, 32, 48, 64) if n <= most_nodes]
    counts = [draw.choice(sizes) for _ in range(draw.choice([1, 1, 2]))]
    widths = draw.choice([(1,), (1,), (1, 2), (1, 2, 4)])
    shares = [draw.choice([0.1, 0.3, 0.7, 1.0]) for _ in range(draw.choice([1, 3, 8]))]
    area, load = 130.0 * sum(widths) / len(widths), draw.choice([0.8, 0.9, 0.95, 1.05])
    array = draw.choice([1, 1, 10])
    rows: list[tuple[float, int, float, float, str]] = []
    at = 0.0
    while at < seconds:
        user, procs = draw.randrange(len(shares)), draw.choice(widths)
        run = float(draw.randint(20, 240))
        for _ in range(array):
            limit = max(60.0, run / (shares[user] * draw.uniform(0.5, 1.0)))
            rows.append((at, procs, run, max(limit, run), str(user)))
        at += draw.expovariate(sum(counts) * load / (area * array))
    for _ in range(draw.choice([1, 2, 3])):
        procs = max(counts) * draw.choice([12, 15, 16, 16]) // 16
        run = draw.choice([120.0, 300.0, 600.0])
        rows.append((draw.uniform(60.0, 900.0), procs, run, 1.5 * run, WIDE))
    jobs = []
    for number, (submit, procs, run, limit, owner) in enumerate(sorted(rows), 1):
        job = RigidJob(
            id=str(number), submitted=submit, earliest=submit, procs=procs, base_time=limit
        )
        jobs.append(
            LoggedJob(job=job, run_s=run, killed=False, number=number, line=number, user=owner)
        )
    clusters = tuple(
        Cluster(name=f"c{k}", nodes=tuple(Node(name=f"c{k}n{n}") for n in range(count)))
        for k, count in enumerate(counts)
    )
    return Flood(
        workload=Workload(name=str(seed), jobs=tuple(jobs)),
        platform=Platform(name="flood", clusters=clusters),
        coallocation=draw.choice(["sooner", "forbidden"]),
    )
