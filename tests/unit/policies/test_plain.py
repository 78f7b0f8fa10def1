"""EASY without a compiler: what it starts, books and estimates, and what it leaves undone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.counted import planning
from coalloc.policies.registry import POLICIES
from tests.support.easy_oracle import Job, starts


def by_arrival(job: Job, waited: float) -> float:
    """Keep the order."""
    return 0.0


def rigid(name: str, procs: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "rigid", "procs": procs, "base_time": seconds, **more}


def snapshot_of(*queue: dict[str, Any], **more: Any) -> Snapshot:
    """Four equal nodes of one cluster, on which work ends when it should."""
    cluster = {"name": "a", "nodes": [{"name": "a[1-4]"}]}
    top = {"format": "coalloc-snapshot/1", "clusters": [cluster], "overrun_s": 0.0}
    return read_snapshot({**top, "queue": list(queue), **more})


def planned(snapshot: Snapshot) -> tuple[Plan, Mapping[str, float]]:
    plan = POLICIES["plain"].solve(snapshot, {}, Budget(live=True))
    assert check(snapshot, plan).violations == ()
    return plan, {placement.job: placement.start for placement in plan.placements}


def test_backfills_beside_the_booking_of_the_first_that_waits() -> None:
    now = 1_795_300_000.0
    running = [{"id": "r", "nodes": {"a1": 1}, "start": now - 5.0, "end": now + 10.0}]
    queue = [
        rigid("head", 4, 20.0),
        rigid("long", 1, 11.0),
        rigid("short", 1, 10.0),
        rigid("beside", 2, 5.0),
        rigid("late", 4, 1.0),
    ]
    _, found = planned(snapshot_of(*queue, running=running, time=now))
    after = {name: start - now for name, start in found.items()}
    assert after == {"head": 10.0, "long": 30.0, "short": 0.0, "beside": 0.0, "late": 41.0}


def test_one_node_more_lets_the_long_job_pass() -> None:
    running = [{"id": "r", "nodes": {"a1": 1}, "start": -5.0, "end": 10.0}]
    queue = [rigid("head", 3, 20.0), rigid("first", 1, 30.0), rigid("second", 1, 30.0)]
    _, found = planned(snapshot_of(rigid("filler", 1, 10.0), *queue, running=running))
    assert found == {"filler": 0.0, "head": 10.0, "first": 0.0, "second": 30.0}


def test_what_may_not_start_yet_keeps_nothing_waiting_and_is_estimated() -> None:
    later = rigid("later", 4, 5.0, earliest=3.0)
    after = rigid("after", 4, 5.0, after=["now"])
    _, found = planned(snapshot_of(later, after, rigid("now", 4, 10.0)))
    assert found == {"now": 0.0, "later": 10.0, "after": 15.0}


def test_a_wide_job_with_a_choice_waits_where_it_ends_sooner_so() -> None:
    running = [{"id": "r", "nodes": {"a1": 1, "a2": 1, "a3": 1}, "start": -5.0, "end": 5.0}]
    wide = {"id": "wide", "kind": "moldable", "times": [100.0, 50.0, 34.0, 25.0]}
    _, found = planned(snapshot_of(wide, running=running))
    assert found == {"wide": 5.0}


def test_memory_and_links_that_running_work_holds_are_not_given_away() -> None:
    clusters = [
        {"name": name, "link_gbps": 1.0, "nodes": [{"name": name, "slots": 2, "memory_mb": 100}]}
        for name in "ab"
    ]
    wide = rigid("wide", 4, 5.0, proc_gbps=0.75)  # one Gbit/s on each link
    running = [{"id": "r", "nodes": {}, "link_gbps": {"a": 0.1}, "start": -5.0, "end": 7.0}]
    _, found = planned(snapshot_of(wide, clusters=clusters, running=running))
    assert found == {"wide": 7.0}
    big = rigid("big", 1, 5.0, memory_mb_per_proc=60)
    running = [{"id": "r", "nodes": {"a": 1, "b": 1}, "start": -5.0, "end": 7.0}]
    _, found = planned(snapshot_of(big, clusters=clusters, running=running))
    assert found == {"big": 7.0}


def test_what_was_not_looked_at_has_no_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = [rigid("first", 3, 50.0), rigid("head", 2, 20.0), rigid("short", 1, 1.0)]
    _, found = planned(snapshot_of(*queue))
    assert found == {"first": 0.0, "head": 50.0, "short": 0.0}
    monkeypatch.setattr(planning, "WORK", 1)
    plan, found = planned(snapshot_of(*queue))
    assert found == {"first": 0.0, "head": 50.0}
    assert [(d.job, d.reason) for d in plan.deferred] == [("short", Reason.NOT_SELECTED)]


def test_a_task_that_no_cluster_holds_is_spread_and_its_data_are_waited_for() -> None:
    clusters = [
        {"name": name, "link_gbps": 1.0, "nodes": [{"name": name, "slots": 2}]} for name in "ab"
    ]
    tasks = [{"id": "t", "work": 8.0}, {"id": "u", "work": 8.0, "min_procs": 4, "max_procs": 4}]
    edges = [{"from": "t", "to": "u", "gb": 1.0}]
    flow = {"id": "w", "kind": "workflow", "tasks": tasks, "edges": edges}
    counted = rigid("m", 1, 1.0, shape={"memory_mb_per_node": 1})
    for queue in ([flow], [counted, flow]):
        snapshot = snapshot_of(*queue, clusters=clusters)
        for name in ("plain", "easy"):
            plan = POLICIES[name].solve(snapshot, {}, Budget())
            assert check(snapshot, plan).violations == ()
            (spread,) = (p for p in plan.placements if p.task == "u")
            assert (spread.start, spread.nodes) == (16.0, {"a": 2, "b": 2})


@pytest.mark.parametrize("seed", range(20))
def test_starts_what_easy_starts_on_one_cluster(seed: int) -> None:
    draw = random.Random(seed)
    jobs = []
    for _ in range(12):
        seconds = float(draw.randint(1, 30))
        jobs.append(Job(submit=0.0, procs=draw.randint(1, 4), estimate=seconds, run=seconds))
    queue = [rigid(f"{n:02}", job.procs, job.run) for n, job in enumerate(jobs)]
    _, found = planned(snapshot_of(*queue))
    expected = starts(jobs, 4, by_arrival, by_arrival)
    assert {name for name, start in found.items() if start == 0.0} == {
        f"{n:02}" for n, start in enumerate(expected) if start == 0.0
    }
    assert len(found) == len(jobs)


def test_many_powers_are_rounded_as_the_plan_says() -> None:
    nodes = [{"name": f"a{n}", "power": 0.5 + n / 100.0} for n in range(50)]
    clusters = [{"name": "a", "nodes": nodes}]
    plan, found = planned(snapshot_of(rigid("1", 50, 10.0), rigid("2", 1, 19.8), clusters=clusters))
    assert plan.options == {"power_step": 0.05}
    assert found == {"1": 0.0, "2": 20.0}
