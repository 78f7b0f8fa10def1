"""Spoil one thing about one placement of a correct plan: the checker says exactly that."""

from __future__ import annotations

from math import inf, nan

import pytest

from coalloc.model.plan import Deferred, Reason
from coalloc.model.platform import NodeState
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from tests.unit.policies.check.check_case import (
    Row,
    deferred,
    moved,
    placed_twice,
    plan,
    spoilt,
    valued,
    with_job,
    with_nodes,
    with_options,
    with_placement,
    without,
)

ANSWERS = [
    spoilt("missing", without("late"), "job late: is neither placed nor deferred"),
    spoilt("task missing", without("w", "t2"), "job w task t2: is neither placed nor deferred"),
    spoilt(
        "unknown job",
        with_placement("late", job="nobody"),
        "job nobody: is not in the queue",
        "job late: is neither placed nor deferred",
    ),
    spoilt(
        "unknown task",
        with_placement("w", "t2", task="t9"),
        "job w task t9: is not in the queue",
        "job w task t2: is neither placed nor deferred",
    ),
    spoilt(
        "task of a rigid job",
        with_placement("late", task="t1"),
        "job late task t1: is not in the queue",
        "job late: is neither placed nor deferred",
    ),
    spoilt("twice", placed_twice(), "job m: is placed twice"),
    spoilt(
        "placed and deferred",
        deferred(Deferred(job="late", reason=Reason.NOT_SELECTED)),
        "job late: is both placed and deferred",
    ),
    spoilt(
        "deferred twice",
        deferred(Deferred(job="held", reason=Reason.HELD)),
        "job held: is deferred twice",
    ),
    spoilt(
        "deferred, unknown",
        deferred(Deferred(job="nobody", reason=Reason.HELD)),
        "job nobody: is deferred, yet not in the queue",
    ),
    spoilt(
        "a workflow deferred whole",
        valued(
            replace(
                plan(),
                placements=tuple(p for p in plan().placements if p.job != "w"),
                deferred=(*plan().deferred, Deferred(job="w", reason=Reason.UNSUPPORTED)),
            )
        ),
        "job w: is deferred, yet not in the queue",
        "job w task t1: is neither placed nor deferred",
        "job w task t2: is neither placed nor deferred",
    ),
]

UNREADABLE = [
    spoilt("no node", with_placement("late", nodes={}), "job late: has no node"),
    spoilt(
        "unknown node", with_placement("late", nodes={"x1": 1}), "job late: there is no node x1"
    ),
    spoilt(
        "no process",
        with_placement("late", nodes={"a1": 0}),
        "job late: has 0 processes on node a1",
    ),
    spoilt(
        "no process on the second node",
        with_placement("late", nodes={"a1": 1, "b1": 0}),
        "job late: has 0 processes on node b1",
    ),
    spoilt(
        "start is no number",
        with_placement("late", start=nan),
        "job late: start nan is not a finite number",
    ),
    spoilt(
        "end is no number",
        with_placement("late", end=inf),
        "job late: end inf is not a finite number",
    ),
    spoilt(
        "sc is no number", with_placement("late", sc=nan), "job late: sc nan is not a finite number"
    ),
    spoilt(
        "ends before it starts",
        with_placement("late", end=299.0),
        "job late: ends at 299 s, before its start 300 s",
    ),
]

WHERE = [
    spoilt(
        "a process too few",
        with_placement("heavy", nodes={"b2": 1}),
        "job heavy: has 1 processes, needs 2",
    ),
    spoilt(
        "a process too many",
        with_placement("late", nodes={"a1": 1, "a2": 1}),
        "job late: has 2 processes, needs 1",
    ),
    spoilt(
        "a count that is not offered",
        with_placement("m", end=60.0, nodes={"a3": 2, "a4": 1}),
        "job m: has 3 processes, a count its table does not list",
    ),
    Row(
        "below the range",
        with_job("m", min_procs=4),
        plan(),
        ("job m: has 2 processes, needs 4",),
    ),
    Row(
        "above the range",
        with_job("m", max_procs=1),
        plan(),
        ("job m: has 2 processes, needs 1",),
    ),
    spoilt(
        "a task above its range",
        with_placement("w", "t1", nodes={"b3": 1, "b2": 1}, start=150.0, end=170.0),
        "job w task t1: has 2 processes, needs 1",
        "job w task t2: starts at 88.25 s, task t1 allows 178.25 s",
    ),
    spoilt(
        "a divisible job without chunks",
        valued(
            replace(
                plan(),
                placements=(
                    *plan().placements,
                    replace(plan().placements[5], job="div", start=0.0, end=10.0),
                ),
                deferred=plan().deferred[:2],
            )
        ),
        "job div: a piece of a divisible job has a number of chunks",
    ),
    spoilt(
        "a draining node",
        with_placement("late", nodes={"a5": 1}),
        "job late: node a5 is down, draining or of a stale cluster",
    ),
    spoilt(
        "a node that is down",
        with_placement("res", nodes={"b5": 1}, end=105.0),
        "job res: node b5 is down, draining or of a stale cluster",
    ),
    spoilt(
        "a stale cluster",
        with_placement("late", nodes={"g1": 1}),
        "job late: node g1 is down, draining or of a stale cluster",
    ),
    spoilt(
        "a feature lacks",
        with_placement("m", nodes={"a2": 2}, start=150.0, end=210.0),
        "job m: node a2 lacks gpu",
    ),
    Row(
        "one of two features lacks",
        with_job("late", features=("gpu", "fast")),
        with_placement("late", nodes={"a3": 1}),
        ("job late: node a3 lacks gpu, fast",),
    ),
    spoilt(
        "a cluster that is not allowed",
        with_placement("after", nodes={"b1": 1}, end=170.0),
        "job after: may not run on cluster beta",
    ),
    spoilt(
        "moldable on two clusters",
        with_placement("m", nodes={"a3": 1, "b4": 1}, end=60.0 / 0.5),
        "job m: is on 2 clusters without proc_gbps",
        "job m: node b4 lacks gpu",
        "node b4: 2 processes on 1 slots at 100 s (job m, job res)",
        "job m: node b4 is reserved (kept) from 100 s",
    ),
    spoilt(
        "co-allocation forbidden",
        with_options(coallocation="forbidden"),
        "job r: is on 2 clusters, and co-allocation is forbidden",
        "job heavy: is on 2 clusters, and co-allocation is forbidden",
    ),
    Row("held", with_job("late", held=True), plan(), ("job late: is held, yet placed",)),
]

WHEN = [
    spoilt(
        "before now",
        moved("m", -5.0),
        "job m: starts at -5 s, before the snapshot's time 0 s",
    ),
    spoilt(
        "before its earliest",
        moved("late", 299.0),
        "job late: starts at 299 s, before its earliest 300 s",
    ),
    spoilt(
        "before the node is free",
        with_placement("res", start=39.0, end=44.0, nodes={"b6": 1}),
        "job res: starts at 39 s, before node b6 is free at 40 s",
    ),
    spoilt(
        "before a queued job ends",
        moved("after", 149.0),
        "job after: starts at 149 s, before job r ends at 150 s",
    ),
    Row(
        "before a running job ends",
        with_job("late", after=("run",), earliest=0.0, memory_mb_per_proc=0),
        moved("late", 59.0, nodes={"a4": 1}),
        ("job late: starts at 59 s, before job run ends at 60 s",),
    ),
    Row(
        "after a deferred job",
        with_job("late", after=("held",)),
        plan(),
        ("job late: starts at 300 s, yet job held before it has no end",),
    ),
    Row(
        "after itself",
        with_job("late", after=("late",)),
        plan(),
        ("job late: starts at 300 s, before job late ends at 310 s",),
    ),
    Row(
        "after a workflow with a deferred task",
        with_job("late", after=("w",)),
        valued(
            replace(
                without("w", "t2"),
                deferred=(
                    *plan().deferred,
                    Deferred(job="w", task="t2", reason=Reason.OUT_OF_TIME),
                ),
            )
        ),
        ("job late: starts at 300 s, yet job w before it has no end",),
    ),
    spoilt(
        "a child before its data",
        moved("w", 88.0, "t2"),
        "job w task t2: starts at 88 s, task t1 allows 88.25 s",
    ),
    spoilt(
        "a child without its parent",
        valued(
            replace(
                without("w", "t1"),
                deferred=(
                    *plan().deferred,
                    Deferred(job="w", task="t1", reason=Reason.OUT_OF_TIME),
                ),
            )
        ),
        "job w task t2: starts at 88.25 s, yet task t1 before it has no end",
    ),
    spoilt(
        "too short",
        with_placement("late", end=309.0),
        "job late: runs for 9 s, the cost model says 10 s",
    ),
    spoilt(
        "too long by 2 microseconds",
        with_placement("m", end=60.000002),
        "job m: runs for 60.000002 s, the cost model says 60 s",
    ),
    Row(
        "longer than its time limit",
        with_job("m", time_limit=45.0),
        plan(),
        ("job m: runs for 60 s, its time limit ends it after 45 s",),
    ),
    Row("killed in time", with_job("m", time_limit=45.0), with_placement("m", end=45.0), ()),
    spoilt(
        "a task's time",
        with_placement("w", "t2", end=98.25),
        "job w task t2: runs for 10 s, the cost model says 10.4 s",
    ),
    Row(
        "the weakest node counts",
        with_nodes("b2", power=0.25),
        plan(),
        ("job r: runs for 150 s, the cost model says 250 s",),
    ),
    spoilt(
        "powers in steps",
        with_options(power_step=0.4),
        # 0.5 becomes 0.4 and 1 becomes 0.8
        "job r: runs for 150 s, the cost model says 175 s",
        "job m: runs for 60 s, the cost model says 75 s",
        "job w task t1: runs for 20 s, the cost model says 25 s",
        "job w task t2: runs for 10.4 s, the cost model says 12.9 s",
        "job after: runs for 10 s, the cost model says 12.5 s",
        "job res: runs for 10 s, the cost model says 12.5 s",
        "job late: runs for 10 s, the cost model says 12.5 s",
        "job heavy: runs for 20 s, the cost model says 25 s",
    ),
    spoilt(
        "sc below 1",
        with_placement("m", sc=0.5),
        "job m: sc 0.5 is outside 1..1",
    ),
    spoilt(
        "sc above the threshold",
        replace(
            with_placement("r", sc=1.5, end=175.0, start=0.0), options={"saturation_threshold": 1.2}
        ),
        "job r: sc 1.5 is outside 1..1.2",
        "job after: starts at 150 s, before job r ends at 175 s",
    ),
]

ROWS = [*ANSWERS, *UNREADABLE, *WHERE, *WHEN]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_corruption_is_named(row: Row) -> None:
    assert check(row.snapshot, row.plan).violations == row.expected


def test_every_corruption_has_its_own_name() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("state", [NodeState.DRAINING, NodeState.DOWN])
def test_a_node_that_is_not_up_gets_nothing(state: NodeState) -> None:
    found = check(with_nodes("a3", state=state), plan()).violations
    assert found == ("job m: node a3 is down, draining or of a stale cluster",)
