"""The rolling form of `bicriteria`: load, widths, what starts now, reservations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance

from coalloc.model.plan import NOTES, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.moldable.rolling import IMAGINED_LOAD, Arrivals, by_efficiency, by_price, hold
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, cluster, nodes, rigid
from tests.unit.policies.published.demt_case import queue_of, snapshot_of, starts

LINEAR = [12.0, 6.0, 4.0, 3.0]
"""Work that costs nothing to spread."""
SOME = [12.0, 7.0, 5.0, 4.2]
STUBBORN = [12.0, 11.0, 10.5, 10.2]


def rolled(
    snapshot: Snapshot, notes: dict[str, Any] | None = None, name: str = "bicriteria", **given: Any
) -> Plan:
    """The plan of a live round, which must pass the checker."""
    plan = planned(name, snapshot, Budget(live=True, notes=notes or {}), **given)
    assert plan.policy == name
    return plan


def width(plan: Plan, job: str) -> int:
    return sum(nodes(plan, job).values())


def test_the_load_is_work_by_what_the_slots_could_do() -> None:
    arrivals = Arrivals()
    for number in range(400):
        arrivals.take([(2.0 * number, 6.0)], 2.0 * number)
    assert arrivals.load(10) == pytest.approx(0.3, rel=0.02)
    assert arrivals.load(3) == pytest.approx(1.0, rel=0.03)


def test_nothing_known_is_a_medium_load_and_silence_lowers_it() -> None:
    arrivals = Arrivals()
    assert arrivals.load(10) == IMAGINED_LOAD
    arrivals.take([(float(n), 10.0) for n in range(100)], 99.0)
    busy = arrivals.load(10)
    arrivals.take([], 99.5)
    assert arrivals.load(10) == busy, "a gap that is not longer than usual says nothing yet"
    arrivals.take([], 5000.0)
    assert arrivals.load(10) < 0.02


def test_a_job_that_waits_for_several_rounds_is_one_arrival() -> None:
    often, once = Arrivals(), Arrivals()
    for time in (5.0, 6.0, 7.0):
        often.take([(1.0, 30.0), (5.0, 40.0)], time)
    once.take([(1.0, 30.0), (5.0, 40.0)], 7.0)
    assert often == once


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"work": 1.0},
        {"work": "1", "gap": 1.0, "count": 1.0, "last": 0.0, "seen": 0.0},
        {"work": 1.0, "gap": 1.0, "count": 1.0, "last": 0.0, "seen": 1e9},
        {"work": 1.0, "gap": float("nan"), "count": 1.0, "last": 0.0, "seen": 0.0},
        {"work": 1.0, "gap": 1.0, "count": -1.0, "last": 0.0, "seen": 0.0},
    ],
)
def test_notes_that_are_none_of_ours_are_as_none(notes: dict[str, Any]) -> None:
    assert Arrivals.read(notes, 10.0) == Arrivals()


def test_notes_read_back_what_was_written() -> None:
    arrivals = Arrivals()
    arrivals.take([(1.0, 30.0), (5.0, 40.0)], 7.0)
    assert Arrivals.read(arrivals.write(), 7.0) == arrivals


def test_widths_fall_with_the_price_except_where_width_costs_nothing() -> None:
    queue = queue_of(snapshot_of([("even", LINEAR, 1.0), ("odd", STUBBORN, 1.0)], 4))
    share = np.ones(2)
    found = [queue.procs[by_price(queue, share, price)].tolist() for price in (0.0, 0.2, 5.0)]
    assert found == [[4, 4], [4, 1], [4, 1]]


def test_a_weighty_job_runs_wider() -> None:
    queue = queue_of(snapshot_of([("light", STUBBORN, 1.0), ("heavy", STUBBORN, 1.0)], 4))
    share = np.array([0.1, 100.0])
    assert queue.procs[by_price(queue, share, 0.5)].tolist() == [1, 4]


def test_price_rule_is_the_least_cost_on_random_queues() -> None:
    queue = queue_of(moldable_instance("mixed", 40, 60, 3))
    share = np.linspace(0.1, 2.0, 40)
    for price in (0.001, 0.05, 1.0):
        rows = by_price(queue, share, price)
        for i in range(40):
            offered = slice(int(queue.first[i]), int(queue.first[i + 1]))
            costs = queue.times[offered] * (share[i] + price * queue.procs[offered])
            assert rows[i] == queue.first[i] + int(costs.argmin())


def test_efficiency_rule_takes_the_widest_that_is_efficient_enough() -> None:
    queue = queue_of(moldable_instance("highly", 30, 60, 3))
    for least in (0.2, 0.6, 0.9, 1.0):
        rows = by_efficiency(queue, least)
        for i in range(30):
            a, b = int(queue.first[i]), int(queue.first[i + 1])
            reached = queue.procs[a] * queue.times[a] / (queue.procs[a:b] * queue.times[a:b])
            assert rows[i] == a + np.flatnonzero(reached >= least - 1e-9)[-1]


def test_a_lone_job_takes_the_machine_and_a_crowd_shares_it() -> None:
    alone = rolled(snapshot_of([("1", SOME, 1.0)], 40))
    assert width(alone, "1") == 4
    crowd = rolled(snapshot_of([(str(n), SOME, 1.0) for n in range(30)], 40))
    assert {width(crowd, str(n)) for n in range(30)} == {1}
    assert set(starts(crowd).values()) == {0.0}


def test_a_busy_past_makes_the_same_job_narrower() -> None:
    row = ("1", SOME, 1.0)
    arrivals = Arrivals()
    arrivals.take([(-40.0 + 0.4 * n, 14.0) for n in range(100)], -0.4)
    busy = rolled(snapshot_of([row], 40), arrivals.write())
    quiet = rolled(snapshot_of([row], 40))
    assert busy.stats["load"] > quiet.stats["load"]
    assert width(busy, "1") < width(quiet, "1")
    assert busy.stats[NOTES]["seen"] == 0.0


def test_a_job_is_squeezed_into_what_is_free() -> None:
    running = [{"id": "9", "nodes": {"a0": 1}, "start": -1.0, "end": 50.0}]
    plan = rolled(snapshot_of([("1", LINEAR, 1.0)], 4, running=running))
    assert starts(plan) == {"1": 0.0}
    assert width(plan, "1") == 3
    waits = rolled(snapshot_of([("1", LINEAR, 1.0)], 4, running=running), squeeze=0.9)
    assert starts(waits) == {"1": 50.0}


def test_stretch_takes_what_nobody_waits_for() -> None:
    rows = [("1", STUBBORN, 1.0)]
    assert width(rolled(snapshot_of(rows, 4), stretch=1.0), "1") == 1
    assert width(rolled(snapshot_of(rows, 4), stretch=4.0), "1") == 4
    assert width(rolled(snapshot_of(rows, 4), stretch=3.9), "1") == 3


def crowded(**of_wide: Any) -> Snapshot:
    """Two of four nodes are busy; a wide job has waited, short narrow ones arrive."""
    queue = [{"id": "wide", "kind": "rigid", "procs": 4, "base_time": 5.0, "submitted": 0.0}]
    queue[0] |= of_wide
    queue += [
        {"id": f"n{n}", "kind": "moldable", "times": [30.0], "submitted": 99.0} for n in range(3)
    ]
    running = [{"id": "9", "nodes": {"a1": 1, "a2": 1}, "start": 90.0, "end": 110.0}]
    return case([cluster("a")], queue, running, time=100.0, overrun_s=0.0)


def test_the_most_stretched_job_keeps_a_reservation() -> None:
    plan = rolled(crowded())
    assert plan.stats["held"] == "wide"
    assert starts(plan)["wide"] == 110.0
    assert min(starts(plan)[f"n{n}"] for n in range(3)) >= 115.0
    free = rolled(crowded(), reserve_after=1000.0)
    assert free.stats["held"] is None
    assert starts(free)["n0"] == 100.0


def test_a_job_that_was_passed_over_keeps_one_before_the_most_stretched() -> None:
    plan = rolled(crowded(passed_over=10), reserve_after=1000.0)
    assert plan.stats["held"] == "wide"
    assert rolled(crowded(passed_over=9), reserve_after=1000.0).stats["held"] is None
    assert rolled(crowded(passed_over=10), reserve_after=1e3, guard_after=0).stats["held"] is None


def test_short_work_fills_the_time_before_a_reservation() -> None:
    snapshot = crowded()
    short = {"id": "short", "kind": "moldable", "times": [9.0], "submitted": 99.0}
    queue = [*snapshot.queue, *case([cluster("a")], [short]).queue]
    plan = rolled(replace(snapshot, queue=tuple(queue)))
    assert starts(plan)["short"] == 100.0
    assert starts(plan)["wide"] == 110.0


def test_a_place_is_held_around_reservations() -> None:
    closed = [{"id": "r", "nodes": ["a0", "a1"], "start": 10.0, "end": 20.0, "jobs": []}]
    snapshot = snapshot_of([("1", [30.0, 20.0, 14.0], 1.0)], 4, reservations=closed)
    queue = of_planner(Planner(snapshot, read_options({}, lookup("bicriteria").options)))
    held = hold(queue, 0, 2)
    assert held is not None
    assert (held.start, held.end, held.procs) == (20.0, 34.0, 3)


MIXED = [
    rigid("r", 3, 20.0, proc_gbps=0.01, sigma=0.8),
    {"id": "m", "kind": "moldable", "times": [30.0, 16.0, 12.0, 9.5], "proc_gbps": 0.02},
    {"id": "one", "kind": "moldable", "times": [30.0, 16.0, 12.0, 9.5]},
    rigid("after", 1, 5.0, after=["m"]),
    {
        "id": "flow",
        "kind": "workflow",
        "tasks": [
            {"id": "x", "work": 9.0, "parallel_fraction": 0.9, "max_procs": 4},
            {"id": "y", "work": 5.0},
        ],
        "edges": [{"from": "x", "to": "y", "gb": 0.1}],
    },
    rigid("late", 1, 5.0, earliest=40.0),
]


@pytest.mark.parametrize("name", ["bicriteria", "bicriteria-batch", "auto"])
def test_mixed_queues_on_unequal_clusters(name: str) -> None:
    clusters = [cluster("a", 4, 1.0), cluster("b", 3, 1.0, power=0.5, slots=2)]
    running = [{"id": "9", "nodes": {"a1": 1}, "start": -1.0, "end": 7.0}]
    closed = [{"id": "v", "nodes": ["b2"], "start": 9.0, "end": 30.0, "jobs": []}]
    plan = rolled(case(clusters, MIXED, running, closed), name=name)
    assert {p.job for p in plan.placements} == {"r", "m", "one", "after", "flow", "late"}
    assert sum(p.start == 0.0 for p in plan.placements) >= 2


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_chosen_to_start_now_does(family: str) -> None:
    snapshot = moldable_instance(family, 30, 24, 4)
    plan = rolled(snapshot)
    assert sum(start == 0.0 for start in starts(plan).values()) >= plan.stats["chosen_now"] > 0
    assert plan == rolled(snapshot)


def test_open_ended_reservations_leave_what_they_leave() -> None:
    closed = [{"id": "r", "nodes": ["a0", "a1"], "start": 5.0, "end": 1e12, "jobs": []}]
    rows = [("1", [9.0, 8.0, 7.5], 1.0), ("2", [40.0, 21.0], 1.0)]
    plan = rolled(snapshot_of(rows, 3, reservations=closed))
    assert {p.job for p in plan.placements} == {"1", "2"}


def test_an_empty_queue_is_a_plan() -> None:
    assert rolled(snapshot_of([], 3)).placements == ()


def test_off_line_the_form_is_the_plan_unless_it_is_asked_for() -> None:
    snapshot = moldable_instance("weakly", 5, 8, 1)
    policy = lookup("bicriteria")
    rolling = policy.solve(snapshot, read_options({"form": "rolling"}, policy.options), Budget())
    assert "load" in rolling.stats
    assert "load" in rolled(snapshot).stats


def test_a_live_round_tells_easy_first_and_ends_when_it_is_told_to() -> None:
    queue = [{"id": str(n), "kind": "moldable", "times": SOME} for n in range(20)]
    snapshot, policy = case([cluster("a", 6)], queue), lookup("bicriteria")
    options = read_options({}, policy.options)
    easy = lookup("easy").solve(snapshot, read_options({}, lookup("easy").options), Budget())
    seen: list[Plan] = []
    asked = 0

    def stop_at(call: int) -> Plan:
        nonlocal asked
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > call

        seen.clear()
        notes = {"work": 1.0, "gap": 2.0, "count": 1.0, "last": -3.0, "seen": -3.0}
        return policy.solve(
            snapshot, options, Budget(live=True, stop=stop, notes=notes), seen.append
        )

    whole = stop_at(1000)
    assert asked >= 3
    assert whole.status is Status.HEURISTIC
    for call in range(asked):
        stopped = stop_at(call)
        assert [plan.placements for plan in seen] == [easy.placements]
        assert check(snapshot, seen[0]).violations == ()
        assert stopped.placements == easy.placements
        assert stopped.status is Status.TIME_LIMIT
        assert stopped.stats[NOTES]["seen"] == -3.0, "what was known is not lost"
