"""Which nodes MCA-HEFT takes within a cluster: the least loaded, or those that fit best."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, cluster, spans


def flow(tasks: dict[str, float], edges: list[tuple[str, str]]) -> dict[str, Any]:
    """A workflow of sequential tasks."""
    return {
        "id": "w",
        "kind": "workflow",
        "tasks": [{"id": name, "work": work} for name, work in tasks.items()],
        "edges": [{"from": a, "to": b} for a, b in edges],
    }


def test_the_least_loaded_node_loses_its_idle_time() -> None:
    snapshot = case([cluster("alpha", 2)], [flow({"a": 10.0, "b": 10.0, "c": 5.0}, [("a", "b")])])
    # b goes to the node that idled beside a; then none is free before 10
    assert spans(planned("mca-heft", snapshot))["w.c"] == (10.0, 15.0)
    # b goes behind a, and c takes the node that idles
    assert spans(planned("mca-heft", snapshot, nodes="best-fit"))["w.c"] == (0.0, 5.0)
    # with insertion idle time is never lost
    assert spans(planned("mca-heft", snapshot, insertion=True))["w.c"] == (0.0, 5.0)


@pytest.mark.parametrize("seed", range(20))
def test_starts_are_those_of_a_list_of_nodes(seed: int) -> None:
    """By falling rank, each task on the node that has been free for longest, by a plain loop."""
    rng = random.Random(seed)
    names = [f"t{n:02}" for n in range(rng.randint(2, 14))]
    work = {name: float(rng.randint(1, 40)) + rng.random() for name in names}
    edges = [(a, b) for x, a in enumerate(names) for b in names[x + 1 :] if rng.random() < 0.25]
    nodes = rng.randint(2, 4)
    ranks: dict[str, float] = {}
    for name in reversed(names):
        ranks[name] = work[name] + max((ranks[b] for a, b in edges if a == name), default=0.0)
    free, expected = [0.0] * nodes, dict[str, tuple[float, float]]()
    for name in sorted(names, key=lambda name: -ranks[name]):
        ready = max((expected[f"w.{a}"][1] for a, b in edges if b == name), default=0.0)
        first = min(range(nodes), key=lambda n: free[n])
        start = max(ready, free[first])
        free[first] = start + work[name]
        expected[f"w.{name}"] = (start, free[first])
    found = spans(planned("mca-heft", case([cluster("alpha", nodes)], [flow(work, edges)])))
    assert {name: pytest.approx(span) for name, span in expected.items()} == found
