"""Pieces of a divisible job: what the checker says of each that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.plan import Placement, Reason
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from tests.unit.policies.check.check_case import plan, snapshot, valued, with_job

FIRST = Placement(job="div", start=200.0, end=220.0, nodes={"a2": 2, "a3": 2}, chunks=7)
"""Seven chunks on four processes: two rounds of 10 s, on nodes of power 1."""
SECOND = Placement(job="div", start=210.0, end=270.0, nodes={"b2": 1}, chunks=3)
"""Three on a node of power 0.5, beside the first."""


def violations(*pieces: Placement) -> tuple[str, ...]:
    one = plan()
    left = tuple(entry for entry in one.deferred if entry.job != "div")
    told = valued(replace(one, placements=(*one.placements, *pieces), deferred=left))
    return check(snapshot(), told).violations


def spoilt(**changes: Any) -> tuple[str, ...]:
    return violations(FIRST, replace(SECOND, **changes))


def test_pieces_that_overlap_in_time_are_allowed() -> None:
    assert violations(FIRST, SECOND) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"chunks": 2, "end": 250.0}, "job div: its pieces have 9 chunks, it has 10"),
        ({"chunks": 4, "end": 290.0}, "job div: its pieces have 11 chunks, it has 10"),
        ({"end": 230.0}, "job div: runs for 20 s, the cost model says 60 s"),
        ({"chunks": None}, "job div: a piece of a divisible job has a number of chunks"),
        ({"task": "t1"}, "job div task t1: is not in the queue"),
        ({"start": 140.0, "end": 200.0}, "node b2: 2 processes on 1 slots at 140 s"),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], said: str) -> None:
    assert any(line.startswith(said) for line in spoilt(**changes))


def test_no_more_processes_than_chunks() -> None:
    wide = replace(SECOND, nodes={"b1": 1, "b2": 1}, chunks=1, end=230.0)
    assert "job div: has 2 processes for 1 chunks" in violations(FIRST, wide)


def test_chunks_are_for_divisible_jobs() -> None:
    one = plan()
    placements = tuple(replace(p, chunks=1) if p.job == "late" else p for p in one.placements)
    found = check(snapshot(), replace(one, placements=placements)).violations
    assert "job late: has chunks, and is not divisible" in found


def test_one_that_any_node_could_work_on_is_not_infeasible() -> None:
    one = plan()
    left = [
        replace(entry, reason=Reason.INFEASIBLE) if entry.job == "div" else entry
        for entry in one.deferred
    ]
    found = check(snapshot(), replace(one, deferred=tuple(left))).violations
    assert found == ("job div: is deferred as infeasible, and fits an empty cluster",)
    nowhere = with_job("div", features=("none",))
    assert check(nowhere, replace(one, deferred=tuple(left))).violations == ()


def test_a_plan_with_pieces_reads_back_equal() -> None:
    one = replace(plan(), placements=(FIRST, SECOND))
    assert read_plan(write_plan(one)) == one
