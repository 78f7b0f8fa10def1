"""The exact search by itself: what it proves, how it is resumed, and where it does not apply."""

from __future__ import annotations

import random
from math import ceil
from typing import Any

import pytest
from benchmarks.papers.oas.workloads import oas_instance

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.jobs import RigidJob
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.mip.cp_sat import UnfitError
from coalloc.policies.oas import exact
from coalloc.policies.oas.exact import ExactSearch
from coalloc.policies.oas.exact_model import ExactModel
from tests.support.oas_cases import random_case
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

PLENTY = 10_000_000


def proved(snapshot: Snapshot, objective: str = "makespan", **options: Any) -> ExactSearch:
    """A search that has ended, whose plan passes the checker."""
    planner = Planner(snapshot, {"objective": objective, **options})
    search = ExactSearch(planner, objective, None)
    assert search.run(PLENTY)
    assert search.best is not None
    assert check(snapshot, planner.plan(search.best, "oas")).violations == ()
    assert search.bound == search.value
    return search


def test_waiting_for_a_fast_node_can_be_best() -> None:
    # started at once on b (power 1/2), job 2 would end at 200; behind job 1 it ends at 110
    snapshot = case(
        [cluster("a", 1), cluster("b", 1, power=0.5)], [rigid(1, 1, 10), rigid(2, 1, 100)]
    )
    assert proved(snapshot).makespan == 100.0
    third = case([cluster("a", 1), cluster("b", 1, power=0.1)], [rigid(1, 1, 10), rigid(2, 1, 10)])
    assert proved(third).makespan == 20.0


def test_a_wide_job_is_split_as_the_links_carry_it() -> None:
    # 3 + 1 of 4 processes load both links with 1.0 * 3 * 1 / 3 = 1 Gbit/s, 2 + 2 with 4/3
    platform = [cluster("a", 3, link=1.0), cluster("b", 3, link=1.0)]
    snapshot = case(platform, [rigid(1, 4, 10, proc_gbps=1.0), rigid(2, 4, 10, proc_gbps=1.0)])
    assert proved(snapshot).makespan == 20.0
    loose = [cluster("a", 4, link=1.0), cluster("b", 4, link=1.0)]
    assert proved(replace_clusters(snapshot, loose)).makespan == 10.0


def replace_clusters(snapshot: Snapshot, clusters: list[dict[str, Any]]) -> Snapshot:
    return replace(snapshot, clusters=case(clusters, []).clusters)


def test_a_limit_of_work_leaves_a_bound_and_repeats_exactly() -> None:
    planner = Planner(oas_instance(5, 4, 8), {"objective": "makespan"})
    whole, short, again = (ExactSearch(planner, "makespan", None) for _ in range(3))
    assert whole.run(PLENTY)
    for search in (short, again):
        assert not search.run(20_000)
        assert search.work == 20_000
        assert 0.0 < search.bound <= whole.value <= search.value
    assert (short.value, short.bound) == (again.value, again.bound)
    assert short.run(PLENTY)
    assert short.value == pytest.approx(whole.value, rel=1e-9)
    stopped = ExactSearch(planner, "makespan", None)
    assert not stopped.run(PLENTY, lambda: True)
    assert stopped.work == 0


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_only_something_better_replaces_the_incumbent(objective: str) -> None:
    planner = Planner(oas_instance(1, 2, 6), {"objective": objective})
    first = ExactSearch(planner, objective, None)
    assert first.run(PLENTY)
    again = ExactSearch(planner, objective, first.best)
    assert again.run(PLENTY)
    assert again.best is None
    assert again.bound == again.value == pytest.approx(first.value, rel=1e-12)


def test_a_lower_bound_that_is_met_ends_the_search_at_once() -> None:
    planner = Planner(oas_instance(5, 2, 6), {"objective": "makespan"})
    first = ExactSearch(planner, "makespan", None)
    assert first.run(PLENTY)
    told = ExactSearch(planner, "makespan", first.best, first.value)
    assert told.run(1)
    assert told.work == 0


def test_the_second_objective_keeps_the_first() -> None:
    snapshot = oas_instance(2, 2, 6)
    both = proved(snapshot, "makespan_then_weighted_completion")
    alone = proved(snapshot, "makespan")
    free = proved(snapshot, "weighted_completion")
    assert both.best is not None
    assert alone.best is not None
    assert both.makespan == pytest.approx(alone.makespan, rel=1e-9)
    assert free.cost <= both.cost * (1.0 + 1e-9)
    assert both.best.weighted_completion <= alone.best.weighted_completion * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_names_and_order_of_equal_nodes_do_not_matter(seed: int) -> None:
    given = random_case(1000 + seed)["snapshot"]
    rng = random.Random(seed)
    renamed = read_snapshot(shuffled(given, rng))
    snapshot = read_snapshot(given)
    for objective in ("makespan", "weighted_completion"):
        values = []
        for one in (snapshot, renamed):
            planner = Planner(one, {"objective": objective})
            search = ExactSearch(planner, objective, None)
            assert search.run(PLENTY)
            values.append(search.value)
        assert values[0] == pytest.approx(values[1], rel=1e-9)


def shuffled(given: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same snapshot with clusters, nodes and queue in another order, nodes by other names."""
    names: dict[str, str] = {}
    clusters = []
    for entry in rng.sample(given["clusters"], len(given["clusters"])):
        nodes = rng.sample(entry["nodes"], len(entry["nodes"]))
        for n, node in enumerate(nodes):
            names[node["name"]] = f"other{len(names)}"
            nodes[n] = {**node, "name": names[node["name"]]}
        clusters.append({**entry, "nodes": nodes})
    return {
        **given,
        "clusters": clusters,
        "queue": rng.sample(given["queue"], len(given["queue"])),
        "running": [
            {**job, "nodes": {names[node]: n for node, n in job["nodes"].items()}}
            for job in given["running"]
        ],
        "reservations": [
            {**kept, "nodes": [names[node] for node in kept["nodes"]]}
            for kept in given["reservations"]
        ],
    }


def test_equal_jobs_are_not_permuted() -> None:
    # with all orders of twelve equal jobs apart this would take the solver minutes
    snapshot = case(
        [cluster("a", 3), cluster("b", 2, power=0.75)], [rigid(n, 1, 60) for n in range(12)]
    )
    search = proved(snapshot)
    assert search.work < 200_000
    planner = Planner(snapshot, {})
    assert search.value <= planner.decode(list(range(12)), "insert").makespan


@pytest.mark.parametrize("seed", range(8))
def test_an_order_of_groups_loses_no_optimum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = oas_instance(seed, 2, 6)
    value = proved(snapshot).value
    monkeypatch.setattr(ExactModel, "break_symmetry", lambda model: None)
    assert proved(snapshot).value == pytest.approx(value, rel=1e-9)


def test_groups_are_items_that_can_run_beside_each_other_directly_or_by_others() -> None:
    # 1 and 3 exclude each other, and each fits beside 2; 4 is alone
    queue = [rigid(1, 6, 10), rigid(2, 3, 10), rigid(3, 4, 10), rigid(4, 9, 10)]
    planner = Planner(case([cluster("a", 9)], queue), {})
    groups = ExactSearch(planner, "makespan", None).made.groups()
    assert [sorted(group) for group in groups] == [[0, 1, 2], [3]]


def test_a_job_waits_for_a_reservation_or_fits_before_it() -> None:
    queue = [rigid(1, 1, 30), rigid(2, 2, 50)]
    kept = [{"id": "r", "nodes": ["a1"], "start": 50.0, "end": 60.0, "jobs": []}]
    assert proved(case([cluster("a", 2)], queue, [], kept)).makespan == 80.0
    early = [{**kept[0], "start": 49.0}]
    # job 2 no longer fits before the reservation: job 1 runs beside it
    assert proved(case([cluster("a", 2)], queue, [], early)).makespan == 110.0


@pytest.mark.parametrize("share", [0.15, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_slots_round_up(seed: int, share: float) -> None:
    snapshot = oas_instance(seed, 2, 5)
    slot = share * 6.7e5
    planner = Planner(snapshot, {"objective": "makespan"})
    free = ExactSearch(planner, "makespan", None)
    search = ExactSearch(planner, "makespan", None, slot=slot)
    assert free.run(PLENTY)
    assert search.run(PLENTY)
    assert search.best is not None
    plan = planner.plan(search.best, "oas-slots")
    assert check(snapshot, plan).violations == ()
    for placement in plan.placements:
        assert placement.start / slot == pytest.approx(round(placement.start / slot), abs=1e-9)
    last = max(ceil(placement.end / slot - 1e-9) for placement in plan.placements)
    assert search.value == pytest.approx(last * slot, rel=1e-12)
    assert search.value >= free.value * (1.0 - 1e-9)
    assert search.best.makespan >= free.value * (1.0 - 1e-9)


def test_slots_of_whole_run_times_cost_nothing() -> None:
    queue = [rigid(n, procs, 20.0 * n) for n, procs in ((1, 2), (2, 1), (3, 3), (4, 1))]
    snapshot = case([cluster("a", 3)], queue)
    planner = Planner(snapshot, {"objective": "makespan"})
    free = ExactSearch(planner, "makespan", None)
    slotted = ExactSearch(planner, "makespan", None, slot=20.0)
    assert free.run(PLENTY)
    assert slotted.run(PLENTY)
    assert slotted.value == free.value


def test_memory_that_takes_whole_nodes() -> None:
    queue = [rigid(n, 2, 10, memory_mb_per_proc=600) for n in range(3)]
    assert proved(case([cluster("a", 4, slots=2, memory_mb=1000)], queue)).makespan == 20.0


def test_times_far_from_zero() -> None:
    snapshot = oas_instance(4, 2, 5)
    now = 1.79e9
    moved = replace(
        snapshot,
        time=now,
        queue=tuple(replace(job, submitted=now, earliest=now) for job in snapshot.queue),
    )
    assert proved(moved).value == pytest.approx(proved(snapshot).value, rel=1e-9)


def test_an_empty_queue_is_optimal() -> None:
    search = ExactSearch(Planner(case([cluster("a", 1)], []), {}), "makespan", None)
    assert search.run(1)
    assert (search.best, search.value, search.bound) == (None, 0.0, 0.0)


REFUSED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "workflow": (
        [{"id": "w", "kind": "workflow", "tasks": [{"id": "t", "work": 1.0}], "edges": []}],
        {},
        "workflow",
    ),
    "memory": ([rigid(1, 2, 10, memory_mb_per_proc=600), rigid(2, 1, 10)], {}, "memory"),
    "guard": ([rigid(1, 2, 10, passed_over=3)], {"guard_after": 2}, "passed over"),
    "saturation": ([rigid(1, 2, 10)], {"saturation_threshold": 1.5}, "saturated"),
    "patterns": ([rigid(1, 12, 10)], {}, "patterns"),
    "solver": ([rigid(1, 1, 10)], {}, "ortools is not installed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_says_where_it_does_not_apply(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "solver":
        monkeypatch.setattr(exact, "cp_model", lambda: None)
    queue, options, reason = REFUSED[name]
    platform = [cluster("a", 4, slots=2, memory_mb=1000)]
    if name == "patterns":
        platform = [cluster(letter, 3, link=9.0) for letter in "abcdefgh"]
    planner = Planner(case(platform, queue), options)
    with pytest.raises(UnfitError, match=reason):
        ExactSearch(planner, "makespan", None)


def test_instances_are_seeded() -> None:
    # the reproduction and the benchmarks rest on them
    snapshot = oas_instance(0, 4, 8)
    jobs = [job for job in snapshot.queue if isinstance(job, RigidJob)]
    few = [job for job in oas_instance(0, 2, 5).queue if isinstance(job, RigidJob)]
    assert oas_instance(0, 4, 8) == snapshot != oas_instance(1, 4, 8)
    assert [job.base_time for job in jobs[:5]] == [job.base_time for job in few]
    assert max(job.procs for job in jobs) <= 12
    assert max(job.procs for job in few) <= 6
    ExactSearch(Planner(snapshot, {}), "makespan", None)
