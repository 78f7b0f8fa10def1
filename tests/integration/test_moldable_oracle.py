"""Bounds for moldable jobs, the two-shelf schedule and the engine against optima from CP-SAT."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance

from coalloc.model.jobs import MoldableJob
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import repaired
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.bicriteria.pareto import BoundCurve
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.priced_bound import priced_bound
from coalloc.policies.moldable.published_lp import published_lp
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.moldable.two_shelf import two_shelf_schedule
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 3600.0
UNITS = 1000
"""Of time in a second."""
TENTHS = 10
"""Weights are multiples of 1 / 10."""
SLACK = 1.0 + 1e-9
SIZES = ((8, 8), (6, 6), (3, 8), (8, 1))
"""Jobs and processors."""


def rounded(family: str, jobs: int, procs: int, seed: int) -> Snapshot:
    """An instance whose times are whole milliseconds, and whose weights whole tenths."""
    snapshot = moldable_instance(family, jobs, procs, seed)
    queue = []
    for job in snapshot.queue:
        assert isinstance(job, MoldableJob)
        counts = tuple(range(1, procs + 1))
        times = tuple(max(round(job.speedup.time(n) * UNITS), 1) / UNITS for n in counts)
        weight = round(job.weight * TENTHS) / TENTHS
        queue.append(replace(job, speedup=repaired(counts, times)[0], weight=weight))
    return replace(snapshot, queue=tuple(queue))


def case_of(
    snapshot: Snapshot, objective: str, cap: float | None = None, limit: float = 4.0
) -> dict[str, Any]:
    """What the oracle reads."""
    procs = len(snapshot.clusters[0].nodes)
    jobs = []
    for job in snapshot.queue:
        assert isinstance(job, MoldableJob)
        times = {str(n): round(job.speedup.time(n) * UNITS) for n in range(1, procs + 1)}
        jobs.append({"times": times, "weight": round(job.weight * TENTHS)})
    units = None if cap is None else int(np.floor(cap * UNITS * SLACK))
    return {"jobs": jobs, "procs": procs, "objective": objective, "cap": units, "limit": limit}


def oracle(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What CP-SAT finds, in a process of its own."""
    pytest.importorskip("ortools", reason="ortools is not installed", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cpsat_moldable"],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """Value and bound of each question about a snapshot; seconds and weighted seconds."""

    snapshot: Snapshot
    cap: float
    cmax: tuple[float, float]
    total: tuple[float, float]
    capped: tuple[float, float] | None

    @property
    def is_proved(self) -> bool:
        """Whether CP-SAT finished every question in its time."""
        pairs = [self.cmax, self.total, *([self.capped] if self.capped else [])]
        return all(value == bound for value, bound in pairs)


def optima(snapshots: Sequence[Snapshot], limit: float = 4.0) -> list[Optimum]:
    """Makespan, weighted completion, and that again for ends within 1.1 of the bound."""
    caps = [1.1 * cmax_bound(of_planner(Planner(s, {}), for_bounds=True)) for s in snapshots]
    cases = [
        case
        for snapshot, cap in zip(snapshots, caps, strict=True)
        for case in (
            case_of(snapshot, "makespan", limit=limit),
            case_of(snapshot, "weighted_completion", limit=limit),
            case_of(snapshot, "weighted_completion", cap, limit=limit),
        )
    ]
    found = oracle(cases)
    out = []
    for i, (snapshot, cap) in enumerate(zip(snapshots, caps, strict=True)):
        cmax, total, capped = found[3 * i : 3 * i + 3]
        scale = UNITS * TENTHS
        out.append(
            Optimum(
                snapshot=snapshot,
                cap=cap,
                cmax=(cmax["value"] / UNITS, cmax["bound"] / UNITS),
                total=(total["value"] / scale, total["bound"] / scale),
                capped=None
                if capped["value"] is None
                else (capped["value"] / scale, capped["bound"] / scale),
            )
        )
    return out


def assert_bounds_hold(truth: Optimum) -> None:
    planner = Planner(truth.snapshot, {})
    whole = of_planner(planner, for_bounds=True)
    cmax, total = truth.cmax[0], truth.total[0]
    assert cmax_bound(whole) <= cmax * SLACK
    assert priced_bound(whole, horizon=cmax, steps=150).value <= total * SLACK
    if truth.capped is not None:
        capped = priced_bound(whole, horizon=cmax, cap=truth.cap, steps=150)
        assert capped.value <= truth.capped[0] * SLACK
    shelves = two_shelf_schedule(of_planner(planner))
    assert truth.cmax[1] <= shelves.makespan * SLACK
    assert shelves.makespan <= 1.5 * cmax * SLACK
    assert published_lp(whole, shelves.guess) <= total * SLACK
    # no point can be better in both than the two optima at once, if a schedule reaches that
    curve = BoundCurve(whole, whole, steps=80)
    assert curve.refine(cmax, total, rounds=3) >= 0.0
    gap = curve.refine(1.5 * cmax, 1.5 * total, rounds=3)
    both = truth.capped is not None and truth.capped[0] <= total * SLACK and truth.cap <= cmax
    assert not both or gap >= 0.5 / SLACK - 1e-9


def small(seeds: Iterable[int], jobs: int, procs: int) -> list[Snapshot]:
    return [rounded(family, jobs, procs, seed) for family, seed in product(FAMILIES, seeds)]


def planned(snapshot: Snapshot, prefer: str) -> tuple[float, float]:
    """Makespan and weighted completion of the plan that the engine prefers."""
    policy = lookup("bicriteria")
    options = read_options({"prefer": prefer}, policy.options)
    plan = policy.solve(snapshot, options, Budget(seed=1))
    result = check(snapshot, plan)
    assert result.violations == ()
    makespan, total = result.metrics["makespan"], result.metrics["weighted_completion"]
    assert makespan is not None
    assert total is not None
    return makespan, total


def assert_not_below(truths: Sequence[Optimum]) -> None:
    """The engine's plans are plans: none is below what is proved, and bounds are below optima."""
    for truth in truths:
        for prefer in ("cmax", "minsum"):
            makespan, total = planned(truth.snapshot, prefer)
            assert makespan >= truth.cmax[1] / SLACK
            assert total >= truth.total[1] / SLACK


@pytest.mark.slow
def test_bounds_beside_optima() -> None:
    truths = optima(small(range(1), 5, 4))
    assert all(truth.is_proved for truth in truths)
    for truth in truths:
        assert_bounds_hold(truth)
    assert_not_below(truths)


@pytest.mark.parametrize(
    ("seeds", "sizes", "limit"),
    [
        pytest.param(range(10, 11), SIZES[2:], 4.0, marks=pytest.mark.slow),
        pytest.param(range(20, 23), SIZES, 30.0, marks=pytest.mark.nightly),
    ],
)
def test_bounds_beside_more_optima(
    seeds: range, sizes: Sequence[tuple[int, int]], limit: float
) -> None:
    snapshots = [snapshot for jobs, procs in sizes for snapshot in small(seeds, jobs, procs)]
    truths = optima(snapshots, limit)
    assert sum(truth.is_proved for truth in truths) >= 0.7 * len(truths)
    for truth in truths:
        assert_bounds_hold(truth)
    assert_not_below(truths)


@pytest.mark.parametrize(
    ("objective", "prefer", "near", "size", "seeds", "limit"),
    [
        pytest.param("makespan", "cmax", 1.0 + 1e-6, 8, 1, 4.0, marks=pytest.mark.slow),
        pytest.param("weighted_completion", "minsum", 1.01, 6, 1, 4.0, marks=pytest.mark.slow),
        pytest.param("makespan", "cmax", 1.0 + 1e-6, 8, 3, 4.0, marks=pytest.mark.nightly),
        pytest.param("weighted_completion", "minsum", 1.01, 8, 3, 60.0, marks=pytest.mark.nightly),
    ],
)
def test_the_engine_reaches_nine_of_ten_optima(
    objective: str, prefer: str, near: float, size: int, seeds: int, limit: float
) -> None:
    snapshots = [*small(range(2 * seeds), 5, 4), *small(range(seeds), size, size)]
    found = oracle(case_of(snapshot, objective, limit=limit) for snapshot in snapshots)
    units = UNITS if objective == "makespan" else UNITS * TENTHS
    proved = [
        (snapshot, answer["value"] / units)
        for snapshot, answer in zip(snapshots, found, strict=True)
        if answer["value"] == answer["bound"]
    ]
    assert len(proved) >= 0.6 * len(snapshots)
    place = 0 if objective == "makespan" else 1
    hits = [planned(snapshot, prefer)[place] <= near * least for snapshot, least in proved]
    assert sum(hits) >= 0.9 * len(hits)
