"""Spoil what placements take together, or what the plan says of itself."""

from __future__ import annotations

from math import inf, nan

import pytest

from coalloc.model.plan import Deferred, Reason, Status
from coalloc.model.snapshot import Reservation
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from tests.unit.policies.check.check_case import (
    Row,
    moved,
    plan,
    running_also,
    snapshot,
    spoilt,
    valued,
    with_cluster,
    with_job,
    with_objective,
    with_options,
    with_placement,
    with_reason,
)

TAKEN = [
    spoilt(
        "two on a slot",
        moved("w", 149.0, "t1", nodes={"b1": 1}),
        "job w task t2: starts at 88.25 s, task t1 allows 177.25 s",
        "node b1: 2 processes on 1 slots at 149 s (job r, job w task t1)",
    ),
    spoilt(
        "more processes than slots",
        with_placement("heavy", nodes={"b1": 2}, end=320.0),
        "node b1: 2 processes on 1 slots at 300 s (job heavy)",
    ),
    Row(
        "on a slot of running work",
        running_also(id="more", nodes={"a3": 1}, start=-1.0, end=10.0),
        plan(),
        ("node a3: 3 processes on 2 slots at 0 s (job m, running more)",),
    ),
    spoilt(
        "on a slot of running work past its end",
        moved("w", 59.0, "t1"),
        "node b3: 2 processes on 1 slots at 59 s (job w task t1, running over)",
    ),
    Row(
        "a longer overrun",
        snapshot(overrun_s=61.0),
        plan(),
        ("node b3: 2 processes on 1 slots at 60 s (job w task t1, running over)",),
    ),
    spoilt(
        "memory of two jobs",
        moved("after", 305.0),
        "node a1: 3 processes on 2 slots at 305 s (job after, job late, job heavy)",
        "node a1: 1100 MiB of 1000 MiB at 305 s (job after, job late, job heavy)",
    ),
    Row(
        "memory of one job",
        with_job("late", memory_mb_per_proc=1001),
        plan(),
        ("node a1: 1001 MiB of 1000 MiB at 300 s (job late, job heavy)",),
    ),
    Row(
        "memory beside running work",
        with_job("late", earliest=0.0, memory_mb_per_proc=501),
        moved("late", 40.0),
        ("node a1: 1001 MiB of 1000 MiB at 40 s (job late, running run)",),
    ),
    spoilt(
        "a reserved node",
        with_placement("after", start=190.0, end=210.0, nodes={"b4": 1}),
        "job after: may not run on cluster beta",
        "job after: node b4 is reserved (kept) from 100 s",
    ),
    Row(
        "a reservation that begins meanwhile",
        snapshot(reservations=(Reservation(id="new", nodes=("a3", "a4"), start=59.0, end=61.0),)),
        plan(),
        ("job m: node a3 is reserved (new) from 59 s",),
    ),
    Row(
        "a link too narrow",
        with_cluster("alpha", link_gbps=0.49),
        plan(),
        (
            # 80 + 8 * 0.5 / 0.49 + 0.25
            "job w task t2: starts at 88.25 s, task t1 allows 88.4132653061 s",
            "link alpha: 0.5 Gbit/s on 0.49 Gbit/s at 0 s (job r)",
        ),
    ),
    spoilt(
        "two jobs on a link",
        moved("heavy", 100.0, nodes={"a1": 1, "b3": 1}),
        "link beta: 0.6 Gbit/s on 0.5 Gbit/s at 100 s (job r, job heavy)",
    ),
    Row(
        "running traffic",
        running_also(id="busy", nodes={}, start=-1.0, end=10.0, link_gbps={"beta": 0.01}),
        plan(),
        ("link beta: 0.51 Gbit/s on 0.5 Gbit/s at 0 s (job r)",),
    ),
    Row(
        "a link of capacity 0",
        with_cluster("alpha", link_gbps=0.0, link_latency_s=0.0),
        valued(
            replace(
                plan(),
                placements=tuple(p for p in plan().placements if p.job != "w"),
                deferred=(
                    *plan().deferred,
                    Deferred(job="w", task="t1", reason=Reason.INSUFFICIENT),
                    Deferred(job="w", task="t2", reason=Reason.INSUFFICIENT),
                ),
            )
        ),
        ("link alpha: 0.5 Gbit/s on 0 Gbit/s at 0 s (job r)",),
    ),
    Row(
        "more than sc allows",
        with_cluster("beta", link_gbps=0.4),
        replace(with_placement("r", sc=1.2, end=160.0), options={"saturation_threshold": 2.0}),
        (
            "job after: starts at 150 s, before job r ends at 160 s",
            "job w task t2: starts at 88.25 s, task t1 allows 90.25 s",
            "link beta: 0.5 Gbit/s on 0.4 Gbit/s at sc 1.2 at 0 s (job r)",
        ),
    ),
]

VALUE = [
    spoilt(
        "the value",
        with_objective(value=319.0),
        "objective.value: 319, the placements give 320",
    ),
    spoilt(
        "another objective's value",
        with_objective(name="weighted_completion"),
        "objective.value: 320, the placements give 1208.65",
    ),
    spoilt(
        "total execution",
        with_objective(name="total_execution"),
        "objective.value: 320, the placements give 290.4",
    ),
    spoilt(
        "no objective",
        with_objective(name="beauty"),
        "objective.name: 'beauty' is not one of makespan, weighted_completion, total_execution",
    ),
    spoilt(
        "a bound above the value",
        with_objective(bound=320.1),
        "objective.bound: 320.1 is above the value 320",
    ),
    spoilt(
        "a bound that is no number",
        with_objective(bound=nan),
        "objective.bound: nan is above the value 320",
    ),
    spoilt(
        "the count of deferred jobs",
        with_objective(deferred=2),
        "objective.deferred: 2, 3 jobs are deferred",
    ),
    spoilt(
        "optimal without a bound",
        replace(plan(), status=Status.OPTIMAL),
        "status: optimal without a bound",
    ),
    spoilt(
        "optimal with a gap",
        replace(with_objective(bound=319.999), status=Status.OPTIMAL),
        "status: optimal, yet bound 319.999 is not the value 320",
    ),
    spoilt(
        "feasible without a bound",
        replace(plan(), status=Status.FEASIBLE),
        "status: feasible without a bound",
    ),
    spoilt(
        "infeasible with placements",
        replace(plan(), status=Status.INFEASIBLE),
        "status: infeasible, yet 8 placements",
    ),
    spoilt(
        "held without being held",
        with_reason("huge", Reason.HELD),
        "job huge: is deferred as held, and is not",
    ),
    spoilt(
        "infeasible, yet it fits",
        with_reason("held", Reason.INFEASIBLE),
        "job held: is deferred as infeasible, and fits an empty cluster",
    ),
    spoilt(
        "a threshold that is no number",
        with_options(saturation_threshold="high"),
        "options.saturation_threshold: 'high' is not a number of at least 1",
    ),
    spoilt(
        "a step that is no number",
        with_options(power_step=-0.1),
        "options.power_step: -0.1 is not a number of at least 0",
    ),
    spoilt(
        "a certificate that nobody knows",
        replace(plan(), certificates=({"kind": "faith"},)),
        "certificates[0].kind: 'faith' cannot be verified",
    ),
]

ROWS = [*TAKEN, *VALUE]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_corruption_is_named(row: Row) -> None:
    assert check(row.snapshot, row.plan).violations == row.expected


def test_every_corruption_has_its_own_name() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_plan_is_correct() -> None:
    assert check(snapshot(), plan()).violations == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [("makespan", 320.0), ("weighted_completion", 1208.65), ("total_execution", 290.4)],
)
def test_a_value_is_right_to_a_few_microseconds(name: str, value: float) -> None:
    for off, wrong in ((0.0, False), (5e-7, False), (-5e-7, False), (1e-3, True), (-1e-3, True)):
        found = check(snapshot(), with_objective(name=name, value=value + off)).violations
        assert [line.split(":")[0] for line in found] == ["objective.value"] * wrong


@pytest.mark.parametrize("changes", [{"end": inf}, {"start": nan}, {"start": -inf}])
def test_what_is_no_time_counts_in_no_value(changes: dict[str, float]) -> None:
    # without "late", of 310 s with a weight of 1
    metrics = check(snapshot(), with_placement("late", **changes)).metrics
    assert metrics["makespan"] == pytest.approx(320.0)
    assert metrics["weighted_completion"] == pytest.approx(1208.65 - 310.0)
    assert metrics["total_execution"] == pytest.approx(280.4)
    assert metrics["placed"] == 7


def test_an_empty_plan_has_values_of_nothing() -> None:
    held = tuple(replace(job, held=True) for job in snapshot().queue)
    units = [(job.id, task) for job in held for task in getattr(job, "tasks", (None,))]
    deferred = tuple(
        Deferred(job=job, task=None if task is None else task.id, reason=Reason.HELD)
        for job, task in units
    )
    none = replace(with_objective(value=0.0, deferred=len(held)), placements=(), deferred=deferred)
    assert check(snapshot(queue=held), none).violations == ()
    for name in ("makespan", "weighted_completion", "total_execution"):
        objective = replace(none.objective, name=name, value=1e-3)
        (line,) = check(snapshot(queue=held), replace(none, objective=objective)).violations
        assert line == "objective.value: 0.001, the placements give 0"
