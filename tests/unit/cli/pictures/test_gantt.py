"""What ``coalloc plan --gantt`` draws, and a plan in one line."""

from __future__ import annotations

import time

from coalloc.cli.pictures.gantt import Picture, picture_of, text_gantt
from coalloc.model.pictures.plans import counts, headline, rows_of
from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.values import replace

PLAN = Plan(
    policy="easy",
    status=Status.FEASIBLE,
    objective=Objective(name="makespan", value=110.0, bound=100.0),
    placements=(
        Placement(job="1", start=0.0, end=50.0, nodes={"a1": 1, "a2": 1}),
        Placement(job="2", start=0.0, end=100.0, nodes={"a3": 2}),
        Placement(job="3", start=50.0, end=100.0, nodes={"a1": 1, "b1": 1}),
        Placement(job="4", task="t<1>", start=60.0, end=80.0, nodes={"a2": 1}),
    ),
)
CLUSTERS = {"a1": "alpha", "a2": "alpha", "a3": "alpha", "b1": "beta"}


def test_lanes_that_look_the_same_are_one_row() -> None:
    rows = rows_of(PLAN, CLUSTERS)
    assert [(r.cluster, r.label) for r in rows] == [
        ("alpha", "alpha:a1"),
        ("alpha", "alpha:a2"),
        ("alpha", "alpha:a3 x2"),
        ("beta", "beta:b1"),
    ]
    assert rows[0].spans == ((0.0, 50.0, 0), (50.0, 100.0, 2))


def test_text_gantt_shows_who_is_where_when() -> None:
    lines = text_gantt(Picture(plan=PLAN), CLUSTERS, columns=11 + 2 + 20)
    assert lines[:5] == [
        "alpha:a1    |AAAAAAAAAACCCCCCCCCC",
        "alpha:a2    |AAAAAAAAAA..DDDD....",
        "alpha:a3 x2 |BBBBBBBBBBBBBBBBBBBB",
        "beta:b1     |..........CCCCCCCCCC",
        "            |0              +1:40",
    ]
    assert "D 4.t<1> +1:00 for 0:20" in "\n".join(lines)


def test_text_gantt_marks_what_shares_a_column() -> None:
    placements = tuple(
        Placement(job=str(i), start=i * 1.0, end=i + 1.0, nodes={"a1": 1}) for i in range(100)
    )
    plan = Plan(
        policy="fcfs",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=100.0),
        placements=placements,
    )
    lines = text_gantt(Picture(plan=plan), {}, columns=24)
    assert lines[0] == "a1 |" + "*" * 20
    assert lines[-1] == "38 more use the same letters again, in this order"


def test_gantt_of_nothing() -> None:
    empty = Plan(
        policy="x", status=Status.HEURISTIC, objective=Objective(name="makespan", value=0.0)
    )
    assert text_gantt(Picture(plan=empty), {}, columns=80) == ["nothing is placed"]


def test_gantt_shows_what_runs_and_where_now_is() -> None:
    running = [
        Placement(job="0", start=-900.0, end=50.0, nodes={"b1": 1}),
        Placement(job="1", start=0.0, end=50.0, nodes={"a1": 1, "a2": 1}),
    ]
    picture = picture_of(PLAN, running, made=0.0, now=10.0)
    # of what began with the plan, only what runs is left
    assert [p.job for p in picture.plan.placements] == ["3", "4", "0", "1"]
    lines = text_gantt(picture, CLUSTERS, columns=8 + 2 + 22)
    assert lines[:4] == [
        "alpha:a1 |..BBBBBBBBBBCCCCCCCCCC",
        "alpha:a2 |..BBBBBBBBBB..DDDD....",
        "beta:b1  |AAAAAAAAAAAACCCCCCCCCC",
        "         |    ^now         +1:30",
    ]
    assert "A 0 runs, 0:40 left" in "\n".join(lines)
    assert "C 3 +0:40 for 0:50" in "\n".join(lines)
    offline = picture_of(PLAN, running[:1], made=0.0, now=0.0)
    assert len(offline.plan.placements) == 5


def test_jobs_are_counted_not_their_pieces() -> None:
    pieces = tuple(
        Placement(job="7", start=i * 5.0, end=i * 5.0 + 5.0, nodes={"a1": 1}, chunks=3)
        for i in range(3)
    )
    plan = Plan(
        policy="x",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=(*PLAN.placements, *pieces),
    )
    assert counts(plan) == "5 jobs placed (7 placements), 0 deferred"
    assert counts(PLAN) == "4 jobs placed, 0 deferred"


def test_headline_has_objective_bound_and_gap() -> None:
    assert headline(PLAN) == "easy, feasible: makespan 110, bound 100, gap 10.00%"


def test_jobs_on_several_clusters_say_so() -> None:
    legend = text_gantt(Picture(plan=PLAN), CLUSTERS, columns=80)
    assert any("3 +0:50 for 0:50 on alpha+beta" in line for line in legend)
    assert not any("1 +0:00 for 0:50 on" in line for line in legend)


def test_a_live_plan_shows_the_time_of_day() -> None:
    begin = time.mktime((2030, 5, 17, 22, 30, 0, 0, 0, -1))
    places = tuple(replace(p, start=begin + p.start, end=begin + p.end) for p in PLAN.placements)
    picture = Picture(plan=replace(PLAN, placements=places), begin=begin, now=begin)
    lines = text_gantt(picture, CLUSTERS, columns=60)
    axis = next(line for line in lines if "^now" in line)
    assert "^now 22:30:00" in axis
    assert axis.endswith("22:31:40 +1:40")
