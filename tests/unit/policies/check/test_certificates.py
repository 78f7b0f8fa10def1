"""What a plan says is proved is added up again by the checker; whoever claims more is named."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import AmdahlSpeedup
from coalloc.model.values import replace
from coalloc.policies.checking.certificates import certified, refutes
from coalloc.policies.checking.check import check
from coalloc.policies.checking.pool import pool_of
from coalloc.policies.checking.sheet import node_columns
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.cmax_bound import cmax_bound, is_refuted
from coalloc.policies.moldable.queue import of_planner
from tests.seeds import seeds
from tests.unit.policies.check.certificate_case import proved_plan, random_site


@cache
def small() -> tuple[Snapshot, Plan]:
    snapshot = moldable_instance("highly", 12, 10, 1)
    return snapshot, proved_plan(snapshot)


def spoilt(index: int = 0, **changes: Any) -> tuple[str, ...]:
    """Violations once one certificate is changed."""
    snapshot, plan = small()
    items = [dict(item) for item in plan.certificates]
    items[index] |= changes
    return check(snapshot, replace(plan, certificates=tuple(items))).violations


def prices() -> list[float]:
    return list(small()[1].certificates[0]["prices"])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_bounds_prove_is_found_again(family: str) -> None:
    snapshot = moldable_instance(family, 25, 30, 3)
    plan = proved_plan(snapshot)
    assert len(plan.certificates) >= 3
    result = check(snapshot, plan)
    assert result.violations == ()
    assert result.unverified == ()
    assert check(snapshot, read_plan(write_plan(plan))).violations == ()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_clusters_powers_memory_reservations_and_links(seed: int) -> None:
    snapshot = random_site(seed)
    if not Planner(snapshot, {}).items:
        return
    for options in ({}, {"coallocation": "needed"}, {"coallocation": "forbidden"}):
        plan = proved_plan(snapshot, steps=20, **options)
        assert check(snapshot, plan).violations == ()


@pytest.mark.parametrize("seed", seeds(40))
def test_the_pool_is_the_one_that_the_bounds_are_made_on(seed: int) -> None:
    snapshot = random_site(seed)
    planner = Planner(snapshot, {})
    if not planner.items:
        return
    plan = planner.plan(planner.decode(range(len(planner.items)), "event"), "fpfs")
    pool = pool_of(snapshot, plan, node_columns(snapshot))
    queue = of_planner(planner, for_bounds=True)
    assert pool.steps[0].tolist() == queue.starts.tolist()
    assert pool.steps[1].tolist() == queue.capacity.tolist()
    rows = list(pool.rows())
    assert [row[3] for row in rows] == pytest.approx(queue.release.tolist())
    for i, (procs, times, _, _) in enumerate(rows):
        a, b = queue.first[i : i + 2]
        assert set(procs.tolist()) <= set(queue.procs[a:b].tolist())
        # of closed forms the bounds count what no single cluster holds, too
        is_closed = isinstance(getattr(pool.jobs[i][0], "speedup", None), AmdahlSpeedup)
        assert times[-1] >= queue.times[b - 1] * (1.0 - 1e-9)
        assert is_closed or times[-1] <= queue.times[b - 1] * (1.0 + 1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_makespan_is_refuted_by_the_same_rule(family: str) -> None:
    snapshot = moldable_instance(family, 20, 15, 2)
    planner = Planner(snapshot, {})
    plan = planner.plan(planner.decode(range(20), "event"), "fpfs")
    pool = pool_of(snapshot, plan, node_columns(snapshot))
    queue, rows = of_planner(planner, for_bounds=True), list(pool.rows())
    found = [
        (refutes(rows, pool.steps, guess), is_refuted(queue, guess))
        for guess in np.linspace(0.5, 1.5, 60) * cmax_bound(queue)
    ]
    assert all(one == other for one, other in found)
    assert {one for one, _ in found} == {True, False}


def test_more_than_the_prices_prove() -> None:
    value = small()[1].certificates[0]["value"]
    (line, *_) = spoilt(value=value * 1.001)
    assert line.startswith("certificates[0].value: ")
    assert "is more than its prices prove" in line


def test_prices_that_prove_nothing_are_no_fault() -> None:
    """A bound below 0 is true, and the same number when it is added up again."""
    snapshot, plan = small()
    item = dict(plan.certificates[0])
    item["prices"] = [1e6] * len(item["prices"])
    pool = pool_of(snapshot, plan, node_columns(snapshot))
    cap = inf if item["cap"] is None else item["cap"]
    found = certified(pool.rows(), pool.steps, item["grid"], item["prices"], cap)
    assert found < 0.0
    assert not any(line.startswith("certificates[0]") for line in spoilt(**item | {"value": found}))
    above = spoilt(**item | {"value": 0.999 * found})
    assert any(line.startswith("certificates[0].value: ") for line in above)


def test_other_prices_prove_less() -> None:
    assert any("than its prices prove" in line for line in spoilt(prices=[0.0] * len(prices())))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kind": "faith"}, "certificates[0].kind: 'faith' cannot be verified"),
        ({"kind": None}, "certificates[0].kind: None cannot be verified"),
        ({"value": nan}, "certificates[0].value: nan is not a finite number"),
        ({"value": "12"}, "certificates[0].value: '12' is not a finite number"),
        ({"value": True}, "certificates[0].value: True is not a finite number"),
        ({"cap": inf}, "certificates[0].cap: inf is not a finite number"),
        ({"grid": 7}, "certificates[0].grid: is not an array"),
        ({"prices": "free"}, "certificates[0].prices: is not an array"),
        ({"prices": [-1.0]}, "certificates[0].prices[0]: -1.0 is not a finite number of at least"),
        ({"grid": [0.0, nan]}, "certificates[0].grid[1]: nan is not a finite number of at least 0"),
        ({"grid": [0.0, 1.0]}, "certificates[0].grid: has 2 edges for 100 prices"),
        ({"grid": [], "prices": []}, "certificates[0].grid: has 0 edges for 0 prices"),
        ({"grid": [1.0, 2.0], "prices": [0.0]}, "certificates[0].grid: does not rise from 0"),
        (
            {"grid": [0.0, 2.0, 1.0], "prices": [0.0, 0.0]},
            "certificates[0].grid: does not rise from 0",
        ),
    ],
)
def test_a_certificate_that_cannot_be_read_is_named(changes: dict[str, Any], expected: str) -> None:
    assert any(line.startswith(expected) for line in spoilt(**changes))


def test_a_larger_cap_proves_less() -> None:
    caps = [item["cap"] for item in small()[1].certificates]
    tight = min(range(len(caps)), key=lambda i: inf if caps[i] is None else caps[i])
    lines = spoilt(tight, cap=None)
    assert any(line.startswith(f"certificates[{tight}].value: ") for line in lines)


def test_bounds_claim_no_more_than_certificates() -> None:
    snapshot, plan = small()
    bare = check(snapshot, replace(plan, certificates=())).violations
    assert any(line.startswith("objective.bound: ") for line in bare)
    assert any(line.startswith("front[0].weighted_completion_bound: ") for line in bare)
    assert any(".pareto_gap: " in line for line in bare)
    higher = replace(plan.objective, bound=(plan.objective.bound or 0.0) * 1.001)
    (line,) = check(snapshot, replace(plan, objective=higher)).violations
    assert line.startswith("objective.bound: ")
    assert "is more than what is proved" in line


@pytest.mark.parametrize(
    ("key", "factor", "expected"),
    [
        ("cmax_bound", 1.0001, "is not proved"),
        ("weighted_completion_bound", 1.02, "is more than what is proved"),
        ("pareto_gap", 0.99, "is less than what is proved"),
    ],
)
def test_points_of_a_front_claim_no_more(key: str, factor: float, expected: str) -> None:
    snapshot, plan = small()
    point = replace(plan.front[0], **{key: getattr(plan.front[0], key) * factor})
    front = (point, *plan.front[1:])
    gap = min(p.pareto_gap for p in front if p.pareto_gap is not None)
    lines = check(snapshot, replace(plan, front=front, pareto_gap=gap)).violations
    assert any(line.startswith(f"front[0].{key}: ") and expected in line for line in lines)


def test_a_makespan_bound_is_refuted_or_named() -> None:
    snapshot, plan = small()
    bound = plan.front[0].cmax_bound
    assert bound is not None
    told = replace(plan.objective, name="makespan", value=plan.front[0].cmax, bound=bound)
    assert check(snapshot, replace(plan, objective=told)).violations == ()
    more = replace(told, bound=bound * 1.0001)
    (line,) = check(snapshot, replace(plan, objective=more)).violations
    assert line.startswith("objective.bound: ")


def test_without_certificates_and_front_a_bound_is_left_to_others() -> None:
    snapshot, plan = small()
    bare = replace(plan, front=(), chosen=None, pareto_gap=None, certificates=())
    assert check(snapshot, bare).violations == ()


def test_what_costs_too_much_is_said_and_not_refused() -> None:
    snapshot, plan = small()
    lie = dict(plan.certificates[0]) | {"value": plan.certificates[0]["value"] * 1.5}
    forged = replace(plan, certificates=(lie, *plan.certificates[1:]))
    none = check(snapshot, forged, cells=0)
    assert none.violations == ()
    assert none.unverified == (
        f"bounds and certificates: the jobs have {12 * 10} counts of processes",
    )
    few = check(snapshot, forged, cells=200)
    assert [line.split(":")[0] for line in few.unverified] == [
        f"certificates[{i}]" for i in range(len(plan.certificates))
    ]
    assert any("its prices prove" in line for line in check(snapshot, forged).violations)


def test_certificates_are_verified_in_turn_while_there_are_steps() -> None:
    snapshot, plan = small()
    rows = list(pool_of(snapshot, plan, node_columns(snapshot)).rows())
    costs = [2 * len(item["grid"]) * sum(row[0].size for row in rows) for item in plan.certificates]
    first, second = costs[:2]
    found = check(snapshot, plan, cells=first + second - 1).unverified
    assert found[0] == f"certificates[1]: {second} steps to verify, {second - 1} are left"
    assert len(found) == len(costs) - 1
    found = check(snapshot, plan, cells=first + second).unverified
    assert [line.split(":")[0] for line in found][:1] == ["certificates[2]"]
    assert check(snapshot, plan, cells=sum(costs)).unverified == ()


def test_the_checker_runs_without_the_kernel() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import coalloc.policies.checking.certificates, coalloc.policies.checking.check\n"
        "assert not [m for m in sys.modules if 'policies.kernel' in m]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_documentation_has_the_verifier_word_for_word() -> None:
    page = (Path(__file__).parents[4] / "docs/policies/moldable-bounds.md").read_text(
        encoding="utf-8"
    )
    (code,) = re.findall(r"^```python\n(from collections.*?)^```$", page, re.MULTILINE | re.DOTALL)
    written = inspect.getsource(certified)
    assert code.endswith(written)
    assert len(written.splitlines()) < 30
    # it needs nothing but numpy: what the page shows runs by itself
    names: dict[str, Any] = {}
    exec(code, names)
    jobs = [(np.array([1, 2]), np.array([4.0, 3.0]), 2.0, 0.0)]
    assert names["certified"](jobs, ([0.0], [2]), [0.0, 8.0], [0.0]) == 6.0
