"""Statuses of searches that their work limit ends, beside those that the clock ends."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.model.plan import Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

SLOTTED = case(
    [cluster("a", 3), cluster("b", 2, power=0.6)],
    [rigid(n, 1 + n % 3, 5.0 + n * 7 % 5) for n in range(4)],
)
CASE = case(
    [
        {
            "name": name,
            "link_gbps": 0.4,
            "nodes": [{"name": f"{name}{n}", "power": power} for n, power in enumerate(powers)],
        }
        for name, powers in (("a", (0.9, 0.8, 0.5, 0.4)), ("b", (0.85, 0.7, 0.6, 0.3)))
    ],
    [rigid(n, 3, 5.0 + n, sigma=0.5, proc_gbps=0.05) for n in range(2)],
)
SHARED = case(
    [
        {
            "name": "a",
            "nodes": [
                {"name": f"a{n}", "power": power, "slots": 2, "memory_mb": 400}
                for n, power in enumerate((0.9, 0.8, 0.5, 0.4))
            ],
        }
    ],
    [rigid(n, 3, 5.0 + n, sigma=0.5, memory_mb_per_proc=150) for n in range(2)],
)
"""Memory that slots share is not told by counts: the program answers."""
ENGINES: list[tuple[str, dict[str, Any], Snapshot]] = [
    ("mbpc", {}, CASE),
    ("mbpc", {}, SHARED),
    ("mbpc-published", {}, CASE),
    ("jpn", {"ties": "strong"}, CASE),
    ("oas-slots", {"engine": "mip", "slot": "4"}, SLOTTED),
    ("oas-slots", {"engine": "search", "slot": "0.1"}, SLOTTED),
]


@pytest.mark.parametrize(("name", "options", "snapshot"), ENGINES)
def test_a_work_limit_is_no_clock(name: str, options: dict[str, Any], snapshot: Snapshot) -> None:
    for work in (0, 1):
        plan = planned(name, snapshot, Budget(work=work), **options)
        expected = Status.HEURISTIC if plan.objective.bound is None else Status.FEASIBLE
        assert plan.status in (expected, *([Status.OPTIMAL] if work else []))
        assert plan.stats["work"] <= work


@pytest.mark.parametrize(("name", "options", "snapshot"), ENGINES)
def test_the_clock_is_told(name: str, options: dict[str, Any], snapshot: Snapshot) -> None:
    plan = planned(name, snapshot, Budget(stop=lambda: True), **options)
    assert plan.status is Status.TIME_LIMIT
