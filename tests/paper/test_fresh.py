"""The stored data against fresh runs: what is cheap is measured again, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coalloc.model.snapshot import Snapshot
from coalloc.policies.allocation.counts import Counts
from coalloc.policies.allocation.levels import Descent, axes_of
from coalloc.policies.allocation.scene import read_scene
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.simulation.reproduce.mbpc.cases import ABW, case_1, case_2
from coalloc.simulation.reproduce.mbpc.slowdowns import slowdowns
from coalloc.simulation.reproduce.mbpc.ties import extremes, least_traffic
from coalloc.simulation.reproduce.mca import study as mca_study
from coalloc.simulation.reproduce.mca.tables import EXPERIMENTS as TABLES
from coalloc.simulation.reproduce.oas import fig4 as oas_fig4
from coalloc.simulation.reproduce.oas.workloads import PLAIN, workloads
from coalloc.simulation.reproduce.rows import Rows
from coalloc.simulation.reproduce.solving import solve
from coalloc.simulation.reproduce.study import Run
from coalloc.simulation.reproduce.workflow_instances import TABLE_1, table_1
from tests.paper.test_claims import stored

DIGITS = 1e-8
"""Relative; a CSV has nine digits."""


def case(number: int, abw: float, seed: int) -> Snapshot:
    return case_1(abw) if number == 1 else case_2(abw, seed)


def rows_of(figure: str, **wanted: Any) -> Rows:
    found = stored(figure).where(**wanted)
    assert found
    return found


def agree(snapshot: Snapshot, policy: str, rows: Rows) -> None:
    found = slowdowns(snapshot, solve(snapshot, policy).plan)
    for row in rows:
        mine = found[row["job"]]
        assert mine.sp == pytest.approx(row["sp"], rel=DIGITS)
        assert mine.link_ratio == pytest.approx(row["ratio"], rel=DIGITS)


@pytest.mark.parametrize("abw", ABW)
@pytest.mark.parametrize("policy", ["mbpc", "cbs"])
def test_mbpc_case_1(policy: str, abw: float) -> None:
    agree(case_1(abw), policy, rows_of("mbpc-fig4", policy=policy, abw_gbps=abw))


@pytest.mark.parametrize("policy", ["mbpc", "cbs"])
def test_mbpc_case_2(policy: str) -> None:
    for seed in (0, 17):
        wanted = {"policy": policy, "abw_gbps": 0.7, "seed": seed}
        agree(case_2(0.7, seed), policy, rows_of("mbpc-fig8", **wanted))


@pytest.mark.slow
@pytest.mark.parametrize("abw", ABW)
def test_what_jpn_chooses(abw: float) -> None:
    agree(case_1(abw), "jpn", rows_of("mbpc-fig4", policy="jpn", abw_gbps=abw))


@pytest.mark.parametrize(("figure", "number", "seed"), [("fig5", 1, None), ("fig9", 2, 4)])
def test_what_jpn_could_choose(figure: str, number: int, seed: int | None) -> None:
    snapshot = case(number, 0.4, seed or 0)
    _, splits = least_traffic(snapshot)
    for ties, found in zip(("best", "worst"), extremes(snapshot, splits), strict=True):
        rows = rows_of(f"mbpc-{figure}", ties=ties, seed=seed)
        assert found == pytest.approx([row["sp"] for row in rows], rel=DIGITS)


@pytest.mark.parametrize(("abw", "value"), [(0.4, 3.0005), (0.7, 2.0840), (1.0, 1.7173)])
def test_mbpc_reaches_the_optimum_of_equation_8_as_printed(abw: float, value: float) -> None:
    """In case 1 the clamp of SC costs nothing: both optima are one allocation."""
    options = read_options({}, lookup("mbpc").options)
    counts = Counts(read_scene(case_1(abw), options), (0, 1, 2), below=True)
    axes, best = axes_of(counts), float("inf")

    def tell(at: tuple[int, ...]) -> float:
        nonlocal best
        best = min(best, axes.value(at))
        return best

    found = Descent(axes, lambda at: counts.fits(*axes.levels(at)), tell, stop=lambda: False).run()
    assert found.proved
    assert best == pytest.approx(value, abs=5e-5)
    jobs = slowdowns(case_1(abw), solve(case_1(abw), "mbpc").plan).values()
    printed = sum(job.processing + (1.0 - job.sigma) * job.link_ratio for job in jobs)
    assert printed == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("policy", [*PLAIN, "oas-slots, 15 %", "oas-slots"])
def test_oas_fig4(policy: str) -> None:
    (first, *_) = workloads(2)
    solved = oas_fig4.solve_with(first.snapshot, policy)
    (row,) = rows_of("oas-fig4", platform="3x2", workload=first.name, policy=policy)
    assert oas_fig4.planned(solved)[0] == pytest.approx(row["makespan_s"], rel=DIGITS)


def test_mca_table_1() -> None:
    fresh = list(TABLES["mca-table1"].measure(Run()))
    for mine, row in zip(fresh, stored("mca-table1"), strict=True):
        assert mine["path_s"] == pytest.approx(row["path_s"], rel=DIGITS)
        assert mine["share"] == pytest.approx(row["share"], rel=DIGITS)


def _shapes() -> Iterator[tuple[str, int, Snapshot]]:
    for name in TABLE_1:
        yield from ((name, n, snapshot) for n, snapshot in enumerate(table_1(name, 0), 1))


@pytest.mark.parametrize("policy", ["mca-heft", mca_study.BEST_FIT])
def test_mca_heft_on_every_shape_of_table_1(policy: str) -> None:
    known, options = mca_study.VARIANTS.get(policy, (policy, {}))
    for name, number, snapshot in _shapes():
        (row,) = rows_of("mca-fig2", set=name, number=number, draw=0, policy=policy)
        span = solve(snapshot, known, options).makespan
        assert span == pytest.approx(row["makespan_s"], rel=DIGITS)
