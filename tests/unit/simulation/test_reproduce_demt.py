"""What is measured and told of the bi-criteria paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from benchmarks.papers.demt import study as demt_study
from benchmarks.papers.demt.families import (
    MAKESPAN,
    PRICED,
    REPAIRED,
    between,
    facts,
    furthest,
    means,
    ratio,
    wins,
)
from benchmarks.papers.demt.fig7 import EXPERIMENTS as TIMES
from benchmarks.papers.demt.fig7 import TOLD, timed
from benchmarks.papers.demt.study import (
    ACCEPTED,
    ALGORITHMS,
    BALANCED,
    REACHED,
    STUDIES,
    UNSHUFFLED,
    Instance,
    Ours,
    rows_of,
)
from benchmarks.papers.moldable_instances import FAMILIES as DRAWN
from benchmarks.papers.moldable_instances import moldable_instance
from benchmarks.papers.registry import template
from benchmarks.papers.study import Run

from coalloc.simulation.reproduce.rows import Row, Rows
from coalloc.simulation.reproduce.solving import solve
from coalloc.simulation.reproduce.words import MEASURED, REASONS, Template, fill, shown

REGISTERED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    REACHED: ("demt", {"guess": "reached", "selection": "knapsack"}),
    ACCEPTED: ("demt", {"guess": "accepted", "selection": "knapsack"}),
    UNSHUFFLED: ("demt", {"guess": "reached", "selection": "knapsack", "shuffles": 0}),
    **{name: (name, {}) for name in ALGORITHMS if "demt" not in name and name != BALANCED},
}


def row(jobs: int, run: int, algorithm: str, span: float, total: float, **other: Any) -> Row:
    bounds = {"makespan_bound_s": 2.0, "lp_printed": 5.0, "lp_repaired": 4.0, "priced": 8.0}
    place = {"jobs": jobs, "run": run, "algorithm": algorithm, "dominated": 0}
    return {**place, "makespan_s": span, "completion": total, **bounds, **other}


def rows_everywhere(**values: tuple[float, float]) -> Rows:
    """Two runs each of 25 and 50 jobs; every algorithm at (4, 20) but those that are named."""
    return Rows(
        row(jobs, run, name, *values.get(name, (4.0, 20.0)))
        for jobs in (25, 50)
        for run in (0, 1)
        for name in ALGORITHMS
    )


@pytest.mark.parametrize("family", DRAWN)
def test_one_instance_is_what_the_policies_of_the_registry_reach(family: str) -> None:
    snapshot = moldable_instance(family, 15, 12, 3)
    instance = Instance(snapshot)
    found, bounds = instance.published(), instance.bounds()
    assert list(found) == [name for name in ALGORITHMS if name != BALANCED]
    for name, (policy, options) in REGISTERED.items():
        solved = solve(snapshot, policy, {**options, "objective": "weighted_completion"})
        assert found[name]["makespan_s"] == pytest.approx(solved.makespan)
        assert found[name]["completion"] == pytest.approx(solved.plan.objective.value)
        assert found[name]["makespan_s"] >= bounds["makespan_bound_s"]
        assert found[name]["completion"] >= bounds["lp_repaired"]


def test_ours_has_a_proved_bound_and_a_front() -> None:
    instance = Instance(moldable_instance("highly", 15, 12, 3))
    ours = instance.ours(2000)
    assert (ours.balanced["makespan_s"], ours.balanced["completion"]) in [
        pytest.approx(point) for point in ours.front
    ]
    assert instance.bounds()["lp_repaired"] < ours.priced <= min(total for _, total in ours.front)
    cmax, total = ours.front[0]
    assert ours.dominates({"makespan_s": 1.001 * cmax, "completion": 1.001 * total})
    assert not ours.dominates({"makespan_s": cmax, "completion": 1.001 * total})
    assert not ours.dominates({"makespan_s": 0.999 * cmax, "completion": 2.0 * total})


def test_rows_of_an_instance() -> None:
    found = {
        "a": {"makespan_s": 3.0, "completion": 9.0},
        "b": {"makespan_s": 1.0, "completion": 9.0},
    }
    bounds = {"makespan_bound_s": 1.0, "lp_printed": 2.0, "lp_repaired": 3.0}
    point = {"makespan_s": 2.0, "completion": 8.0}
    ours = Ours(balanced=point, front=[(2.0, 8.0)], priced=7.0)
    rows = list(rows_of(25, 4, found, bounds, ours))
    assert [(one["algorithm"], one["dominated"], one["priced"]) for one in rows] == [
        ("a", 1, 7.0),
        ("b", 0, 7.0),
        (BALANCED, 0, 7.0),
    ]
    assert all(one.keys() == template("demt-fig3").columns.keys() for one in rows)
    alone = list(rows_of(25, 4, found, bounds, None))
    assert [(one["algorithm"], one["dominated"], one["priced"]) for one in alone] == [
        ("a", None, None),
        ("b", None, None),
    ]


def test_the_study_draws_every_family_anew_and_shares_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(demt_study.QUICK_OURS) < max(demt_study.OURS)
    monkeypatch.setattr(demt_study, "PROCS", 10)
    monkeypatch.setattr(demt_study, "QUICK_OURS", {6: 1, 9: 2})
    monkeypatch.setattr(demt_study, "QUICK_WORK", 300)
    run = Run(quick=True)
    rows = STUDIES["mixed"].rows(run)
    assert STUDIES["mixed"].rows(run) is rows
    assert [(r["jobs"], r["run"]) for r in rows if r["algorithm"] == BALANCED] == [
        (6, 0),
        (9, 0),
        (9, 1),
    ]
    assert sum(r["algorithm"] == REACHED for r in rows) == 4
    other = STUDIES["mixed"].rows(Run(quick=True, seed=1))
    assert {r["run"] for r in other} == {40, 41}
    assert {r["makespan_s"] for r in rows}.isdisjoint(r["makespan_s"] for r in other)


def test_averages_are_ratios_of_sums() -> None:
    second = row(25, 1, "a", 12.0, 12.0, makespan_bound_s=10.0, priced=None)
    rows = Rows([row(25, 0, "a", 4.0, 12.0), second])
    found = ratio(rows, MAKESPAN)
    assert found is not None
    assert (found.low, found.mean, found.high) == pytest.approx((1.2, 16.0 / 12.0, 2.0))
    assert shown(found, ".2f") == "1.33 (1.20 to 2.00)"
    known = ratio(rows, PRICED)
    assert known is not None
    assert known.mean == 1.5
    assert ratio(Rows([second]), PRICED) is None
    assert means(rows, "a", REPAIRED) == {25: 3.0}
    assert between(rows, "priced") == 2.0
    assert furthest(rows, "lp_printed") == 1.25


def test_who_is_better_is_read_from_the_rows() -> None:
    rows = rows_everywhere(demt=(3.0, 20.0))
    found = facts(rows)
    assert found["ahead_on_completion"] == "none"
    assert found["ahead_on_makespan"].count("`") == 2 * 5
    assert found["behind"].startswith("behind `gang` at 25 jobs, `gang` at 50 jobs, ")
    others = rows.only(lambda r: (r["jobs"], r["algorithm"]) != (50, "gang"))
    found = facts(Rows([*others, row(50, 0, "gang", 1.0, 1.0)]))
    assert "`gang` (at 25 jobs)" in found["ahead_on_makespan"]
    assert found["gang_ahead"] == ("50",)


@pytest.mark.parametrize(
    ("span", "total", "held", "found"),
    [
        (3.0, 9.0, "reproduced", ("up to 2.5 in 4 of 4 runs, at most 2.25", "up to 2 in 4 of 4")),
        (5.0, 30.0, "not reproduced", ("up to 2.5 in 0 of 4 runs, at most 7.50", "up to 2 in 0")),
    ],
)
def test_the_general_claims_count_runs(
    span: float, total: float, held: str, found: tuple[str, str]
) -> None:
    general = [
        claim
        for claim in told(rows_everywhere(demt=(span, total))).claims
        if "never above 2.5" in claim.words or "almost always" in claim.words
    ]
    for claim, start in zip(general, found, strict=True):
        assert claim.held == held
        assert claim.found.startswith(start)


def told(rows: Rows, name: str = "demt-fig3") -> Template:
    return fill(template(name), facts(rows))


def test_wins_need_both_criteria_against_both_readings() -> None:
    assert wins(rows_everywhere(bicriteria=(3.0, 19.0))) == (4, 4)
    assert wins(rows_everywhere(bicriteria=(3.0, 20.0))) == (0, 4)
    rows = rows_everywhere(bicriteria=(3.0, 19.0), **{ACCEPTED: (2.0, 30.0)})
    assert wins(rows) == (0, 4)
    assert wins(rows.only(lambda r: r["algorithm"] != BALANCED)) == (0, 0)


def test_the_runs_that_the_priced_bound_saw_are_told() -> None:
    rows = Rows(
        {**r, "priced": None, "dominated": None} if (r["jobs"], r["run"]) == (50, 1) else r
        for r in rows_everywhere()
        if (r["jobs"], r["run"], r["algorithm"]) != (50, 1, BALANCED)
    )
    text = "\n".join(told(rows).sections[MEASURED])
    assert "2 of 2 runs at 25 jobs, 1 of 2 runs at 50 jobs" in text
    assert "`gang` 0 of 3" in text
    assert "on 0 of 3 runs" in text
    assert "is at the bound" not in text


def test_what_is_at_the_bound_is_told_apart() -> None:
    """Nothing is better in both criteria than the shortest makespan there is."""
    rows = rows_everywhere(gang=(2.0, 20.0), sequential=(2.001, 20.0))
    text = "\n".join(told(rows).sections[MEASURED])
    assert "`gang` 0 of 4 (its makespan is at the bound on 4 more), `sequential` 0 of 4," in text


def test_times_are_of_each_part_and_told_from_the_rows() -> None:
    found = timed("cirne", 10, 8, 1, work=1000)
    assert found.keys() == TOLD.keys()
    assert all(value > 0.0 for value in found.values())
    rows = Rows(
        {"family": "cirne", "jobs": jobs, "run": 0, "what": what, "cpu_s": jobs * 0.001 * number}
        for jobs in (25, 400)
        for number, what in enumerate(TOLD, 1)
    )
    story = fill(template("demt-fig7"), TIMES["demt-fig7"].facts(rows))
    assert story.headline == "`demt` takes 400 ms for 400 jobs, `bicriteria` 2.00 s"
    assert "| 25 (25 to 25) | 400 (400 to 400) |" in story.sections[MEASURED][1]
    assert story.sections[REASONS][0].startswith("5 times less than the published 2 s")
    assert "3 times as long as `demt`" in story.sections[REASONS][0]
