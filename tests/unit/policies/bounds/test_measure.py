"""Bounds are raised to the common measure of all times, and no further than an optimum."""

from __future__ import annotations

import random
from typing import Any

import pytest

from coalloc.model.snapshot import Snapshot
from coalloc.policies.bounds import lower_bound
from coalloc.policies.bounds.measure import measure_of, raised
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.oas.exact import ExactSearch
from tests.unit.policies.bounds.bounds_case import optimum
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

A = [cluster("a", 2)]
KEPT = [{"id": "r", "nodes": ["a1"], "start": 70.0, "end": 75.0}]
BUSY = [{"id": "b", "nodes": {"a1": 1}, "start": -1.0, "end": 63.0}]


@pytest.mark.parametrize(
    ("snapshot", "options", "measure"),
    [
        (case(A, [rigid(1, 1, 50), rigid(2, 1, 40)]), {}, 10.0),
        # a tenth of a second, though no double is one
        (case(A, [rigid(1, 1, 50.1), rigid(2, 1, 40)]), {}, 0.1),
        (case(A, [rigid(1, 1, 50), rigid(2, 1, 1 / 3)]), {}, 0.0),
        # ends of what runs and of what is reserved, and releases
        (case(A, [rigid(1, 1, 50)], BUSY), {}, 1.0),
        (case(A, [rigid(1, 1, 50)], [], KEPT), {}, 5.0),
        (case(A, [rigid(1, 1, 50, earliest=20)]), {}, 10.0),
        # run times on every power
        (case([*A, cluster("b", 1, power=0.75)], [rigid(1, 1, 60)]), {}, 20.0),
        (case([*A, cluster("b", 1, power=0.7)], [rigid(1, 1, 60)]), {}, 0.0),
        # a job may be slowed down by any factor
        (case(A, [rigid(1, 1, 50)]), {"saturation_threshold": 1.5}, 0.0),
        (case(A, [rigid(1, 1, 50, time_limit=45.0)]), {}, 45.0),
    ],
)
def test_measures(snapshot: Snapshot, options: dict[str, Any], measure: float) -> None:
    assert measure_of(Planner(snapshot, options)) == pytest.approx(measure)


def test_a_bound_goes_up_to_the_next_multiple() -> None:
    assert [raised(65.0, 10.0), raised(70.0 + 1e-9, 10.0), raised(65.0, 0.0)] == [70.0, 70.0, 65.0]
    planner = Planner(case(A, [rigid(n, 1, time) for n, time in enumerate((50, 40, 40))]), {})
    assert lower_bound(planner).value == 70.0
    completion = lower_bound(planner, "weighted_completion").value
    assert completion == 10.0 * round(completion / 10.0)


def test_bounds_of_fast_and_slow_nodes_go_up_to_an_optimum() -> None:
    # shared out they would end at 80 / 3 s; whole runs of 10 s and 20 s end at 30 s
    snapshot = case(
        [cluster("a", 1, power=1.0), cluster("b", 1, power=0.5)],
        [rigid(n, 1, 10.0) for n in range(4)],
    )
    assert lower_bound(Planner(snapshot, {})).value == 30.0
    assert optimum(snapshot, "makespan", {}) == 30.0


@pytest.mark.parametrize("seed", range(6))
def test_no_bound_passes_the_optimum(seed: int) -> None:
    pytest.importorskip("ortools", reason="ortools is not installed", exc_type=ImportError)
    rng = random.Random(seed)
    platform = [cluster(name, rng.randint(2, 5), link=0.0) for name in "ab"]
    queue = [rigid(n, rng.randint(1, 3), rng.randint(1, 9), proc_gbps=1.0) for n in range(7)]
    for objective in ("makespan", "weighted_completion"):
        planner = Planner(case(platform, queue), {"objective": objective})
        search = ExactSearch(planner, objective, None)
        assert search.run(20_000_000)
        for effort in ("quick", "full"):
            assert lower_bound(planner, objective, effort=effort).value <= search.value
