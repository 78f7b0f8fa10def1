"""What the plan has next on each slot."""

from __future__ import annotations

from coalloc.cli.plan import critical_paths, path_lines
from coalloc.core.base.plan_order import PlanOrder
from coalloc.model.plan import Objective, Placement, Plan, Status

HEAD, SECOND, THIRD = ("1", "a"), ("1", "b"), ("1", "c")


def plan(*rows: tuple[str, float, float, dict[str, int]]) -> Plan:
    return Plan(
        policy="p",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=tuple(
            Placement(job="1", task=task, start=start, end=end, nodes=nodes)
            for task, start, end, nodes in rows
        ),
    )


def plan_order(*rows: tuple[str, float, float, dict[str, int]]) -> PlanOrder:
    return PlanOrder.of(plan(*rows))


def test_on_one_slot_one_comes_after_the_other() -> None:
    one = plan_order(("b", 5.0, 9.0, {"n": 1}), ("a", 0.0, 5.0, {"n": 1}))
    assert list(one.next_on("n")) == [HEAD]
    assert one.is_next(HEAD)
    assert not one.is_next(SECOND)
    assert list(one.behind(HEAD)) == [SECOND]
    one.drop(HEAD)
    assert one.is_next(SECOND)


def test_slots_of_a_node_are_lanes_of_their_own() -> None:
    two = plan_order(
        ("a", 0.0, 5.0, {"n": 1}), ("b", 0.0, 9.0, {"n": 1}), ("c", 5.0, 6.0, {"n": 1})
    )
    assert sorted(two.next_on("n")) == [HEAD, SECOND]
    assert not two.is_next(THIRD)
    two.drop(SECOND)
    assert not two.is_next(THIRD), "c is planned behind a"
    two.drop(HEAD)
    assert two.is_next(THIRD)


def test_lanes_are_the_same_whenever_they_are_looked_at_first() -> None:
    rows = (("a", 0.0, 5.0, {"n": 1}), ("b", 0.0, 9.0, {"n": 1}), ("c", 5.0, 6.0, {"n": 1}))
    early, late = plan_order(*rows), plan_order(*rows)
    assert early.fronts("n") == [HEAD, SECOND]
    for each in (early, late):
        each.drop(HEAD)
    assert late.fronts("n") == early.fronts("n") == [THIRD, SECOND]


def test_a_wide_task_is_next_when_it_is_so_everywhere() -> None:
    wide = plan_order(
        ("a", 0.0, 5.0, {"n": 1}), ("b", 0.0, 2.0, {"m": 2}), ("c", 5.0, 6.0, {"n": 1, "m": 2})
    )
    wide.drop(HEAD)
    assert not wide.is_next(THIRD)
    wide.drop(SECOND)
    assert wide.is_next(THIRD)


def test_what_goes_from_the_middle_keeps_nobody_waiting() -> None:
    row = plan_order(
        ("a", 0.0, 1.0, {"n": 1}), ("b", 1.0, 2.0, {"n": 1}), ("c", 2.0, 3.0, {"n": 1})
    )
    row.drop(SECOND)
    assert list(row.next_on("n")) == [HEAD]
    row.drop(HEAD)
    assert list(row.next_on("n")) == [THIRD]


def test_what_does_not_wait_is_left_out() -> None:
    rest = plan_order(("a", 0.0, 5.0, {"n": 1, "m": 1}), ("b", 5.0, 9.0, {"n": 1}))
    rest.leave_out((), lambda entry: entry == HEAD)
    assert list(rest.next_on("n")) == [SECOND]
    assert rest.is_on("n")
    assert not rest.is_on("m")


def test_what_comes_without_its_nodes_is_not_started_along_the_plan() -> None:
    rest = plan_order(("a", 0.0, 5.0, {}), ("b", 5.0, 9.0, {"n": 1}))
    assert list(rest.placements) == [SECOND]


def test_a_cluster_with_planned_work_is_told_from_one_without() -> None:
    one = plan_order(("a", 0.0, 5.0, {"n": 1}))
    home = {"n": "alpha", "m": "beta"}
    assert one.on_cluster(home, "alpha")
    assert not one.on_cluster(home, "beta")
    one.drop(HEAD)
    assert not one.on_cluster(home, "alpha")


def test_the_critical_path_leads_back_through_the_parents_that_end_last() -> None:
    made = plan(
        ("a", 0.0, 10.0, {"n": 1}),
        ("b", 0.0, 4.0, {"m": 1}),
        ("c", 10.0, 12.0, {"n": 1}),
        ("d", 4.0, 11.0, {"m": 1}),
    )
    edges = {"1": [("a", "c"), ("b", "c"), ("b", "d"), ("gone", "d")]}
    paths = critical_paths(made, edges)
    assert [made.placements[i].task for i in paths["1"]] == ["a", "c"]
    assert path_lines(made, paths) == ["critical path of 1, 0:12: a > c"]
