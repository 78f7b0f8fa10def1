"""Moldable jobs that cannot be, or are odd: a clear error that names the job, or a correct plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli.main import main
from coalloc.model.errors import InputError
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.checking.check import check
from coalloc.policies.checking.proofs import proofs_of
from tests.unit.policies.published.demt_case import Row, snapshot_of, solved

POLICIES = ("bicriteria", "two-shelf", "demt", "list-saf")
WORK = 20_000
GIANT: list[Row] = [("giant", [1e6, 9e5], 1.0), *((f"j{n}", [2.0, 1.5], 3.0) for n in range(6))]


def body_of(**job: Any) -> dict[str, Any]:
    return {
        "format": "coalloc-snapshot/1",
        "clusters": [{"name": "alpha", "nodes": [{"name": "a[1-4]"}]}],
        "queue": [{"id": "odd", "kind": "moldable", **job}],
    }


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"times": [5.0, 0.0]}, "queue[0].times[1]: 0 is outside 1e-06..1e+09"),
        ({"times": [5.0, -1.0]}, "queue[0].times[1]: -1 is outside 1e-06..1e+09"),
        ({"times": [float("nan")]}, "queue[0].times[0]: nan is "),
        ({"times": [float("inf"), 3.0]}, "queue[0].times[0]: inf is "),
        ({"times": []}, "queue[0].times: "),
        ({"times": ["5"]}, "queue[0].times[0]: '5' is "),
        ({"times": [5.0], "weight": -1.0}, "queue[0].weight: -1 is outside 0..1e+09"),
        ({"times": [5.0], "weight": float("nan")}, "queue[0].weight: nan is "),
        ({"speedup": {"model": "table", "procs": [2, 2], "times": [5.0, 4.0]}}, "queue[0].speedup"),
        ({"speedup": {"model": "downey", "time": 5.0, "A": 0.0, "sigma": 1.0}}, "queue[0].speedup"),
        ({}, "queue[0]"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(job: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_snapshot(body_of(**job))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "times",
    [
        [5.0, 6.0, 2.5],  # rises at 2
        [5.0, 2.0, 1.9],  # the work falls at 2
    ],
)
def test_a_repair_names_the_job(times: list[float]) -> None:
    snapshot = read_snapshot(body_of(times=times))
    assert len(snapshot.warnings) == 1
    assert "odd" in snapshot.warnings[0]
    assert "2" in snapshot.warnings[0]
    for name in POLICIES:
        assert check(snapshot, solved(name, snapshot, work=WORK)).violations == ()


def test_the_command_line_prints_the_repair_and_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.json"
    file.write_text(json.dumps(body_of(times=[5.0, 6.0])))
    assert main(["solve", "--policy", "two-shelf", str(file), "-o", str(tmp_path / "p.json")]) == 0
    assert "odd" in capsys.readouterr().err
    file.write_text(json.dumps(body_of(times=[5.0, 0.0])))
    assert main(["solve", "--policy", "two-shelf", str(file)]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1
    assert "queue[0].times[1]" in err[0]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("rows", "procs"),
    [
        ([("one", [7.0, 4.0, 3.0], 2.0)], 3),  # one job
        ([("one", [7.0], 2.0)], 1),  # one job, one processor
        ([("a", [7.0, 4.0], 0.0), ("b", [3.0], 0.0)], 3),  # no weight at all
        (GIANT, 2),  # one job longer than all others together
        (GIANT, 1),  # m = 1
        ([("wide", [9.0, 5.0, 4.0, 3.5], 1.0), ("b", [4.0, 2.5], 0.0)], 2),  # more than there is
    ],
)
def test_odd_queues_have_correct_plans_and_bounds(name: str, rows: list[Row], procs: int) -> None:
    snapshot = snapshot_of(rows, procs)
    plan = solved(name, snapshot, work=WORK)
    result = check(snapshot, plan)
    assert result.violations == ()
    assert result.unverified == ()
    assert len(plan.placements) == len(rows)
    for proof in proofs_of(snapshot, plan):
        assert proof.bound.value <= proof.value * (1.0 + 1e-9) + 1e-9


def test_one_job_and_one_processor_are_optimal() -> None:
    plan = solved("bicriteria", snapshot_of([("one", [7.0], 2.0)], 1))
    assert plan.objective.value == 14.0
    assert plan.pareto_gap == pytest.approx(0.0, abs=1e-6)
    giant = solved("bicriteria", snapshot_of(GIANT, 2), prefer="cmax")
    assert max(p.end for p in giant.placements) <= 1e6 + 10.0
