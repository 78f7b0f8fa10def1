"""Ties of `mbpc`: of allocations that run equally long, the one that loads the links least."""

from __future__ import annotations

import random
from itertools import product
from math import fsum
from typing import Any

import pytest
from benchmarks.papers.mbpc.study import slowdowns

from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.simulation.reproduce.solving import checked, rigid_jobs
from tests.simgrid.cases import planned, random_snapshot


def solve(
    snapshot: Snapshot, budget: Budget | None = None, policy: str = "mbpc", **given: Any
) -> Plan:
    row = lookup(policy)
    plan = row.solve(snapshot, read_options(given, row.options), budget or Budget())
    checked(snapshot, plan)
    return plan


def site(seed: int) -> Snapshot:
    """Three clusters of one power each, up to three jobs that all fit."""
    rng = random.Random(seed)
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=rng.choice([0.2, 0.3, 0.4]),
            nodes=tuple(Node(name=f"c{k}n{n}", power=power) for n in range(rng.randint(4, 5))),
        )
        for k, power in enumerate(rng.sample([0.5, 0.6, 0.8, 1.0], 3))
    )
    queue = tuple(
        RigidJob(
            id=str(n),
            procs=rng.randint(4, 7),
            base_time=float(rng.randint(1, 5)),
            sigma=rng.choice([0.2, 0.5, 1.0]),
            proc_gbps=rng.choice([0.03, 0.05]),
        )
        for n in range(rng.choice([2, 3]))
    )
    return Snapshot(clusters=clusters, queue=queue)


def communication(snapshot: Snapshot, plan: Plan) -> float:
    """Equation (8)'s part of communication with SC as printed, seconds."""
    sigma_and_base = {job.id: (job.sigma, job.base_time) for job in rigid_jobs(snapshot)}
    return fsum(
        (1.0 - sigma_and_base[name][0]) * sigma_and_base[name][1] * one.ratio
        for name, one in slowdowns(snapshot, plan).items()
    )


def all_values(snapshot: Snapshot) -> list[tuple[float, float]]:
    """Of every allocation the sum of run times, and the communication as printed, seconds."""
    clusters, jobs = snapshot.clusters, rigid_jobs(snapshot)
    splits = [
        [
            split
            for split in product(*(range(len(c.nodes) + 1) for c in clusters))
            if sum(split) == job.procs
        ]
        for job in jobs
    ]
    found = []
    for chosen in product(*splits):
        columns = list(zip(*chosen, strict=True))
        if any(sum(column) > len(c.nodes) for column, c in zip(columns, clusters, strict=True)):
            continue
        loads = [
            [job.proc_gbps * t * (job.procs - t) / (job.procs - 1) for t in split]
            for job, split in zip(jobs, chosen, strict=True)
        ]
        full = [
            sum(column) / c.link_gbps
            for column, c in zip(zip(*loads, strict=True), clusters, strict=True)
        ]
        if max(full) > 1.0 + 1e-9:
            continue
        run = idle = 0.0
        for job, split, load in zip(jobs, chosen, loads, strict=True):
            weakest = min(c.nodes[0].power for c, t in zip(clusters, split, strict=True) if t)
            run += job.base_time * (job.sigma / weakest + 1.0 - job.sigma)
            ratio = max((f for f, own in zip(full, load, strict=True) if own > 0.0), default=0.0)
            idle += job.base_time * (1.0 - job.sigma) * ratio
        found.append((round(run, 9), idle))
    return found


ALL_FIT = (2, 5, 8, 19, 29, 44, 51, 57)
"""Seeds whose jobs all fit at once; the first plan of 8, 29 and 51 loads the links more."""


@pytest.mark.parametrize("seed", ALL_FIT)
def test_ties_go_to_the_least_load_by_trying_all(seed: int) -> None:
    snapshot = site(seed)
    plan = solve(snapshot)
    assert not plan.deferred
    run, idle = min(all_values(snapshot))
    assert plan.objective.value == pytest.approx(run, rel=1e-9)
    # among the vectors of levels of that sum only the one that was found is looked at
    assert communication(snapshot, plan) == pytest.approx(idle, abs=1e-9)


@pytest.mark.parametrize("engine", ["mip", "search"])
@pytest.mark.parametrize("seed", ALL_FIT)
def test_equation_8_as_printed_by_trying_all(seed: int, engine: str) -> None:
    snapshot = site(seed)
    plan = solve(snapshot, policy="mbpc-published", sc="printed", engine=engine)
    fixed = fsum((1.0 - job.sigma) * job.base_time for job in rigid_jobs(snapshot))
    least = min(run - fixed + idle for run, idle in all_values(snapshot))
    assert plan.stats["printed_value"] == pytest.approx(least, rel=1e-6)
    assert plan.stats["printed_bound"] == pytest.approx(least, rel=1e-6)
    assert plan.objective.bound is None
    assert plan.status is Status.HEURISTIC


def test_the_limit_of_work_holds_for_ties_as_well() -> None:
    snapshot = site(51)
    spent = int(solve(snapshot).stats["work"])
    for work in (0, 1, spent // 2, spent - 1, spent):
        plan = solve(snapshot, Budget(work=work))
        assert int(plan.stats["work"]) <= work


def test_jobs_that_load_no_link_are_eased_beside_others() -> None:
    """Each has one level of SC, which is that of the fullest link."""
    snapshot = random_snapshot(31, tight=True)
    plan = planned(snapshot, "mbpc", 4.0)
    assert plan.placements
    assert not check(snapshot, plan).violations
