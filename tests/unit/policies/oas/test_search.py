"""The search of `oas`: never worse than a simple order, bounded, repeatable, and its options."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_known, read_options
from coalloc.policies.registry import POLICIES
from tests.properties.plan_promises import SIMPLE, assert_never_worse_than_simple
from tests.support.planned import planned
from tests.support.snapshots import snapshots
from tests.unit.policies.kernel.kernel_case import case, cluster, inside, rigid, spans


def solve(name: str, snapshot: Snapshot, budget: Budget | None = None, **given: Any) -> Plan:
    policy = POLICIES[name]
    return policy.solve(snapshot, read_known(given, policy.options), budget or Budget(work=3000))


@settings(max_examples=30)
@given(
    snapshot=snapshots(),
    options=st.fixed_dictionaries(
        {"objective": st.sampled_from(["makespan", "weighted_completion"])},
        optional={
            "coallocation": st.sampled_from(["allowed", "preferred-single", "forbidden"]),
            "guard_after": st.sampled_from([0, 5]),
            "window": st.sampled_from([1, 3]),
        },
    ),
)
def test_never_worse_than_a_simple_order(snapshot: Snapshot, options: dict[str, Any]) -> None:
    assert_never_worse_than_simple(snapshot, options)


def test_an_order_that_is_no_better_may_leave_more_to_divisible_jobs() -> None:
    """Every order reaches 6667 s; the divisible job needs the one strong node, or 14000 s."""
    nodes = [
        {"name": "a[1-3]", "power": 0.5},
        {"name": "a4"},
        {"name": "a5", "power": 0.5, "slots": 3},
    ]
    chunks = {"id": "chunks", "kind": "divisible", "work": 1e5, "chunk_s": 7e3}
    queue = [chunks, rigid("long", 1, 1e4 / 3.0), rigid("short", 1, 0.001, earliest=10.0)]
    snapshot = case([{"name": "a", "nodes": nodes}], queue)
    assert_never_worse_than_simple(snapshot, {"objective": "makespan"})


@settings(max_examples=30)
@given(
    snapshot=snapshots(),
    threshold=st.sampled_from([1.0, 1.5, 3.0]),
    window=st.sampled_from([1, 2, 100]),
    seed=st.integers(0, 3),
)
def test_plans_are_allowed_and_repeatable(
    snapshot: Snapshot, threshold: float, window: int, seed: int
) -> None:
    options = {
        "objective": "makespan_then_weighted_completion",
        "saturation_threshold": threshold,
        "window": window,
    }
    queue = [job.id for job in snapshot.queue]
    budget = Budget(work=3000, seed=seed, previous=tuple(reversed(queue)))
    plan = solve("oas", snapshot, budget, **options)
    assert check(snapshot, plan).violations == ()
    assert plan.objective.name == "makespan"
    assert solve("oas", snapshot, budget, **options) == plan


@settings(max_examples=30)
@given(snapshot=snapshots())
def test_balanced_plans_are_allowed(snapshot: Snapshot) -> None:
    plan = solve("oas-balanced", snapshot)
    assert check(snapshot, plan).violations == ()


def test_annealing_improves_on_every_simple_order() -> None:
    queue = [rigid(n, 3 + n % 4, 5.0 + 3 * (n * 7 % 5)) for n in range(24)]
    snapshot = case([cluster("a", 12), cluster("b", 8, power=0.6)], queue)
    best = min(solve(name, snapshot, **extra).objective.value for name, extra in SIMPLE)
    plan = solve("oas", snapshot, Budget(work=400_000))
    assert plan.objective.value < best
    assert plan.stats["order"] == "annealing"


def test_ends_by_itself_with_a_proof_where_the_bound_is_met() -> None:
    sizes = [(6, 5), (4, 7), (6, 4), (4, 2)]  # two stacks of 9 s, side by side
    queue = [rigid(n, procs, seconds) for n, (procs, seconds) in enumerate(sizes)]
    plan = solve("oas", case([cluster("a", 10)], queue), Budget())
    assert plan.status is Status.OPTIMAL
    assert plan.objective.value == 9.0
    assert plan.objective.bound == pytest.approx(9.0, rel=1e-9)


def test_status_tells_clock_from_work() -> None:
    queue = [rigid(n, 3 + n % 4, 5.0 + 3 * (n * 7 % 5)) for n in range(24)]
    snapshot = case([cluster("a", 12), cluster("b", 8, power=0.6)], queue)
    assert solve("oas", snapshot, Budget(work=2000)).status is Status.FEASIBLE
    calls = iter(range(10_000))
    timed = solve("oas", snapshot, Budget(stop=lambda: next(calls) > 20))
    assert timed.status is Status.TIME_LIMIT
    assert solve("oas", snapshot, Budget(), patience=5, exact_work=0).status is Status.FEASIBLE


def test_is_less_patient_behind_the_plan_of_the_round_before() -> None:
    queue = [rigid(n, 3 + n % 4, 5.0 + 3 * (n * 7 % 5)) for n in range(15)]
    queue.append(rigid("later", 11, 7, earliest=20.0))
    snapshot = case([cluster("a", 13)], queue)
    given = {"patience": 200, "exact_work": 0}
    first = solve("oas", snapshot, Budget(), **given)
    starts = sorted(first.placements, key=lambda placement: placement.start)
    known = tuple(placement.job for placement in starts)
    again = solve("oas", snapshot, Budget(previous=known), **given)
    assert again.objective.value == first.objective.value
    assert again.stats["trials"] < 200 * len(queue) <= first.stats["trials"]
    # a job that it does not know is reason to look again
    news = solve("oas", snapshot, Budget(previous=known[1:]), **given)
    assert news.stats["trials"] >= 200 * len(queue)


def test_second_objective_keeps_the_first() -> None:
    queue = [rigid("long", 2, 100)]
    queue += [rigid(n, 2, t, weight=w) for n, (t, w) in enumerate([(40, 1), (5, 9), (30, 1)])]
    snapshot = case([cluster("a", 4)], queue)
    plan = planned("oas", snapshot, objective="makespan_then_weighted_completion")
    assert plan.objective.value == 100.0
    assert spans(plan)["1"] == (0.0, 5.0)
    assert plan.stats["weighted_completion"] == 100 + 9 * 5 + 35 + 75


def test_saturation_buys_a_start_that_tight_links_forbid() -> None:
    # 8 processes, 4 on each side: the load is 8/7 of .35, more than the link of .3 takes
    wide = rigid("w", 8, 10, sigma=0.5, proc_gbps=0.35 / 2)
    snapshot = case([cluster("a", 4, link=0.3), cluster("b", 4, link=0.3)], [wide])
    assert planned("oas", snapshot).deferred
    plan = planned("oas", snapshot, saturation_threshold=2.0)
    (placement,) = plan.placements
    assert 1.0 < placement.sc <= 2.0
    assert inside(plan, "w") == {"a": 4, "b": 4}


def test_coallocation_is_read_in_the_words_of_the_papers_and_ours() -> None:
    table = POLICIES["oas"].options
    assert read_options({"coallocation": "preferred-single"}, table)["coallocation"] == "needed"
    assert read_options({"coallocation": "allowed"}, table)["coallocation"] == "sooner"


def test_window_is_filled_by_fairness_weight_and_arrival() -> None:
    queue = [
        rigid("first", 4, 10),
        rigid("heavy", 4, 10, weight=5),
        rigid("passed", 4, 10, passed_over=3),
        rigid("last", 4, 10),
    ]
    plan = planned("oas", case([cluster("a", 4)], queue), window=1, objective="makespan")
    assert set(spans(plan)) == {"first", "heavy", "passed", "last"}


def test_what_waits_for_a_job_outside_the_window_draws_it_in() -> None:
    queue = [rigid("parent", 1, 10), rigid("child", 1, 10, after=["parent"], weight=9)]
    plan = planned("oas", case([cluster("a", 2)], queue), window=1)
    assert spans(plan) == {"parent": (0.0, 10.0), "child": (10.0, 20.0)}


def test_balanced_puts_heavy_processing_on_powerful_nodes() -> None:
    queue = [rigid("light", 2, 100, sigma=0.1), rigid("heavy", 2, 100, sigma=1.0)]
    snapshot = case([cluster("a", 2), cluster("b", 2, power=0.5)], queue)
    plan = planned("oas-balanced", snapshot)
    assert inside(plan, "heavy") == {"a": 2}
    assert inside(plan, "light") == {"b": 2}


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_proved_stands_beside_ends_that_a_large_clock_rounds(
    objective: str, seed: int
) -> None:
    rng = random.Random(seed)
    now = 1_763_759_999.123456 + 1e4 * rng.random()
    nodes = [("a", 0.35), ("b", 0.55)]
    body = {
        "format": "coalloc-snapshot/1",
        "time": now,
        "clusters": [
            {"name": name, "nodes": [{"name": f"{name}[1-4]", "power": power}]}
            for name, power in nodes
        ],
        "queue": [
            {"id": str(n), "kind": "rigid", "procs": rng.choice((1, 3, 6)), "base_time": 7.3}
            for n in range(5)
        ],
    }
    snapshot = read_snapshot(body)
    policy = POLICIES["oas"]
    options = read_options({"objective": objective}, policy.options)
    plan = policy.solve(snapshot, options, Budget(work=20_000))
    assert plan.status is Status.OPTIMAL
    assert check(snapshot, plan).violations == ()


@pytest.mark.parametrize("name", ["oas", "oas-balanced"])
def test_what_was_passed_over_and_waits_for_another_job_has_a_place(name: str) -> None:
    queue = [rigid("parent", 1, 10), rigid("child", 1, 10, after=["parent"], passed_over=7)]
    queue.append(rigid("other", 2, 15))
    plan = planned(name, case([cluster("a", 2)], queue), guard_after=1)
    assert set(spans(plan)) == {"parent", "child", "other"}
