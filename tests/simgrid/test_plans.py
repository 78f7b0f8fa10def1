"""What policies planned, process by process: whether jobs end when the plans say.

A plan without saturation must hold to 1 %. Where a plan lets links saturate, a job must take
between Te at SC = 1 and Te at its planned SC: SC is a bound over the whole run time, as if
everybody who shares a link with the job talked whenever it does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.papers.mbpc.study import case_1, case_2

from coalloc.model.values import replace
from coalloc.simulation.reproduce.solving import solve
from tests.simgrid.cases import is_split, planned, random_snapshot
from tests.simgrid.plans import Replayed, replay

SEEDS = range(4)
NEARLY_S = 1e-3
"""What latencies that carry the weights of flows add up to."""


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
        plan = planned(snapshot, policy, threshold)
        for share, traffic in (("rate", "steady"), ("flow", "phases")):
            jobs = replay(program, snapshot, plan, share=share, traffic=traffic)
            for job in jobs:
                length = job.planned.end - job.planned.start
                assert job.planned.sc == 1.0
                assert job.ended == pytest.approx(job.planned.end, abs=0.01 * length)
                assert job.began == pytest.approx(job.planned.start, abs=NEARLY_S)
        split += sum(is_split(snapshot, job.planned) for job in jobs)
    assert split >= 3


def keeps_between(jobs: tuple[Replayed, ...]) -> int:
    """How many jobs of a saturated plan were slowed by links; all lie where they must."""
    for job in jobs:
        assert job.seconds >= job.shortest - NEARLY_S
        assert job.seconds <= job.longest + NEARLY_S
        assert job.began <= job.planned.start + NEARLY_S
    return sum(job.seconds > job.shortest * 1.001 for job in jobs)


@pytest.mark.parametrize(
    ("policy", "threshold"), [("oas", 1.25), ("oas", 1.5), ("mbpc", 1.5), ("mbpc", 4.0)]
)
def test_jobs_of_saturated_plans_take_no_longer_than_planned(
    program: Path, policy: str, threshold: float
) -> None:
    slowed = 0
    for seed in SEEDS:
        snapshot = random_snapshot(seed, tight=True)
        plan = planned(snapshot, policy, threshold)
        keeps_between(replay(program, snapshot, plan, traffic="phases"))
        slowed += keeps_between(replay(program, snapshot, plan, traffic="steady"))
    assert slowed


@pytest.mark.parametrize("abw", [0.4, 1.0])
def test_the_papers_jobs_end_when_mbpc_says(program: Path, abw: float) -> None:
    for snapshot in (case_1(abw), case_2(abw, seed=3)):
        plan = solve(snapshot, "mbpc", {"solver_seconds": 20.0}).plan
        assert len(plan.placements) == 3
        for job in replay(program, snapshot, plan, traffic="steady"):
            assert job.ended == pytest.approx(job.planned.end, rel=0.01)


@pytest.mark.parametrize("abw", [0.2, 0.35])
def test_the_papers_jobs_on_links_that_saturate(program: Path, abw: float) -> None:
    """Below .389 Gbit/s the three jobs cannot run together but on saturated links."""
    snapshot = case_1(abw)
    plan = solve(snapshot, "mbpc", {"solver_seconds": 20.0, "saturation_threshold": 4.0}).plan
    assert len(plan.placements) == 3
    keeps_between(replay(program, snapshot, plan, traffic="phases"))
    assert keeps_between(replay(program, snapshot, plan, traffic="steady"))


def test_a_plan_for_other_links_than_there_are_shows(program: Path) -> None:
    """Plans for links of 1 to 4 Gbit/s, carried out on links of a twentieth."""
    late = 0
    for seed in SEEDS:
        snapshot = random_snapshot(seed, tight=False)
        plan = planned(snapshot, "easy", None)
        narrow = tuple(replace(c, link_gbps=c.link_gbps / 20.0) for c in snapshot.clusters)
        for job in replay(program, replace(snapshot, clusters=narrow), plan):
            late += job.ended > job.planned.end + 0.01 * (job.planned.end - job.planned.start)
    assert late
