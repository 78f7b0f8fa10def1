"""The programs against CP-SAT on random small instances: tight links, mixed powers."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.allocation import mbpc
from tests.support.cpsat_allocation import ask
from tests.support.planned import planned

FEW, MANY = range(12), range(12, 120)
SEEDS = [FEW, pytest.param(MANY, marks=pytest.mark.slow)]


def instance(seed: int) -> Snapshot:
    """Three clusters of mixed powers and three or four jobs; links that are often exactly full."""
    rng = random.Random(seed)
    gbps = rng.choice([0.01, 0.05])
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            # what 1 + 3 or 2 + 2 of 4, or 1 + 1 of 2 processes ask for: full to the last bit
            link_gbps=rng.choice([gbps, 2 * gbps, 4 * gbps / 3, 7 * gbps / 3, 10.0]),
            nodes=tuple(
                Node(name=f"c{k}n{n}", power=rng.choice([0.4, 0.5, 0.8, 1.0]))
                for n in range(rng.randint(2, 5))
            ),
        )
        for k in range(3)
    )
    queue = tuple(
        RigidJob(
            id=f"{j}",
            procs=rng.choice([1, 2, 3, 4, 4, 6]),
            base_time=float(rng.randint(1, 20)),
            sigma=rng.choice([0.0, 0.25, 0.5, 1.0]),
            proc_gbps=gbps,
        )
        for j in range(rng.randint(2, 4))
    )
    return Snapshot(clusters=clusters, queue=queue)


def case(snapshot: Snapshot, jobs: list[str], of: str) -> dict[str, Any]:
    """The instance with some of its jobs, as the oracle reads it."""
    limit = Fraction(1) + Fraction("5e-10")
    return {
        "links": [str(Fraction(repr(c.link_gbps)) * limit) for c in snapshot.clusters],
        "nodes": [
            [k, repr(node.power)] for k, c in enumerate(snapshot.clusters) for node in c.nodes
        ],
        "jobs": [
            [str(job.procs), repr(job.base_time), repr(job.sigma), repr(job.proc_gbps)]
            for job in snapshot.queue
            if isinstance(job, RigidJob) and job.id in jobs
        ],
        "of": of,
    }


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("name", "of"), [("mbpc", "run"), ("mbpc-published", "run"), ("jpn", "traffic")]
)
def test_agrees_with_cp_sat(name: str, of: str, seeds: range) -> None:
    sites = [instance(seed) for seed in seeds]
    plans = [planned(name, snapshot) for snapshot in sites]
    placed = [[p.job for p in plan.placements] for plan in plans]
    answers = ask([case(s, jobs, of) for s, jobs in zip(sites, placed, strict=True)])
    for plan, answer in zip(plans, answers, strict=True):
        assert answer is not None
        value = plan.objective.value if of == "run" else plan.stats["traffic_gbps"]
        assert value == pytest.approx(float(answer), rel=1e-9, abs=1e-12)
    assert len({len(jobs) for jobs in placed}) > 1


@pytest.mark.parametrize("few", [mbpc.FEW, 0])  # by the tables, and by the program
@pytest.mark.parametrize("seeds", SEEDS)
def test_the_first_job_left_out_does_not_fit(
    seeds: range, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mbpc, "FEW", few)
    sites = [instance(seed) for seed in seeds]
    plans = [planned("mbpc", snapshot) for snapshot in sites]
    asked = [
        case(s, [p.job for p in plan.placements] + [plan.deferred[0].job], "traffic")
        for s, plan in zip(sites, plans, strict=True)
        if plan.deferred
    ]
    assert len(asked) > 1
    assert ask(asked) == [None] * len(asked)
