"""Links, features, memory, reservations and nodes that are away, worked out by hand."""

from typing import Any

import pytest

from coalloc.model.snapshot import Snapshot
from coalloc.model.split import low_side, split
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

EVERY = ("fcfs", "fpfs", "easy", "conservative", "auto")


def pair(link: float | None, one: int = 4, two: int = 4) -> list[dict[str, Any]]:
    return [cluster("a", one, link), cluster("b", two, link)]


@pytest.mark.parametrize("name", EVERY)
def test_split_within_the_links(name: str) -> None:
    # 0.05 * 4 * 2 / 5 on each link
    plan = planned(name, case(pair(0.08), [rigid(1, 6, 10.0, proc_gbps=0.05)]))
    assert inside(plan, "1") == {"a": 4, "b": 2}
    tight = planned(name, case(pair(0.0799), [rigid(1, 6, 10.0, proc_gbps=0.05)]))
    assert reasons(tight) == {"1": "infeasible"}
    assert tight.deferred[0].detail == "needs 6 processes; the links cannot carry any split of them"


def test_uneven_split_where_the_even_one_is_too_much() -> None:
    # 5 + 1 loads 0.05 * 5 * 1 / 5, 3 + 3 would load 0.09
    plan = planned("fcfs", case(pair(0.05, 5, 5), [rigid(1, 6, 10.0, proc_gbps=0.05)]))
    assert inside(plan, "1") == {"a": 5, "b": 1}


def test_three_clusters_where_two_do_not_carry_it() -> None:
    three = [cluster("a", 4, 10.0), cluster("b", 4, 0.04), cluster("c", 4, 0.04)]
    # b and c admit one process each: 0.04 * 1 * 5 / 5; the lead may sit on a
    plan = planned("fcfs", case(three, [rigid(1, 6, 10.0, proc_gbps=0.04)]))
    assert inside(plan, "1") == {"a": 4, "b": 1, "c": 1}


def test_loads_that_add_up_exactly_share_a_link() -> None:
    # 0.1 + 0.2 is more than 0.3 in floating point
    names = [
        {"name": f"{c}{n}", "features": [f]} for c in "ab" for n, f in enumerate(("x", "y"), 1)
    ]
    clusters = [
        {"name": c, "link_gbps": 0.3, "nodes": [n for n in names if n["name"][0] == c]}
        for c in "ab"
    ]
    queue = [
        rigid(1, 2, 10.0, proc_gbps=0.1, features=["x"]),
        rigid(2, 2, 10.0, proc_gbps=0.2, features=["y"]),
    ]
    for name in EVERY:
        assert spans(planned(name, case(clusters, queue))) == {"1": (0, 10), "2": (0, 10)}
    queue[1]["proc_gbps"] = 0.2000001
    assert spans(planned("fcfs", case(clusters, queue)))["2"] == (10, 20)


def test_running_load_counts_until_its_end() -> None:
    running = [
        {"id": "r", "nodes": {}, "start": -5.0, "end": 9.0, "link_gbps": {"b": 0.05}},
    ]
    snapshot = case(pair(0.08), [rigid(1, 6, 10.0, proc_gbps=0.05)], running, overrun_s=0.0)
    for name in EVERY:
        assert spans(planned(name, snapshot)) == {"1": (9, 19)}
    # without a number of its own it is expected to go on for the margin
    assert spans(planned("fcfs", case(pair(0.08), list(_queue(snapshot)), running)))["1"][0] == 60


def _queue(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [rigid(job.id, 6, 10.0, proc_gbps=0.05) for job in snapshot.queue]


@pytest.mark.parametrize(
    ("rule", "start", "parts"),
    [("sooner", 0.0, {"a": 1, "b": 1}), ("needed", 9.0, {"a": 2}), ("forbidden", 9.0, {"a": 2})],
)
def test_rules_of_coallocation(rule: str, start: float, parts: dict[str, int]) -> None:
    running = [{"id": "r", "nodes": {"a1": 1, "b1": 1}, "start": -5.0, "end": 9.0}]
    snapshot = case(pair(None, 2, 2), [rigid(1, 2, 5.0)], running, overrun_s=0.0)
    plan = planned("fcfs", snapshot, coallocation=rule)
    assert spans(plan)["1"][0] == start
    assert inside(plan, "1") == parts


def test_needed_splits_what_no_cluster_holds() -> None:
    snapshot = case(pair(None, 2, 2), [rigid(1, 3, 5.0)])
    assert spans(planned("fcfs", snapshot, coallocation="needed")) == {"1": (0, 5)}
    forbidden = planned("fcfs", snapshot, coallocation="forbidden")
    assert forbidden.deferred[0].detail == "needs 3 processes on one cluster; the largest takes 2"


def test_features_and_clusters() -> None:
    clusters: list[dict[str, Any]] = [
        {"name": "a", "nodes": [{"name": "a1"}, {"name": "a2", "features": ["gpu", "fast"]}]},
        {"name": "b", "nodes": [{"name": "b1", "features": ["gpu"]}]},
    ]
    queue = [
        rigid(1, 1, 5.0, features=["gpu"]),
        rigid(2, 1, 5.0, features=["fast"]),
        rigid(3, 1, 5.0, clusters=["b"]),
        rigid(4, 2, 5.0, features=["fast"]),
    ]
    plan = planned("conservative", case(clusters, queue))
    assert [list(nodes(plan, job)) for job in "123"] == [["a2"], ["a2"], ["b1"]]
    assert reasons(plan) == {"4": "infeasible"}
    assert plan.deferred[0].detail == (
        "needs 2 processes; 1 fit on nodes with its clusters, features and memory"
    )


def test_memory_is_charged_on_the_node() -> None:
    clusters = [cluster("a", 2, slots=4, memory_mb=100)]
    queue = [
        rigid(1, 4, 10.0, memory_mb_per_proc=35),  # two on each node
        rigid(2, 3, 10.0, memory_mb_per_proc=20),  # 30 MiB are left on each node
        rigid(3, 1, 10.0),  # takes a slot's share
    ]
    plan = planned("conservative", case(clusters, queue))
    assert nodes(plan, "1") == {"a1": 2, "a2": 2}
    assert spans(plan)["2"] == (10, 20)
    assert spans(plan)["3"] == (0, 10)


def test_memory_that_fits_exactly() -> None:
    # 3 slots and 10 MiB: two processes of 5, though each is one slot and a half
    one = case([cluster("a", 1, slots=3, memory_mb=10)], [rigid(1, 2, 5.0, memory_mb_per_proc=5)])
    assert nodes(planned("fcfs", one), "1") == {"a1": 2}
    mixed = [rigid(n, 1, 5.0, memory_mb_per_proc=mb) for n, mb in enumerate((40, 30, 30, 1), 1)]
    plan = planned("fcfs", case([cluster("a", 1, slots=4, memory_mb=100)], mixed))
    assert spans(plan) == {"1": (0, 5), "2": (0, 5), "3": (0, 5), "4": (5, 10)}


def test_reservation_keeps_others_out() -> None:
    hold = [{"id": "v", "nodes": ["a[1-2]"], "start": 10.0, "end": 20.0, "jobs": ["in"]}]
    queue = [rigid("long", 2, 11.0), rigid("in", 2, 11.0), rigid("short", 2, 10.0)]
    found = spans(planned("conservative", case([cluster("a", 2)], queue, None, hold)))
    assert found == {"long": (20, 31), "in": (0, 11), "short": (31, 41)}
    # half of the nodes are reserved: the rest takes what is too long for the others
    found = spans(planned("fpfs", case([cluster("a")], queue, None, hold)))
    assert found == {"long": (0, 11), "in": (0, 11), "short": (11, 21)}


def test_event_waits_for_the_end_of_a_reservation() -> None:
    # two powers, so that the reserved class is not the first of its cluster
    nodes = [{"name": "a1", "power": 0.6}, {"name": "a2", "power": 0.5, "slots": 4}]
    hold = [{"id": "v", "nodes": ["a2"], "start": -10.0, "end": 21.0}]
    snapshot = case([{"name": "a", "nodes": nodes}], [rigid(1, 5, 1.0)], None, hold)
    for name in EVERY:
        assert spans(planned(name, snapshot)) == {"1": (21, 23)}


def test_nodes_that_are_away() -> None:
    clusters: list[dict[str, Any]] = [
        {"name": "a", "nodes": [{"name": "a1"}, {"name": "a2", "state": "draining"}]},
        {"name": "b", "stale": True, "nodes": [{"name": "b1"}, {"name": "b2"}]},
    ]
    plan = planned("fcfs", case(clusters, [rigid(1, 1, 5.0), rigid(2, 3, 5.0), rigid(3, 5, 5.0)]))
    assert nodes(plan, "1") == {"a1": 1}
    assert reasons(plan) == {"2": "insufficient", "3": "infeasible"}
    assert plan.deferred[0].detail == "needs 3 processes; 1 could run with what is up"
    assert plan.deferred[1].detail == "needs 5 processes; 4 slots exist"


def test_free_at_and_running_do_not_count_twice() -> None:
    running = [{"id": "r", "nodes": {"a1": 1}, "start": -5.0, "end": 30.0}]
    clusters = [cluster("a", 1, slots=2, free_at=10.0)]
    snapshot = case(clusters, [rigid(1, 1, 5.0), rigid(2, 1, 50.0)], running, overrun_s=0.0)
    assert spans(planned("conservative", snapshot)) == {"1": (10, 15), "2": (15, 65)}


def test_power_step_joins_classes_and_plans_with_the_lower_power() -> None:
    clusters = [
        {"name": "a", "nodes": [{"name": f"a{n}", "power": 0.5 + n / 100} for n in range(4)]}
    ]
    plan = planned("fcfs", case(clusters, [rigid(1, 4, 10.0)]), power_step=0.05)
    assert plan.stats["classes"] == 1
    assert spans(plan) == {"1": (0, 20)}
    exact = planned("fcfs", case(clusters, [rigid(1, 1, 10.0)]))
    assert exact.stats["classes"] == 4
    assert spans(exact)["1"][1] == pytest.approx(10 / 0.53)


def test_nodes_are_packed_and_named_in_order() -> None:
    clusters = [cluster("a", 3, slots=4), cluster("b", 2, slots=4)]
    running = [{"id": "r", "nodes": {"a1": 2}, "start": -5.0, "end": 99.0}]
    plan = planned("conservative", case(clusters, [rigid(1, 9, 5.0), rigid(2, 8, 5.0)], running))
    assert nodes(plan, "1") == {"a1": 1, "a2": 4, "a3": 4}
    assert list(nodes(plan, "2").items()) == [("b1", 4), ("b2", 4)]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "auto"])
def test_of_equal_clusters_the_one_with_the_least_room_is_taken(policy: str) -> None:
    """In the first cluster the small job would leave none of them whole for the large one."""
    clusters = [cluster("large", 4), cluster("busy", 4), cluster("small", 2)]
    running = [{"id": "r", "nodes": {"busy1": 1}, "start": -5.0, "end": 99.0}]
    queue = [rigid(1, 1, 5.0), rigid(2, 3, 5.0), rigid(3, 4, 5.0)]
    plan = planned(policy, case(clusters, queue, running), coallocation="forbidden")
    assert {job: start for job, (start, _) in spans(plan).items()} == {"1": 0, "2": 0, "3": 0}
    assert set(nodes(plan, "1")) == {"small1"}
    assert set(nodes(plan, "2")) == {"busy2", "busy3", "busy4"}


@pytest.mark.parametrize("procs", [2, 3, 7, 8, 33])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999, 1.0, 2.0])
def test_low_side_is_the_largest_admitted_count(procs: int, share: float) -> None:
    most = 0.05 * (procs // 2) * (procs - procs // 2) / (procs - 1)
    residual = share * most

    def admitted(t: int) -> bool:
        return 0.05 * t * (procs - t) / (procs - 1) <= residual + 1e-12

    expected = next((t - 1 for t in range(1, procs) if not admitted(t)), procs)
    assert low_side(procs, 0.05, residual, 1e-12) == expected


def test_split_prefers_few_clusters_and_little_load() -> None:
    assert split(4, [2, 4, 4], [4, 4, 4]) == [0, 4, 0]
    assert split(6, [2, 3, 5], [6, 6, 6]) == [0, 1, 5]
    assert split(6, [3, 3, 5], [1, 1, 1]) == [1, 0, 5]
    assert split(6, [3, 3, 3], [2, 2, 2]) == [2, 2, 2]
    assert split(6, [3, 3, 3], [1, 2, 2]) is None
