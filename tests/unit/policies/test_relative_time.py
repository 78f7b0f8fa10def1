"""Plans at wall-clock times: values and bounds by one arithmetic, moved to the axis at the end."""

from __future__ import annotations

import pytest

from coalloc.model.plan import Plan
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.checking.proofs import proofs_of
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES
from coalloc.policies.relative_time import at_time, from_now
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

NOW = 1_795_300_000.123
"""Here start + 33.3 is rounded to 33.2999999523."""


@pytest.mark.parametrize("name", POLICIES)
def test_no_bound_passes_its_value_at_wall_clock(name: str) -> None:
    snapshot = case([cluster("a", 1)], [rigid("j", 1, 33.3)], time=NOW)
    policy, seen = POLICIES[name], list[Plan]()
    plan = policy.solve(snapshot, read_options({}, policy.options), Budget(work=2000), seen.append)
    for told in (*seen, plan):
        assert check(snapshot, told).violations == ()
        assert told.objective.bound is None or told.objective.bound <= told.objective.value
        for point in told.front:
            assert point.cmax_bound is None or point.cmax_bound <= point.cmax
    assert plan.placements[0].start == NOW


def test_all_times_move_and_lengths_stay() -> None:
    flow = {
        "id": "flow",
        "kind": "workflow",
        "tasks": [{"id": "t", "work": 4.0}],
        "edges": [{"from": "s", "to": "t", "gb": 1.0}],
        "started": [{"task": "s", "clusters": ["a"], "end": 112.0}],
    }
    snapshot = case(
        [cluster("a", 2, free_at=108.0), cluster("b", 2)],
        [rigid("now", 1, 5.0, submitted=90.0), rigid("later", 1, 5.0, earliest=130.0), flow],
        running=[{"id": "r", "nodes": {"b1": 1}, "start": 80.0, "end": 120.0}],
        reservations=[{"id": "v", "nodes": ["b2"], "start": 140.0, "end": 150.0}],
        time=100.0,
    )
    moved = from_now(snapshot)
    assert moved.time == 0.0
    assert [node.free_at for _, node in moved.nodes()][:2] == [8.0, 8.0]
    assert (moved.queue[0].submitted, moved.queue[0].earliest) == (90.0, -10.0)  # a record
    assert moved.queue[1].earliest == 30.0
    assert moved.queue[2].started[0].end == 12.0  # type: ignore[union-attr]
    assert (moved.running[0].start, moved.running[0].end) == (-20.0, 20.0)
    assert (moved.reservations[0].start, moved.reservations[0].end) == (40.0, 50.0)
    assert from_now(moved) is moved


def test_starts_of_plan_and_front_are_told_on_the_callers_axis() -> None:
    job = {"id": "m", "kind": "moldable", "times": [30.0, 17.0, 12.0]}
    snapshot = case([cluster("a", 3)], [job, {**job, "id": "n"}], time=1000.0)
    policy = POLICIES["bicriteria"]
    options, budget = read_options({}, policy.options), Budget(work=2000)
    plan = policy.solve(snapshot, options, budget)
    at_zero = policy.solve(from_now(snapshot), options, budget)
    assert plan == at_time(at_zero, 1000.0)
    starts = [p.start for point in plan.front for p in point.placements]
    assert min(starts) == 1000.0


def test_the_gap_of_a_plan_at_wall_clock_is_that_of_the_same_plan_at_0() -> None:
    queue = [rigid(n, 1, 33.3 + n / 7) for n in range(3)]
    gaps = []
    for now in (0.0, NOW):
        snapshot = case([cluster("a", 2)], queue, time=now)
        plan = POLICIES["fcfs"].solve(
            snapshot, read_options({}, POLICIES["fcfs"].options), Budget()
        )
        gaps.append([proof.bound.value for proof in proofs_of(snapshot, plan)])
    assert gaps[0] == gaps[1]
