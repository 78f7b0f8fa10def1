"""Bounds against optima by exhaustion on many more instances than the unit tests take."""

from typing import Any

import pytest

from coalloc.policies.bounds import lower_bound
from coalloc.policies.kernel.instance.decoding import Planner
from tests.unit.policies.bounds.bounds_case import optimum, random_snapshot

OPTIONS: list[dict[str, Any]] = [
    {},
    {"coallocation": "forbidden"},
    {"saturation_threshold": 1.6},
    {"coallocate_moldable": True},
]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_never_passes_the_optimum(objective: str, options: dict[str, Any]) -> None:
    finite = 0
    for seed in range(1000, 1080):
        snapshot = random_snapshot(seed)
        best = optimum(snapshot, objective, options)
        finite += best < float("inf")
        for effort in ("quick", "full"):
            found = lower_bound(Planner(snapshot, options), objective, effort=effort)
            assert found.value <= best * (1.0 + 1e-9), (seed, effort, found.parts, best)
    assert finite > 60
