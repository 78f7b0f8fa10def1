"""What policies planned, process by process: whether jobs end when the plans say.

A plan without saturation must hold to 1 %. Where a plan lets links saturate, a job must take
between Te at SC = 1 and Te at its planned SC: SC is a bound over the whole run time, as if
everybody who shares a link with the job talked whenever it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce.mbpc_cases import case_1, case_2
from coalloc.simulation.reproduce.solving import solve
from tests.simgrid.cases import random_snapshot
from tests.simgrid.plans import Replayed, replay

SEEDS = range(4)
QUICK: Mapping[str, Mapping[str, Any]] = {
    "oas": {"patience": 100, "exact_work": 100_000},
    "auto": {"patience": 20, "exact_work": 20_000},
    "easy": {},
    "mbpc": {"solver_seconds": 20.0, "select": "skip"},
}
NEARLY_S = 1e-3
"""What latencies that carry the weights of flows add up to."""


def made(snapshot: Snapshot, policy: str, threshold: float | None) -> Plan:
    options = {**QUICK[policy]}
    if threshold is not None:
        options["saturation_threshold"] = threshold
    plan = solve(snapshot, policy, options).plan
    assert plan.placements
    return plan


def is_split(snapshot: Snapshot, job: Replayed) -> bool:
    home = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    return len({home[name] for name in job.planned.nodes}) > 1


@pytest.mark.parametrize("tight", [False, True], ids=["loose", "tight"])
@pytest.mark.parametrize(
    ("policy", "threshold"),
    [("oas", None), ("oas", 1.0), ("mbpc", None), ("mbpc", 1.0), ("easy", None), ("auto", None)],
)
def test_jobs_end_when_plans_without_saturation_say(
    program: Path, policy: str, threshold: float | None, tight: bool
) -> None:
    split = 0
    for seed in SEEDS:
        snapshot = random_snapshot(seed, tight=tight)
        plan = made(snapshot, policy, threshold)
        for share, traffic in (("rate", "steady"), ("flow", "phases")):
            jobs = replay(program, snapshot, plan, share=share, traffic=traffic)
            for job in jobs:
                length = job.planned.end - job.planned.start
                assert job.planned.sc == 1.0
                assert job.ended == pytest.approx(job.planned.end, abs=0.01 * length)
                assert job.began == pytest.approx(job.planned.start, abs=NEARLY_S)
        split += sum(is_split(snapshot, job) for job in jobs)
    assert split >= 3


@pytest.mark.parametrize("traffic", ["phases", "steady"])
@pytest.mark.parametrize("threshold", [1.5, 4.0])
@pytest.mark.parametrize("policy", ["oas", "mbpc"])
def test_jobs_of_saturated_plans_take_no_longer_than_planned(
    program: Path, policy: str, threshold: float, traffic: str
) -> None:
    saturated = 0
    for seed in SEEDS:
        snapshot = random_snapshot(seed, tight=True)
        jobs = replay(program, snapshot, made(snapshot, policy, threshold), traffic=traffic)
        for job in jobs:
            assert job.seconds >= job.shortest - NEARLY_S
            assert job.seconds <= job.longest + NEARLY_S
            assert job.began <= job.planned.start + NEARLY_S
        saturated += sum(job.planned.sc > 1.0 + 1e-9 for job in jobs)
    assert saturated >= 3


@pytest.mark.parametrize("abw", [0.4, 1.0])
def test_the_papers_jobs_end_when_mbpc_says(program: Path, abw: float) -> None:
    for snapshot in (case_1(abw), case_2(abw, seed=3)):
        plan = solve(snapshot, "mbpc", {"solver_seconds": 20.0}).plan
        assert len(plan.placements) == 3
        for job in replay(program, snapshot, plan, traffic="steady"):
            assert job.ended == pytest.approx(job.planned.end, rel=0.01)
