"""The filling of equal nodes: its plans can be listed, and what it excludes cannot be done."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from coalloc.model.plan import Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.search.listing_state import MADE
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.oas.exact import ExactSearch
from coalloc.policies.oas.fill import Filling, applies
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.seeds import seeds
from tests.support.strip_packing import perfect_instances, read_instance
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid


def lister(snapshot: Snapshot, **given: Any) -> Lister:
    planner = Planner(snapshot, read_options(given, lookup("oas").options))
    booked = planner.decode([], "insert")
    return Lister(planner, range(len(planner.items)), booked)


def even(seed: int) -> Snapshot:
    """Six or seven jobs on equal nodes, some of them busy; every second time whole seconds."""
    rng = random.Random(seed)
    nodes = rng.randint(3, 9)

    def seconds(low: float, high: float) -> float:
        value = rng.uniform(low, high)
        return float(round(value)) if seed % 2 else value

    queue = [
        rigid(n, rng.randint(1, nodes), seconds(1, 12), sigma=rng.choice([1.0, 0.6]))
        for n in range(rng.randint(6, 7))
    ]
    busy = rng.randint(0, nodes - 1)
    running = [
        {"id": f"r{n}", "nodes": {f"a{n + 1}": 1}, "start": -1.0, "end": 60.0 + seconds(0, 9)}
        for n in range(busy)
    ]
    return case([cluster("a", nodes)], queue, running)


def searched(snapshot: Snapshot, nodes: int = 2_000_000) -> tuple[float, float]:
    """The best makespan that filling alone finds from a plan without skill, and its bound."""
    listed = lister(snapshot)
    genes = listed.genes()
    listed.evaluate(genes, MAKESPAN)
    best = float(listed.desk.measure[MADE])
    filling = Filling(listed, 1)
    while filling.bound < best * (1.0 - 2e-6) and filling.work < nodes:
        if filling.run(best, 1000):
            assert filling.order is not None
            genes = listed.genes(filling.order)
            genes.block[:] = 1
            assert listed.evaluate(genes, MAKESPAN) < float("inf")
            found = float(listed.desk.measure[MADE])
            assert found < best
            best = found
    return best, filling.bound


@pytest.mark.parametrize("seed", seeds(60))
def test_finds_and_proves_what_the_exact_search_does(seed: int) -> None:
    snapshot = even(seed)
    exact = ExactSearch(lister(snapshot).planner, "makespan", None)
    assert exact.run(5_000_000)
    best, bound = searched(snapshot)
    # aims are a millionth of the value apart where times are not whole
    assert exact.value * (1 - 1e-9) <= best <= exact.value * (1 + 3e-6)
    assert bound <= exact.value * (1 + 1e-9)
    assert bound >= best * (1 - 3e-6)


def test_fills_perfect_packings_of_up_to_thirty_jobs(shared: Path) -> None:
    policy = lookup("oas")
    options = read_options({}, policy.options)
    seen = 0
    for path, height in perfect_instances(shared / "data" / "strip_packing"):
        snapshot = read_instance(path)
        if len(snapshot.queue) <= 30:
            plan = policy.solve(snapshot, options, Budget(seed=3, work=4_000_000))
            assert plan.objective.value == height, path
            assert plan.status is Status.OPTIMAL
            seen += 1
    assert seen > 8


@pytest.mark.parametrize(
    ("clusters", "extra", "options", "expected"),
    [
        ([cluster("a", 4)], {}, {}, True),
        # jobs that load no link may be split as they like
        ([cluster("a", 4, link=1.0), cluster("b", 4, link=1.0)], {}, {}, True),
        ([cluster("a", 4, link=1.0), cluster("b", 4, link=1.0)], {"proc_gbps": 0.1}, {}, False),
        ([cluster("a", 4), cluster("b", 4)], {}, {"coallocation": "forbidden"}, False),
        ([cluster("a", 4), cluster("b", 4, power=0.5)], {}, {}, False),
        ([cluster("a", 4)], {"earliest": 5.0}, {}, False),
        ([cluster("a", 4)], {"after": ["x"]}, {}, False),
        ([cluster("a", 4, memory_mb=100, slots=2)], {"memory_mb_per_proc": 80}, {}, False),
    ],
)
def test_applies_where_only_slots_count(
    clusters: list[dict[str, Any]], extra: dict[str, Any], options: dict[str, Any], expected: bool
) -> None:
    snapshot = case(clusters, [rigid("x", 2, 5), rigid("y", 2, 5, **extra)])
    assert applies(lister(snapshot, **options)) is expected


def test_does_not_apply_beside_a_reservation() -> None:
    hold = {"id": "h", "nodes": ["a1"], "start": 20.0, "end": 30.0}
    snapshot = case([cluster("a", 4)], [rigid("x", 2, 5), rigid("y", 2, 5)], reservations=[hold])
    assert not applies(lister(snapshot))
