"""The stored data against fresh runs: what is cheap is measured again, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.papers.demt.study import PROCS, Instance
from benchmarks.papers.mbpc.study import (
    ABW,
    AS_PRINTED,
    PRINTED,
    case_1,
    case_2,
    place,
    slowdowns,
)
from benchmarks.papers.mbpc.ties import extremes, least_traffic
from benchmarks.papers.mca import figures as mca_figures
from benchmarks.papers.mca import study as mca_study
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from benchmarks.papers.oas import fig4 as oas_fig4
from benchmarks.papers.oas.workloads import JOBS, PLAIN, oas_instance
from benchmarks.papers.registry import template
from benchmarks.papers.study import Run
from benchmarks.papers.workflow_instances import TABLE_1, table_1

from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce.rows import Rows
from coalloc.simulation.reproduce.solving import solve
from coalloc.simulation.reproduce.words import MEASURED, PAPER
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
    found = slowdowns(snapshot, place(snapshot, policy, 0).plan)
    for row in rows:
        mine = found[row["job"]]
        assert mine.sp == pytest.approx(row["sp"], rel=DIGITS)
        assert mine.ratio == pytest.approx(row["ratio"], rel=DIGITS)


@pytest.mark.parametrize("abw", ABW)
@pytest.mark.parametrize("policy", ["mbpc", "cbs"])
def test_mbpc_case_1(policy: str, abw: float) -> None:
    agree(case_1(abw), policy, rows_of("mbpc-fig4", policy=policy, abw_gbps=abw))


@pytest.mark.parametrize("policy", ["mbpc", pytest.param(PRINTED, marks=pytest.mark.slow), "cbs"])
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
    found = solve(case_1(abw), "mbpc-published", AS_PRINTED).plan.stats
    best = found["printed_value"]
    assert best == found["printed_bound"] == pytest.approx(value, abs=5e-5)
    jobs = slowdowns(case_1(abw), solve(case_1(abw), "mbpc").plan).values()
    printed = sum(job.processing + (1.0 - job.sigma) * job.ratio for job in jobs)
    assert printed == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("policy", [*PLAIN, "oas-slots, 15 %", "oas-slots", "oas"])
@pytest.mark.parametrize(("number", "workload"), [(0, "WL-1"), (29, "WL-6")])
def test_oas_fig4(policy: str, number: int, workload: str) -> None:
    place = {"platform": "3x2", "set": number, "workload": workload}
    (row,) = rows_of("oas-fig4", **place, policy=policy)
    snapshot = oas_instance(row["draw"], 2, JOBS)
    solved = oas_fig4.solve_with(snapshot, policy)
    assert oas_fig4.planned(solved)[0] == pytest.approx(row["makespan_s"], rel=DIGITS)
    # of several optimal plans CP-SAT may take another
    if policy not in ("oas", "oas-slots, 15 %", "oas-slots"):
        rho = oas_fig4.power_correlation(snapshot, solved.plan)[0]
        assert rho == pytest.approx(row["rho_mean"], rel=DIGITS)


@pytest.mark.parametrize(("figure", "family"), list(enumerate(FAMILIES, 3)))
def test_demt_and_its_comparators(figure: int, family: str) -> None:
    found = Instance(moldable_instance(family, 25, PROCS, 7)).published()
    stored_rows = rows_of(f"demt-fig{figure}", jobs=25, run=7)
    assert found.keys() == {row["algorithm"] for row in stored_rows} - {"bicriteria"}
    for row in stored_rows:
        if row["algorithm"] in found:
            mine = found[row["algorithm"]]
            assert mine["makespan_s"] == pytest.approx(row["makespan_s"], rel=DIGITS)
            assert mine["completion"] == pytest.approx(row["completion"], rel=DIGITS)


def test_mca_table_1() -> None:
    fresh = list(mca_figures.EXPERIMENTS["mca-table1"].measure(Run()))
    for mine, row in zip(fresh, stored("mca-table1"), strict=True):
        assert mine["path_s"] == pytest.approx(row["path_s"], rel=DIGITS)
        assert mine["share"] == pytest.approx(row["share"], rel=DIGITS)


def _shapes() -> Iterator[tuple[str, int, Snapshot]]:
    for name in TABLE_1:
        yield from ((name, n, snapshot) for n, snapshot in enumerate(table_1(name, 0), 1))


@pytest.mark.parametrize("policy", [p for p in mca_study.POLICIES if p != mca_study.SEARCH])
def test_mappings_on_every_shape_of_table_1(policy: str) -> None:
    known, options = mca_study.VARIANTS.get(policy, (policy, {}))
    for name, number, snapshot in _shapes():
        wanted = {"set": name, "number": number, "draw": 0, "policy": policy}
        solved = solve(snapshot, known, options)
        job = mca_study.workflow_of(snapshot)
        found = {**mca_study.measures(snapshot, job, solved), "makespan_s": solved.makespan}
        for table in ("mca-fig2", "mca-table2", "mca-table3"):
            (row,) = rows_of(table, **wanted)
            for key in row.keys() & found.keys():
                assert found[key] == pytest.approx(row[key], rel=DIGITS), (table, key)


def test_mca_tables_2_and_3_hold_what_the_text_prints() -> None:
    """Lines of the paper's own figures against the words of the page, which are their means."""

    def lines(number: int) -> list[list[str]]:
        shown = "\n".join(template(f"mca-table{number}").sections[MEASURED])
        return [
            line[2:-2].split(" | ")[1:] for line in shown.split("\n") if "the paper's `" in line
        ]

    (resources, spread), (comm,) = (template(f"mca-table{n}").sections[PAPER] for n in (2, 3))
    ours, others, several = lines(2)
    told = [f"{float(a):.0f} against {float(b):.0f}" for a, b in zip(ours, others, strict=True)]
    assert [one for one in told if one not in resources] == []
    assert ", ".join(f"{float(one.split(' ')[0]):.0f} %" for one in several) in spread
    for both in zip(*lines(3), strict=True):
        assert ", ".join(one.replace(",", " and") for one in both) in comm
