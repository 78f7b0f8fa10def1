"""The decoders on small cases that were worked out by hand."""

import pytest

from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import (
    case,
    cluster,
    inside,
    nodes,
    reasons,
    rigid,
    spans,
)

SIX = {"fcfs": 16.0, "sjf": 13.0, "bjf": 17.0, "fpfs": 14.0, "spt": 19.0, "lpt": 15.0}


@pytest.fixture
def five_jobs() -> Snapshot:
    """Four nodes; an instance on which all six simple orders differ."""
    sizes = [(1, 1.0), (3, 4.0), (1, 9.0), (4, 4.0), (2, 2.0)]
    return case([cluster("a")], [rigid(n, p, t) for n, (p, t) in enumerate(sizes, 1)])


@pytest.mark.parametrize(("name", "makespan"), SIX.items())
def test_six_orders_differ(name: str, makespan: float, five_jobs: Snapshot) -> None:
    assert planned(name, five_jobs).objective.value == makespan


def test_strict_never_overtakes(five_jobs: Snapshot) -> None:
    # 5 would fit beside 2 and 3, yet starts behind 4
    expected = {"1": (0, 1), "2": (0, 4), "3": (1, 10), "4": (10, 14), "5": (14, 16)}
    assert spans(planned("fcfs", five_jobs)) == expected


def test_skip_makes_an_order_overtake(five_jobs: Snapshot) -> None:
    assert spans(planned("fcfs", five_jobs, skip=True)) == spans(planned("fpfs", five_jobs))


@pytest.fixture
def blocked_head() -> Snapshot:
    """Five nodes; 2 must wait for 1, and one node is free beside it when it starts."""
    queue = [rigid(1, 3, 10.0), rigid(2, 4, 5.0), rigid(3, 1, 20.0), rigid(4, 1, 20.0)]
    return case([cluster("a", 5)], [*queue, rigid(5, 1, 10.0)])


def test_easy_uses_both_admission_rules(blocked_head: Snapshot) -> None:
    found = spans(planned("easy", blocked_head))
    assert found["2"] == (10, 15)
    assert found["3"] == (0, 20)  # fits beside the head's booking
    assert found["4"][0] == 15  # would take the head's node
    assert found["5"] == (0, 10)  # ends before the head starts


def test_what_starts_later_may_come_without_its_nodes(blocked_head: Snapshot) -> None:
    whole = planned("easy", blocked_head)
    easy = lookup("easy")
    few = easy.solve(blocked_head, read_options({}, easy.options), Budget(node_entries=6))
    assert [replace(p, nodes={}) for p in few.placements] == [
        replace(p, nodes={}) for p in whole.placements
    ]
    named = [p for p in few.placements if p.nodes]
    assert {p.job for p in named} == {"1", "3", "5"}  # What starts now, whatever the number.
    assert all(p in whole.placements for p in named)
    assert not check(blocked_head, few, estimates=True).violations
    assert any("has no node" in line for line in check(blocked_head, few).violations)
    now = tuple(replace(p, nodes={}) if p.start == 0.0 else p for p in few.placements)
    for wrong in (now, (*few.placements, few.placements[1]), few.placements[:1]):
        plan = replace(few, placements=wrong)
        assert check(blocked_head, plan, estimates=True).violations


def test_fpfs_lets_the_head_wait(blocked_head: Snapshot) -> None:
    found = spans(planned("fpfs", blocked_head))
    assert found["4"] == (0, 20)
    assert found["2"] == (20, 25)


def test_conservative_keeps_every_booking() -> None:
    queue = [rigid(1, 3, 10.0), rigid(2, 4, 5.0), rigid(3, 3, 4.0), rigid(4, 1, 11.0)]
    snapshot = case([cluster("a")], [*queue, rigid(5, 1, 10.0)])
    # 4 is too long for the hole before 2 and must not delay 3 either
    expected = {"1": (0, 10), "2": (10, 15), "3": (15, 19), "4": (15, 26), "5": (0, 10)}
    assert spans(planned("conservative", snapshot)) == expected
    # EASY protects the head only: the same here, since 4 does not fit beside 2
    assert spans(planned("easy", snapshot)) == expected


def test_ties_take_weak_nodes_and_the_first_cluster() -> None:
    strong, weak = cluster("s", 2), cluster("w", 2, power=0.5)
    # sigma 0: power does not matter, so the strong nodes stay free
    one = planned("fcfs", case([strong, weak], [rigid(1, 2, 8.0, sigma=0.0)]))
    assert nodes(one, "1") == {"w1": 1, "w2": 1}
    two = planned("fcfs", case([strong, weak], [rigid(1, 2, 8.0)]))
    assert spans(two) == {"1": (0, 8)}
    same = planned("fcfs", case([cluster("a", 2), cluster("b", 2)], [rigid(1, 2, 8.0)]))
    assert nodes(same, "1") == {"a1": 1, "a2": 1}


def test_earliest_end_may_mean_a_later_start() -> None:
    snapshot = case(
        [cluster("s", 1), cluster("w", 1, power=0.25)],
        [rigid(1, 1, 10.0), rigid(2, 1, 10.0), rigid(3, 1, 2.0)],
    )
    # 2 would end at 40 on the weak node, and ends at 20 if it waits
    assert spans(planned("conservative", snapshot)) == {"1": (0, 10), "2": (10, 20), "3": (0, 8)}
    # strict: 3 may not start before 2
    assert spans(planned("fcfs", snapshot))["3"] == (10, 18)
    # event: what fits starts
    assert spans(planned("fpfs", snapshot))["2"] == (0, 40)


def test_run_time_follows_the_weakest_node() -> None:
    snapshot = case([cluster("s", 2), cluster("w", 1, power=0.5)], [rigid(1, 3, 10.0, sigma=0.6)])
    assert spans(planned("fcfs", snapshot)) == {"1": (0, pytest.approx(10 * (0.6 / 0.5 + 0.4)))}


def test_moldable_takes_the_allotment_that_ends_first() -> None:
    job = {"id": "m", "kind": "moldable", "times": [10.0, 6.0, 4.5, 4.5]}
    alone = planned("fcfs", case([cluster("a", 8)], [job]))
    assert spans(alone) == {"m": (0, 4.5)}
    assert inside(alone, "m") == {"a": 3}  # of equal ends the smaller
    # two nodes are free now, three at 2: 6.0 now beats 2 + 4.5
    running = [{"id": "r", "nodes": {"a1": 1}, "start": -9.0, "end": 2.0}]
    busy = case([cluster("a", 3)], [job], running, overrun_s=0.0)
    assert spans(planned("fcfs", busy)) == {"m": (0, 6.0)}


def test_moldable_waits_where_that_ends_it_sooner() -> None:
    job = {"id": "m", "kind": "moldable", "times": [10.0, 6.0, 4.5, 4.0]}
    queue = [rigid(1, 3, 2.0), job, rigid(3, 4, 5.0), rigid(4, 1, 1.0)]
    for name in ("fpfs", "easy"):
        found = spans(planned(name, case([cluster("a")], queue)))
        assert found == {"1": (0, 2), "m": (2, 6), "3": (6, 11), "4": (0, 1)}


def test_moldable_splits_only_if_it_may() -> None:
    job = {"id": "m", "kind": "moldable", "times": [10.0, 6.0, 4.5, 4.0]}
    pair = [cluster("a", 2), cluster("b", 2)]
    assert spans(planned("fcfs", case(pair, [job]))) == {"m": (0, 6.0)}
    split = planned("fcfs", case(pair, [job]), coallocate_moldable=True)
    assert spans(split) == {"m": (0, 4.0)}
    assert spans(planned("fcfs", case(pair, [{**job, "proc_gbps": 0}]))) == {"m": (0, 4.0)}


def test_guard_books_what_was_passed_over() -> None:
    queue = [
        rigid(1, 1, 10.0),
        rigid(2, 4, 5.0, passed_over=3),
        *(rigid(n, 1, 9.0 + n) for n in (3, 4)),
    ]
    snapshot = case([cluster("a")], [*queue, rigid(5, 1, 9.0)])
    guarded = spans(planned("fpfs", snapshot, guard_after=3))
    assert guarded["2"] == (0, 5)
    assert guarded["1"] == (5, 15)
    unguarded = spans(planned("fpfs", snapshot, guard_after=4))
    assert unguarded["2"][0] > 0


def test_order_of_queue_and_release_times() -> None:
    snapshot = case(
        [cluster("a", 2)],
        [rigid(1, 2, 5.0, earliest=7.0), rigid(2, 1, 5.0, submitted=0.0)],
        time=0.0,
    )
    assert spans(planned("fcfs", snapshot)) == {"1": (7, 12), "2": (0, 5)}
    assert spans(planned("fpfs", snapshot)) == {"1": (7, 12), "2": (0, 5)}
    assert spans(planned("conservative", snapshot)) == {"1": (7, 12), "2": (0, 5)}


def test_precedence_in_every_decoder() -> None:
    queue = [
        rigid("last", 1, 1.0, after=["mid", "gone"]),
        rigid("mid", 1, 2.0, after=["first", "r"]),
        rigid("first", 1, 3.0),
    ]
    running = [{"id": "r", "nodes": {"a1": 1}, "start": -1.0, "end": 8.0}]
    snapshot = case([cluster("a")], queue, running, overrun_s=0.0)
    for name in ("fcfs", "fpfs", "easy", "conservative", "auto"):
        assert spans(planned(name, snapshot)) == {"first": (0, 3), "mid": (8, 10), "last": (10, 11)}


def test_what_waits_for_a_deferred_job_is_deferred() -> None:
    queue = [
        rigid(1, 1, 1.0, held=True),
        rigid(2, 1, 1.0, after=["1"]),
        rigid(3, 1, 1.0, after=["2"]),
        rigid(4, 1, 1.0, after=["5"]),
        rigid(5, 1, 1.0, after=["4"]),
        rigid(6, 9, 1.0),
        {"id": "7", "kind": "divisible", "work": 10.0, "chunk_s": 1.0},
    ]
    plan = planned("fcfs", case([cluster("a")], queue))
    waits = dict.fromkeys(("2", "3", "4", "5"), "dependency")
    assert reasons(plan) == {"1": "held", **waits, "6": "infeasible"}
    assert plan.objective.deferred == 6
    assert {placement.job for placement in plan.placements} == {"7"}


def test_workflow_pays_for_data_between_clusters() -> None:
    job = {
        "id": "w",
        "kind": "workflow",
        "tasks": [
            {"id": "t1", "work": 10.0, "parallel_fraction": 0.5, "max_procs": 2, "comm_gb": 1.0},
            {"id": "t2", "work": 4.0},
            {"id": "t3", "work": 4.0},
        ],
        "edges": [{"from": "t1", "to": "t2", "gb": 0.5}, {"from": "t1", "to": "t3", "gb": 0.5}],
    }
    fast = cluster("a", 2, 2.0) | {"intra_gbps": 8.0, "link_latency_s": 0.25}
    slow = cluster("b", 2, 1.0, power=0.5) | {"intra_gbps": 1.0}
    found = spans(planned("conservative", case([fast, slow], [job])))
    # 10 * (1/2 + 1/4) + 8 * 1 / (2 * 8), then both children on the same cluster
    assert found == {"w.t1": (0, 8), "w.t2": (8, 12), "w.t3": (8, 12)}
    # with one node only, the second child is better off waiting than moving:
    # moving costs 8 * 0.5 / 1 + 0.25 and half the power
    alone = cluster("a", 1, 2.0) | {"intra_gbps": 8.0, "link_latency_s": 0.25}
    found = spans(planned("conservative", case([alone, slow], [job])))
    assert found == {"w.t1": (0, 11), "w.t2": (11, 15), "w.t3": (15, 19)}


def test_zero_work_tasks_keep_their_order() -> None:
    tasks = [{"id": f"t{n}", "work": 0.0 if n == 1 else 3.0} for n in range(3)]
    edges = [{"from": "t0", "to": "t1"}, {"from": "t1", "to": "t2"}]
    job = {"id": "w", "kind": "workflow", "tasks": tasks, "edges": edges}
    for name in ("fcfs", "fpfs", "easy", "conservative"):
        found = spans(planned(name, case([cluster("a", 1)], [job])))
        assert found["w.t2"] == (pytest.approx(3.0, abs=1e-6), pytest.approx(6.0, abs=1e-6))
