"""Divisible jobs in what other jobs leave idle."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Placement, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.divisible.complete import divisible_bounds
from tests.support.planned import planned


def snapshot_of(nodes: list[dict[str, Any]], queue: list[dict[str, Any]], **more: Any) -> Snapshot:
    clusters = [{"name": "alpha", "nodes": nodes}]
    top = {"format": "coalloc-snapshot/1", "clusters": clusters, "queue": queue, **more}
    return read_snapshot(top)


def solve(name: str, snapshot: Snapshot, **given: Any) -> Plan:
    return planned(name, snapshot, Budget(seed=1, work=5000), **given)


def pieces(plan: Plan, job: str = "d") -> list[Placement]:
    return [placement for placement in plan.placements if placement.job == job]


def rigid(name: str, procs: int, base_time: float, **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "rigid", "procs": procs, "base_time": base_time, **more}


def chunked(work: float, chunk_s: float, **more: Any) -> dict[str, Any]:
    return {"id": "d", "kind": "divisible", "work": work, "chunk_s": chunk_s, **more}


TWO = [{"name": "a[1-2]"}]


def test_fills_the_gap_before_a_wide_job_and_ends_behind_it() -> None:
    queue = [rigid("long", 1, 40.0), rigid("wide", 2, 30.0), chunked(55.0, 10.0)]
    plan = solve("conservative", snapshot_of(TWO, queue))
    found = [(p.start, p.end, p.nodes, p.chunks) for p in pieces(plan)]
    assert found == [(0.0, 40.0, {"a2": 1}, 4), (70.0, 80.0, {"a1": 1, "a2": 1}, 2)]


def test_nothing_else_moves() -> None:
    queue = [rigid("long", 1, 40.0), rigid("wide", 2, 30.0)]
    alone = solve("easy", snapshot_of(TWO, queue))
    beside = solve("easy", snapshot_of(TWO, [*queue, chunked(1000.0, 7.0, weight=100.0)]))
    assert beside.placements[:2] == alone.placements


def test_weak_nodes_take_fewer_chunks_in_the_same_time() -> None:
    nodes = [{"name": "a1", "power": 1.0}, {"name": "a2", "power": 0.5}]
    plan = solve("fcfs", snapshot_of(nodes, [chunked(90.0, 10.0)]))
    assert [(p.nodes, p.chunks, p.end) for p in pieces(plan)] == [
        ({"a1": 1}, 6, 60.0),
        ({"a2": 1}, 3, 60.0),
    ]


def test_a_job_of_few_chunks_holds_no_more_slots_than_it_needs() -> None:
    plan = solve("fcfs", snapshot_of([{"name": "a[1-9]", "slots": 4}], [chunked(50.0, 10.0)]))
    assert [(sum(p.nodes.values()), p.chunks) for p in pieces(plan)] == [(5, 5)]


def test_a_reservation_is_left_alone_but_by_whom_it_names() -> None:
    kept = {"id": "r", "nodes": ["a1"], "start": 5.0, "end": 1e6}
    for jobs, ends in (([], 40.0), (["d"], 20.0)):
        reservations = [{**kept, "jobs": jobs}]
        plan = solve("fcfs", snapshot_of(TWO, [chunked(40.0, 10.0)], reservations=reservations))
        assert max(p.end for p in pieces(plan)) == ends


def test_features_memory_and_clusters_are_honoured() -> None:
    nodes = [
        {"name": "a1", "slots": 4, "memory_mb": 100, "features": ["gpu"]},
        {"name": "a2", "slots": 4},
    ]
    wants = chunked(60.0, 10.0, features=["gpu"], memory_mb_per_proc=40)
    plan = solve("fcfs", snapshot_of(nodes, [wants]))
    assert [(p.nodes, p.end) for p in pieces(plan)] == [({"a1": 2}, 30.0)]
    never = solve("fcfs", snapshot_of(nodes, [chunked(60.0, 10.0, features=["fpga"])]))
    assert [(d.job, str(d.reason)) for d in never.deferred] == [("d", "infeasible")]


def test_heavier_first_and_dependencies_before_that() -> None:
    light, heavy = chunked(40.0, 10.0), {**chunked(40.0, 10.0), "id": "h", "weight": 5.0}
    plan = solve("fcfs", snapshot_of(TWO, [light, heavy]))
    assert max(p.end for p in pieces(plan, "h")) == 20.0
    plan = solve("fcfs", snapshot_of(TWO, [light, {**heavy, "after": ["d"]}]))
    assert min(p.start for p in pieces(plan, "h")) == 20.0


def test_what_waits_for_an_unplaced_job_is_deferred_with_it() -> None:
    queue = [rigid("huge", 50, 1.0), chunked(10.0, 1.0, after=["huge"])]
    plan = solve("easy", snapshot_of(TWO, queue))
    assert {d.job: str(d.reason) for d in plan.deferred} == {
        "huge": "infeasible",
        "d": "dependency",
    }


def test_a_stale_cluster_is_insufficient() -> None:
    empty = snapshot_of(TWO, [chunked(10.0, 1.0)])
    stale = replace(empty, clusters=(replace(empty.clusters[0], stale=True),))
    assert [str(d.reason) for d in solve("easy", stale).deferred] == ["insufficient"]


def test_bounds_count_its_work_and_never_pass_the_least_end() -> None:
    nodes = [{"name": "a1", "power": 1.0, "slots": 2}, {"name": "b1", "power": 0.5}]
    running = [{"id": "r", "nodes": {"a1": 1}, "start": 0.0, "end": 70.0}]
    queue = [rigid("x", 2, 30.0, sigma=0.5), chunked(100.0, 10.0, weight=2.0)]
    snapshot = snapshot_of(nodes, queue, running=running)
    plan = solve("oas", snapshot)
    assert plan.objective.bound is not None
    more = divisible_bounds(snapshot, plan)
    # 2.5 lanes of power less one until 70 s: T = 70 + (100 + 45 - 105) / 2.5, by areas.
    assert more.makespan == pytest.approx(86.0, rel=1e-6)
    assert plan.objective.bound == pytest.approx(86.0, rel=1e-6)


@pytest.mark.parametrize("chunks", [1, 2, 5, 9, 14])
def test_the_least_end_of_a_job_alone_is_exact(chunks: int) -> None:
    """Against every way to deal whole chunks to nodes."""
    free = {"a1": (1.0, 0.0), "a2": (0.7, 12.0), "a3": (0.5, 3.0)}
    nodes = [{"name": n, "power": p, "free_at": at} for n, (p, at) in free.items()]
    snapshot = snapshot_of(nodes, [chunked(10.0 * chunks, 10.0)])
    plan = solve("easy", snapshot)
    best = min(
        max(at + n * 10.0 / p for n, (p, at) in zip(deal, free.values(), strict=True) if n)
        for deal in itertools.product(range(chunks + 1), repeat=3)
        if sum(deal) == chunks
    )
    assert plan.objective.value == pytest.approx(best, abs=1e-6)
    assert divisible_bounds(snapshot, plan).makespan == pytest.approx(best, rel=1e-6)


def test_a_front_is_filled_point_by_point() -> None:
    moldable = [
        {"id": f"m{n}", "kind": "moldable", "times": [9.0 + n, 5.0 + n, 4.0 + n], "weight": 1.0 + n}
        for n in range(6)
    ]
    nodes = [{"name": "a[1-4]"}]
    for work in (10.0, 60.0, 500.0):
        plan = solve("bicriteria", snapshot_of(nodes, [*moldable, chunked(work, 2.0)]))
        assert plan.front
        assert plan.chosen is not None
        assert plan.front[plan.chosen].placements == plan.placements
        assert all(any(p.chunks for p in point.placements) for point in plan.front)


def test_chunks_round_up_and_rounding_makes_none() -> None:
    for work, chunk, count in ((1.1, 0.1, 11), (0.3, 0.1, 3), (1.0, 10.0, 1), (21.0, 10.0, 3)):
        assert DivisibleJob(id="d", work=work, chunk_s=chunk).chunks == count


def test_times_of_day_lose_no_chunk() -> None:
    """At 1.7e9 s a gap of exactly three chunks is shorter than that by rounding."""
    now = 1.7e9
    nodes = [{"name": "a1", "power": 0.3, "free_at": now}]
    reservations = [{"id": "r", "nodes": ["a1"], "start": now + 30.1 / 0.3, "end": now + 1e6}]
    queue = [chunked(30.1, 30.1 / 3.0, earliest=now, submitted=now)]
    snapshot = snapshot_of(nodes, queue, reservations=reservations, time=now)
    assert [p.chunks for p in pieces(solve("easy", snapshot))] == [3]


def test_tiny_chunks_do_not_spill_out_of_a_gap() -> None:
    reservations = [{"id": "r", "nodes": ["a1"], "start": 1e-4, "end": 10.0}]
    snapshot = snapshot_of([{"name": "a1"}], [chunked(3e-4, 1e-6)], reservations=reservations)
    first, last = pieces(solve("easy", snapshot))
    assert (first.chunks, last.start, last.chunks) == (100, 10.0, 200)
