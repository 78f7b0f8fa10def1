"""`demt` and its comparators as policies."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance

from coalloc.model.errors import InputError
from coalloc.model.plan import Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.options import read_options
from coalloc.policies.published.demt import ShelfSearch, in_order, order_and_rows
from coalloc.policies.published.options import DemtOptions
from coalloc.policies.registry import lookup
from tests.unit.policies.published.demt_case import (
    Row,
    planner_of,
    queue_of,
    snapshot_of,
    solved,
    starts,
)
from tests.unit.policies.published.test_demt_shelves import FOUR

COMPARATORS = ("gang", "sequential", "list-shelf", "list-lptf", "list-saf", "list-smith")
TWO_CLUSTERS: list[dict[str, Any]] = [
    {"name": "alpha", "nodes": [{"name": "a[1-6]"}, {"name": "b[1-4]", "power": 0.5}]},
    {"name": "beta", "link_gbps": 1.0, "nodes": [{"name": "c[1-8]", "power": 0.75, "slots": 2}]},
]


@pytest.mark.parametrize(
    ("guess", "seconds"),
    [
        ("accepted", 14.0 / 3.0),  # the work of a, b, c and d on three processors
        ("reached", 5.0),  # d on two processors and a on one until 4, then b and c
    ],
)
def test_worked_by_hand(guess: str, seconds: float) -> None:
    plan = solved("demt", snapshot_of(FOUR, 3), shuffles=0, guess=guess)
    assert plan.stats["guess_s"] == pytest.approx(seconds)
    # K = 2: b and c on the first shelf, a on the second, d on the third
    assert plan.stats["shelves"] == 3
    assert starts(plan) == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 3.0}
    assert plan.objective.name == "weighted_completion"
    assert plan.objective.value == 2.0 + 1.0 + 18.0 + 35.0


def test_shelves_are_compacted_in_their_order() -> None:
    snapshot = snapshot_of(FOUR, 3)
    layer = Layer(planner_of(snapshot), queue_of(snapshot))
    order, rows = np.array([2, 1, 0, 3]), np.array([1, 2, 3, 5])
    schedule = layer.lay(order, rows)
    assert schedule is not None
    # c and b at once; a finds two processors at 1, d not before 3
    assert schedule.outcome.start.tolist() == [1.0, 0.0, 0.0, 3.0]
    assert schedule.rank == (0, 7.0, 2.0 + 1.0 + 18.0 + 35.0)
    assert layer.lay(order, rows, most=55.0) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_both_readings_keep_the_better_schedule(family: str) -> None:
    snapshot = moldable_instance(family, 40, 30, 4)
    values = {}
    for guess in ("reached", "accepted", "both"):
        plan = solved("demt", snapshot, guess=guess, shuffles=0)
        assert check(snapshot, plan).violations == ()
        assert len(plan.placements) == 40
        values[guess] = plan.objective.value
    assert values["both"] == min(values.values())


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_shuffles_never_harm_and_seeds_repeat(objective: str) -> None:
    snapshot = moldable_instance("weakly", 60, 20, 1)
    plans = [solved("demt", snapshot, shuffles=n, objective=objective) for n in (0, 5, 40, 40)]
    values = [plan.objective.value for plan in plans]
    assert values[0] >= values[1] >= values[2]
    assert values[2] < values[0]
    assert plans[2] == plans[3]
    assert plans[2] != solved("demt", snapshot, shuffles=40, objective=objective, seed=2)


def test_a_shuffle_changes_the_order_of_shelves_only() -> None:
    snapshot = moldable_instance("mixed", 30, 20, 1)
    layer = Layer(planner_of(snapshot), queue_of(snapshot))
    found = ShelfSearch(layer, read_options({}, DemtOptions), Budget(seed=1)).run()
    size = len(found.shelves)
    order, rows = in_order(found.shelves, tuple(range(size)))
    turned, same = in_order(found.shelves, tuple(reversed(range(size))))
    assert rows.tolist() == same.tolist()
    assert sorted(order) == sorted(turned) == list(range(30))
    assert turned[-found.shelves[0].jobs.size :].tolist() == found.shelves[0].jobs.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernel_lays_the_same_schedule(family: str) -> None:
    snapshot = moldable_instance(family, 40, 16, 7)
    planner = planner_of(snapshot)
    layer = Layer(planner, of_planner(planner))
    order, rows = order_and_rows("list-saf", layer.queue)
    one, two = layer.lay(order, rows), layer.decode(order, rows)
    assert layer.is_exact
    assert one is not None
    assert one.outcome.start == pytest.approx(two.outcome.start)
    assert one.outcome.end == pytest.approx(two.outcome.end)
    assert one.outcome.mode.tolist() == two.outcome.mode.tolist()


def test_work_and_the_clock_end_the_search() -> None:
    snapshot = moldable_instance("weakly", 60, 20, 1)
    assert solved("demt", snapshot, work=1).stats["tried"] == 1
    policy = lookup("demt")
    plan = policy.solve(snapshot, read_options({}, DemtOptions), Budget(stop=lambda: True))
    assert plan.status is Status.TIME_LIMIT
    assert len(plan.placements) == 60


def mixed_site(seed: int) -> Snapshot:
    rng = np.random.default_rng(seed)
    queue: list[dict[str, Any]] = []
    for n in range(25):
        kind = rng.integers(0, 4)
        job: dict[str, Any] = {"id": f"j{n}", "weight": float(rng.integers(0, 5))}
        if kind == 0:
            job |= {"kind": "rigid", "procs": int(rng.integers(1, 12)), "base_time": 30.0}
        else:
            speedup = {"model": "amdahl", "time": float(rng.uniform(5, 90))}
            job |= {"kind": "moldable", "speedup": speedup | {"parallel_fraction": 0.9}}
            job |= {"min_procs": 1, "max_procs": 20, "sigma": 0.8}
            job |= {"proc_gbps": 0.05} if kind == 1 else {}
        job |= {"earliest": 40.0} if n % 7 == 3 else {}
        queue.append(job)
    running = [{"id": "r", "nodes": {"a1": 1, "c2": 1}, "start": 0.0, "end": 50.0}]
    kept = {"id": "k", "nodes": ["a[2-4]"], "start": 20.0, "end": 90.0}
    return snapshot_of(
        [], 0, clusters=TWO_CLUSTERS, queue=queue, running=running, reservations=[kept]
    )


@pytest.mark.parametrize("name", ["demt", *COMPARATORS])
@pytest.mark.parametrize("seed", [1, 2])
def test_several_clusters_powers_reservations_and_rigid_jobs(name: str, seed: int) -> None:
    snapshot = mixed_site(seed)
    plan = solved(name, snapshot)
    assert check(snapshot, plan).violations == ()
    assert len(plan.placements) == 25
    assert not plan.deferred


def test_slower_nodes_cost_what_the_model_says() -> None:
    nodes = [{"name": "a[1-2]", "power": 0.5}]
    job = {"id": "1", "kind": "moldable", "times": [10.0, 6.0], "sigma": 0.8}
    snapshot = snapshot_of([], 0, clusters=[{"name": "alpha", "nodes": nodes}], queue=[job])
    for name, seconds in (("sequential", 10.0), ("gang", 6.0)):
        (placement,) = solved(name, snapshot).placements
        assert placement.end == pytest.approx(seconds * (0.8 / 0.5 + 0.2))


LISTS: list[Row] = [  # on one processor; each list has an order of its own
    ("a", [8.0], 2.0),
    ("b", [4.0], 5.0),
    ("c", [2.0], 1.0),
    ("d", [5.0], 5.5),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gang", "bdca"),  # 1.25, 1.1, .5, .25
        ("sequential", "adbc"),
        ("list-shelf", "adbc"),
        ("list-lptf", "dbac"),  # 27.5, 20, 16, 2
        ("list-saf", "cbda"),
        ("list-smith", "bdca"),
    ],
)
def test_orders_of_the_comparators(name: str, expected: str) -> None:
    begun = starts(solved(name, snapshot_of(LISTS, 1)))
    assert "".join(sorted(begun, key=lambda job: begun[job])) == expected


def test_the_large_shelf_is_listed_first() -> None:
    rows: list[Row] = [("s", [3.0], 9.0), ("t", [3.0], 1.0), ("l", [4.0], 1.0), ("m", [5.0], 1.0)]
    queue = queue_of(snapshot_of(rows, 2))
    order, _ = order_and_rows("list-shelf", queue)
    assert [rows[i][0] for i in order] == ["m", "l", "s", "t"]


def test_gang_runs_one_job_at_a_time_on_all_it_can_use() -> None:
    rows: list[Row] = [("a", [9.0, 5.0, 4.0], 1.0), ("b", [6.0], 2.0), ("c", [6.0, 3.0], 4.0)]
    plan = solved("gang", snapshot_of(rows, 3))
    placed = sorted(plan.placements, key=lambda placement: placement.start)
    assert [(p.job, len(p.nodes)) for p in placed] == [("c", 2), ("b", 1), ("a", 3)]
    assert all(one.end == two.start for one, two in pairwise(placed))


def test_gang_waits_for_nobody_that_is_not_released_and_keeps_dependencies() -> None:
    late = {"id": "late", "kind": "rigid", "procs": 1, "base_time": 1.0, "weight": 99.0}
    queue = [late | {"earliest": 4.0}, late | {"id": "child", "after": ["a"]}]
    plan = solved("gang", snapshot_of([("a", [3.0], 1.0), ("b", [3.0], 1.0)], 1, queue=queue))
    begun = starts(plan)
    assert begun["a"] < begun["child"]
    assert begun["late"] < 8.0
    assert min(begun.values()) == 0.0


@pytest.mark.parametrize("name", ["demt", *COMPARATORS])
@pytest.mark.parametrize(
    ("rows", "procs"),
    [
        ([("1", [7.0], 1.0)], 1),  # one job, one processor
        ([("1", [7.0, 4.0], 0.0), ("2", [3.0], 0.0)], 3),  # no weight at all
        ([("1", [1e7], 1.0), *((str(n), [1.0, 0.6], 1.0) for n in range(2, 9))], 2),  # one giant
        ([(str(n), [1e-6], 1.0) for n in range(5)], 2),  # as short as may be
        ([("1", [5.0, 5.0, 9.0], 2.0), ("2", [4.0, 1.0], 1.0)], 4),  # tables to repair
    ],
)
def test_odd_queues_have_plans(name: str, rows: list[Row], procs: int) -> None:
    snapshot = snapshot_of(rows, procs)
    plan = solved(name, snapshot)
    assert check(snapshot, plan).violations == ()
    assert len(plan.placements) == len(rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"guess": "lucky"}, "options.guess: 'lucky' is not one of reached, accepted, both"),
        ({"shuffles": -1}, "options.shuffles: -1 is "),
        ({"selection": 3}, "options.selection: 3 is not "),
    ],
)
def test_options_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_options(given, DemtOptions)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("times", [[0.0], [-1.0], [float("nan")], []])
def test_times_that_cannot_be_are_refused(times: list[float]) -> None:
    with pytest.raises(InputError, match=r"queue\[0\]"):
        snapshot_of([("1", times, 1.0)], 2)
