"""The papers' set-ups as ``coalloc reproduce`` makes and measures them."""

from __future__ import annotations

from statistics import fmean

import pytest
from benchmarks.papers.mbpc.dispersion import OWN, WEIGHTED, seen
from benchmarks.papers.mbpc.study import (
    case_1,
    case_2,
    slowdowns,
    standalone,
)
from benchmarks.papers.oas import workloads as oas_workloads
from benchmarks.papers.oas.fig4 import (
    carried_out,
    planned,
    power_correlation,
    share_text,
)
from benchmarks.papers.oas.workloads import DRAWS, FAVOURED, SHAPES, find_draw, workloads

from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce.rows import Rows
from coalloc.simulation.reproduce.solving import NotAllowedError, checked, rigid_jobs, solve


@pytest.mark.parametrize("nodes", SHAPES)
def test_the_six_workloads_are_what_is_published(nodes: int) -> None:
    cases = workloads(nodes)
    assert [case.name for case in cases] == [f"WL-{n}" for n in range(1, 7)]
    assert len({case.draw for case in cases}) == 6
    for case in cases:
        jobs = rigid_jobs(case.snapshot)
        assert len(jobs) == 8
        assert {job.sigma for job in jobs} == {0.7}
        assert all(1 <= job.procs <= min(12, 3 * nodes) for job in jobs)
        assert [len(cluster.nodes) for cluster in case.snapshot.clusters] == [nodes] * 3
        assert {cluster.link_gbps for cluster in case.snapshot.clusters} == {1.0}
        powers = [cluster.nodes[0].power for cluster in case.snapshot.clusters]
        assert powers == [1.0, 0.75, 0.5]


@pytest.mark.parametrize("nodes", SHAPES)
def test_workloads_are_seeded(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workloads(nodes) == workloads(nodes)
    monkeypatch.setattr(oas_workloads, "find_draw", lambda name, nodes, first: first + 99)
    ours, others = workloads(nodes), workloads(nodes, seed=1)
    assert [case.name for case in others] == [case.name for case in ours]
    assert not {case.draw for case in ours} & {case.draw for case in others}


@pytest.mark.parametrize("nodes", SHAPES)
@pytest.mark.parametrize("name", FAVOURED)
def test_the_first_two_suit_the_orders_they_were_made_for(nodes: int, name: str) -> None:
    (case,) = (case for case in workloads(nodes) if case.name == name)
    spans = {
        policy: solve(case.snapshot, policy).makespan
        for policy in ("fcfs", "sjf", "bjf", "fpfs", "spt", "lpt")
    }
    favoured = [spans.pop(policy) for policy in FAVOURED[name]]
    assert min(favoured) * 1.01 <= min(spans.values())
    assert max(favoured) <= min(spans.values()) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", SHAPES)
@pytest.mark.parametrize("name", FAVOURED)
def test_the_draws_are_the_first_that_do(nodes: int, name: str) -> None:
    assert find_draw(name, nodes, oas_workloads.FIRST[nodes]) == DRAWS[nodes][name]


def test_a_slotted_optimum_counts_whole_slots() -> None:
    snapshot = workloads(2)[2].snapshot
    mean = fmean(job.base_time for job in rigid_jobs(snapshot))
    options = {"slot": share_text(0.5), "engine": "search"}
    solved = solve(snapshot, "oas-slots", options, seconds=60.0)
    span, status = planned(solved)
    assert status == "optimal"
    assert span / (0.5 * mean) == pytest.approx(round(span / (0.5 * mean)))
    assert solved.makespan <= span * (1 + 1e-9)
    assert span - solved.makespan < 0.5 * mean
    plain = solve(snapshot, "fpfs")
    assert planned(plain) == (plain.makespan, "heuristic")


def _at_once(snapshot: Snapshot, takes: dict[str, dict[str, int]]) -> list[Placement]:
    """Placements at the snapshot's time, the first nodes of each cluster that are free."""
    free = {cluster.name: [node.name for node in cluster.nodes] for cluster in snapshot.clusters}
    return [
        Placement(
            job=job,
            start=snapshot.time,
            end=snapshot.time + 1.0,
            nodes={free[name].pop(0): 1 for name, count in take.items() for _ in range(count)},
        )
        for job, take in takes.items()
    ]


def test_slowdowns_by_hand() -> None:
    """Equations (4) to (7) on case 1: J1 on C1 and C2, J2 within C4, J3 on C2 and C3."""
    snapshot = case_1(0.4)
    takes = {"J1": {"C1": 16, "C2": 2}, "J2": {"C4": 16}, "J3": {"C2": 9, "C3": 9}}
    plan = _plan(_at_once(snapshot, takes))
    found = slowdowns(snapshot, plan)
    full = (0.075 * 16 * 2 / 17 + 0.075 * 9 * 9 / 17) / 0.4  # both meet on the link of C2
    assert full > 1.0
    assert (found["J2"].sp, found["J2"].sc, found["J2"].ratio) == (1 / 0.8, 1.0, 0.0)
    for job, sp in (("J1", 2.0), ("J3", 1 / 0.6)):
        assert found[job].sp == pytest.approx(sp)
        assert found[job].sc == found[job].ratio == pytest.approx(full)
        assert found[job].processing == pytest.approx(found[job].sigma * sp)
        assert found[job].communication == pytest.approx((1 - found[job].sigma) * full)
    loose = slowdowns(case_1(1.0), plan)
    assert loose["J3"].sc == 1.0
    assert loose["J3"].ratio == pytest.approx(0.4 * full)


def test_standing_alone_is_one_job_at_a_time() -> None:
    snapshot = case_1(0.4)
    asked: list[tuple[str, ...]] = []

    def place(queued: Snapshot) -> Plan:
        asked.append(tuple(job.id for job in queued.queue))
        return _plan(_at_once(queued, {queued.queue[0].id: {"C4": 16, "C3": 2}}))

    found = standalone(snapshot, place)
    assert asked == [("J1",), ("J2",), ("J3",)]
    assert [slowdown.sp for slowdown in found.values()] == [pytest.approx(1 / 0.7)] * 3


def test_case_2_is_seeded_and_mixed() -> None:
    first, again, other = case_2(0.4, 3), case_2(0.4, 3), case_2(0.4, 4)
    powers = [node.power for cluster in first.clusters for node in cluster.nodes]
    assert first == again
    assert first != other
    assert len(set(powers)) == 64
    assert all(0.3 <= power <= 0.9 for power in powers)


def test_dispersion_is_over_the_jobs_and_then_over_the_seeds() -> None:
    rows = Rows(
        {"seed": seed, "sp": sp, "sp_alone": 1.0, "sigma": sigma}
        for seed, sp, sigma in ((0, 1.0, 0.5), (0, 2.0, 0.1), (1, 4.0, 0.5), (1, 1.5, 1.0))
    )
    plain, weighted = (seen(rows, view) for view in (OWN, WEIGHTED))
    assert (plain.high, plain.low, plain.mean) == (2.0, 0.25, 1.125)
    assert (plain.width, plain.widest) == (1.75, 2.5)
    assert weighted.high == pytest.approx((0.1 + 1.5) / 2)
    assert weighted.widest == pytest.approx(1.0)


def _plan(placements: list[Placement]) -> Plan:
    value = max(placement.end for placement in placements)
    return Plan(
        policy="fcfs",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=value),
        placements=tuple(placements),
    )


def test_power_correlation_takes_mean_and_weakest_power() -> None:
    snapshot = workloads(2)[2].snapshot
    jobs = sorted(rigid_jobs(snapshot), key=lambda job: job.base_time)[:3]
    names = [[node.name for node in cluster.nodes] for cluster in snapshot.clusters]
    # more to compute, a larger mean; but the weakest node of the last is the weakest of all
    nodes = [{names[2][0]: 1}, {names[1][0]: 1}, {names[0][0]: 1, names[0][1]: 1, names[2][1]: 1}]
    plan = _plan(
        [
            Placement(job=job.id, start=0.0, end=1.0, nodes=taken)
            for job, taken in zip(jobs, nodes, strict=True)
        ]
    )
    mean, weakest = power_correlation(snapshot, plan)
    assert mean == pytest.approx(1.0)
    assert weakest == pytest.approx(0.0)


@pytest.mark.parametrize("nodes", SHAPES)
def test_a_plan_without_gaps_is_carried_out_as_it_stands(nodes: int) -> None:
    for case in workloads(nodes):
        solved = solve(case.snapshot, "fpfs")
        span = carried_out(case.snapshot, solved.plan)
        # each job of an event schedule starts where another ends, so none can start sooner
        assert span <= solved.makespan * (1 + 1e-9)
        stretched = [
            Placement(job=p.job, start=2 * p.start, end=p.end + p.start, nodes=p.nodes)
            for p in solved.plan.placements
        ]
        assert carried_out(case.snapshot, _plan(stretched)) == pytest.approx(span)


def test_carrying_out_waits_for_links() -> None:
    """A link that one job fills keeps others waiting until its end."""
    base = case_1(0.4)
    takes = {"J1": {"C1": 9, "C2": 9}, "J2": {"C1": 2, "C4": 16}, "J3": {"C2": 7, "C3": 11}}
    tight = 0.075 * 9 * 9 / 17
    snapshot = case_1(tight)
    first, second, third = _at_once(base, takes)
    plan = _plan(
        [
            first,
            Placement(job="J2", start=5.0, end=6.0, nodes=second.nodes),
            Placement(job="J3", start=9.0, end=11.0, nodes=third.nodes),
        ]
    )
    # J2 waits for the link of C1, J3 for that of C2, both until J1 ends at 1
    assert carried_out(snapshot, plan) == pytest.approx(3.0)


def test_a_plan_that_is_not_allowed_is_no_result() -> None:
    snapshot = workloads(2)[2].snapshot
    plan = solve(snapshot, "fcfs").plan
    late = Placement(job=plan.placements[0].job, start=0.0, end=1.0, nodes=plan.placements[0].nodes)
    wrong = Plan(
        policy="fcfs",
        status=plan.status,
        objective=plan.objective,
        placements=(late, *plan.placements[1:]),
    )
    with pytest.raises(NotAllowedError, match="fcfs: "):
        checked(snapshot, wrong)
