"""What is measured of the MCA-HEFT paper's workflows."""

from __future__ import annotations

import pytest
from benchmarks.papers.mca.figures import above_bound, gains
from benchmarks.papers.mca.study import measures, workflow_of

from coalloc.simulation.reproduce.rows import Row, Rows
from coalloc.simulation.reproduce.solving import solve
from tests.unit.policies.kernel.kernel_case import case, cluster


def row(number: int, policy: str, span: float) -> Row:
    place = {"set": "few", "number": number, "draw": 0}
    return {**place, "policy": policy, "makespan_s": span, "bound_s": 4.0}


def test_gains_and_distances() -> None:
    rows = Rows([row(1, "a", 6.0), row(1, "b", 8.0), row(2, "a", 24.0), row(2, "b", 12.0)])
    assert gains(rows, "a", "b") == [0.25, -1.0]
    assert above_bound(rows, "a") == pytest.approx(3.0)


def test_measures_of_a_plan_by_hand() -> None:
    """One task of two processes on each cluster, one that is sequential."""
    tasks = [
        {"id": "a", "work": 8.0, "parallel_fraction": 1.0, "max_procs": 4, "comm_gb": 3.0},
        {"id": "b", "work": 1.0},
    ]
    edges = [{"from": "a", "to": "b"}]
    platform = [{**cluster(name, 2, 1.0), "intra_gbps": 8.0} for name in ("alpha", "beta")]
    snapshot = case(platform, [{"id": "w", "kind": "workflow", "tasks": tasks, "edges": edges}])
    solved = solve(snapshot, "mca-heft", {"mca_max": 1.0, "mca": 0.0})
    found = measures(snapshot, workflow_of(snapshot), solved)
    # 8 * 3 / 4 / 8 s inside, 24 * (2/4) * (2/3) / 1 s between
    assert found["comm_s"] == pytest.approx((0.75 + 8.0) / 2)
    assert found["comm_sd_s"] == pytest.approx((0.75 + 8.0) / 2)
    assert (found["resources"], found["spread"]) == (2.5, 0.5)
    assert [found[f"on_{k}"] for k in range(1, 6)] == [1, 1, 0, 0, 0]
