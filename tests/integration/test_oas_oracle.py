"""The exact search against an exact model in CP-SAT that shares nothing with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.oas.exact import ExactSearch
from tests.support.oas_cases import random_case

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 1800.0


def oracle(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What CP-SAT finds, in a process of its own."""
    pytest.importorskip("ortools", reason="ortools is not installed", exc_type=ImportError)
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cpsat_oas"],
        input=lines,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def searched(case: dict[str, Any], seed: int) -> tuple[list[str], list[float]]:
    """Jobs and values of our search, checked; every other time with an incumbent to beat."""
    snapshot, objective = read_snapshot(case["snapshot"]), case["objective"]
    name = "makespan" if objective.startswith("makespan") else objective
    planner = Planner(snapshot, {**case["options"], "objective": name})
    known = planner.decode(list(range(len(planner.items))), "event") if seed % 2 else None
    search = ExactSearch(planner, objective, known)
    assert search.run(20_000_000)
    placed = [item.job.id for item in planner.items]
    best = search.best or known
    if best is None or not placed:
        return placed, []
    plan = planner.plan(best, "oas")
    assert check(snapshot, plan).violations == ()
    assert search.bound == search.value
    values = {"makespan": [best.makespan], "weighted_completion": [best.weighted_completion]}
    return placed, values.get(objective, [best.makespan, best.weighted_completion])


def compare(seeds: Iterable[int]) -> int:
    """Compare case by case; the number that CP-SAT could not finish in its time."""
    cases = {seed: random_case(seed) for seed in seeds}
    left = 0
    for (seed, case), truth in zip(cases.items(), oracle(cases.values()), strict=True):
        placed, ours = searched(case, seed)
        assert placed == truth["placed"], seed
        if truth["status"] == "optimal":
            assert ours == pytest.approx(truth["values"], rel=1e-9, abs=1e-6), seed
            continue
        left += 1
        for value, above, below in zip(ours, truth["values"], truth["bounds"], strict=True):
            assert below - 1e-6 <= value <= above + 1e-6, seed
    return left


def test_agrees_with_cp_sat_on_small_instances() -> None:
    assert compare(range(40)) == 0


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(40, 140), marks=pytest.mark.slow),
        pytest.param(range(140, 440), marks=pytest.mark.nightly),
    ],
)
def test_agrees_with_cp_sat_on_hundreds(seeds: range) -> None:
    assert compare(seeds) <= 0.02 * len(seeds)
