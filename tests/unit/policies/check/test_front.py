"""The front of a bi-criteria plan: each point is a plan of its own."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.model.plan import FrontPoint, Placement, Plan
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from tests.unit.policies.check.check_case import moved, plan, snapshot, with_placement, without


def point(spoilt: Plan, **changes: Any) -> FrontPoint:
    ends = {p.job: 0.0 for p in spoilt.placements}
    for p in spoilt.placements:
        ends[p.job] = max(ends[p.job], p.end)
    base = FrontPoint(
        cmax=max(ends.values()),
        weighted_completion=sum(ends.values()),
        cmax_bound=None,
        weighted_completion_bound=None,
        pareto_gap=0.5,
        placements=spoilt.placements,
    )
    return replace(base, **changes)


def with_front(*points: FrontPoint, **changes: Any) -> Plan:
    return replace(plan(), **{"front": points, "chosen": 0, "pareto_gap": 0.5, **changes})


# Ends later, and so weighs more: as the second point of a front it is dominated.
LATER = moved("late", 320.0)
# Ends later with less weight: "late" waits, and the rest is as before but for "after".
CHEAP = with_placement("res", start=0.0, end=10.0)


def test_a_front_is_checked_point_by_point() -> None:
    first = point(plan(), cmax_bound=300.0, weighted_completion_bound=500.0)
    cheaper = replace(
        CHEAP,
        placements=tuple(
            replace(p, start=p.start + 1, end=p.end + 1) if p.job == "heavy" else p
            for p in CHEAP.placements
        ),
    )
    assert check(snapshot(), with_front(first, point(cheaper, pareto_gap=0.7))).violations == ()


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        (with_front(point(plan(), cmax=321.0)), "front[0].cmax: 321, the placements give 320"),
        (
            with_front(point(plan(), weighted_completion=1.0)),
            "front[0].weighted_completion: 1, the placements give 1208.65",
        ),
        (with_front(point(plan(), cmax_bound=321.0)), "front[0].cmax_bound: 321 is above 320"),
        (
            with_front(point(plan(), weighted_completion_bound=1300.0)),
            "front[0].weighted_completion_bound: 1300 is above 1208.65",
        ),
        (with_front(point(plan()), chosen=None), "chosen: is missing, and there is a front"),
        (with_front(point(plan()), chosen=1), "chosen: 1 is not an index into front"),
        (
            with_front(point(LATER)),
            "chosen: the placements of front[0] are not the plan's",
        ),
        (
            with_front(point(plan()), pareto_gap=0.4),
            "pareto_gap: 0.4, the smallest of the front is 0.5",
        ),
        (
            with_front(point(plan()), pareto_gap=None),
            "pareto_gap: None, the smallest of the front is 0.5",
        ),
        (with_front(point(plan()), point(CHEAP)), "front[1].cmax: 320 does not rise"),
        (
            with_front(point(plan()), point(LATER)),
            "front[1].weighted_completion: 1228.65 does not fall",
        ),
        (
            with_front(point(without("late")), chosen=0),
            "front[0]: job late: is neither placed nor deferred",
        ),
        (
            with_front(point(with_placement("late", end=309.0))),
            "front[0]: job late: runs for 9 s, the cost model says 10 s",
        ),
        (
            with_front(point(moved("late", 10.0))),
            "front[0]: job late: starts at 10 s, before its earliest 300 s",
        ),
        (
            with_front(point(with_placement("late", nodes={"x": 1}))),
            "front[0]: job late: there is no node x",
        ),
    ],
)
def test_a_spoilt_front_is_named(spoilt: Plan, expected: str) -> None:
    assert expected in check(snapshot(), spoilt).violations


def test_points_of_a_front_carry_their_own_index() -> None:
    late = with_placement("late", end=309.0)
    found = check(snapshot(), with_front(point(plan()), point(late), point(late))).violations
    told = [line for line in found if "the cost model" in line]
    assert [line.split(":")[0] for line in told] == ["front[1]", "front[2]"]


def test_the_order_of_placements_makes_no_other_plan() -> None:
    base = plan()
    # two at once on the two slots of one node: alike in all but their names
    beside = Placement(job="twin", start=300.0, end=310.0, nodes={"a2": 1})
    other = replace(beside, job="late")
    rest = tuple(p for p in base.placements if p.job != "late")
    there = replace(base, placements=(*rest, beside, other))
    twin = replace(next(job for job in snapshot().queue if job.id == "late"), id="twin")
    both = replace(snapshot(), queue=(*snapshot().queue, twin))
    turned = point(there, placements=(other, beside, *reversed(rest)))
    front = replace(there, front=(turned,), chosen=0, pareto_gap=0.5)
    assert [line for line in check(both, front).violations if "chosen" in line] == []
    moved_on = replace(turned, placements=(replace(other, start=301.0), *turned.placements[1:]))
    named = check(both, replace(front, front=(moved_on,))).violations
    assert "chosen: the placements of front[0] are not the plan's" in named
