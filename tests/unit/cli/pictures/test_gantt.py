"""What ``coalloc plan --gantt`` draws, and a plan in one line."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET

import pytest

from coalloc.adapters.formats.gantt_svg import ticks_of
from coalloc.cli.pictures.gantt import rows_of, svg_gantt, text_gantt
from coalloc.cli.pictures.gantt_page import html_gantt
from coalloc.cli.pictures.picture import Picture, counts, headline, picture_of
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
        ("alpha", "a1"),
        ("alpha", "a2"),
        ("alpha", "a3 x2"),
        ("beta", "b1"),
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
    empty = Plan(policy="x", status=Status.HEURISTIC, objective=Objective(name="m", value=0.0))
    assert text_gantt(Picture(plan=empty), {}, columns=80) == ["nothing is placed"]
    ET.fromstring(svg_gantt(Picture(plan=empty), {}))


def test_svg_and_html_are_well_formed_and_escape_names() -> None:
    root = ET.fromstring(svg_gantt(Picture(plan=PLAN), CLUSTERS))
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 7  # two lanes of job 2 are one bar; a tie is for job 3
    assert "3 on alpha+beta" in titles
    assert any(title.startswith("4.t<1>: +1:00") for title in titles)
    assert "4.t&lt;1&gt;" in html_gantt(Picture(plan=PLAN), CLUSTERS)


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
    titles = [t.text or "" for t in ET.fromstring(svg_gantt(picture, CLUSTERS)).iter()]
    assert "now" in titles
    assert any(title.startswith("0: runs, ") for title in titles)
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
        objective=Objective(name="m", value=0.0),
        placements=(*PLAN.placements, *pieces),
    )
    assert counts(plan) == "5 jobs placed (7 placements), 0 deferred"
    assert counts(PLAN) == "4 jobs placed, 0 deferred"


def test_headline_has_objective_bound_and_gap() -> None:
    assert headline(PLAN) == "easy, feasible: makespan 110, bound 100, gap 10.00%"


def test_parts_on_several_clusters_are_tied() -> None:
    root = ET.fromstring(svg_gantt(Picture(plan=PLAN), CLUSTERS))
    (tie,) = root.iter("{http://www.w3.org/2000/svg}g")
    dots = tie.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 2
    assert len({dot.get("cx") for dot in dots}) == 1
    legend = text_gantt(Picture(plan=PLAN), CLUSTERS, columns=80)
    assert any("3 +0:50 for 0:50 on alpha+beta" in line for line in legend)
    assert not any("1 +0:00 for 0:50 on" in line for line in legend)


def test_a_live_plan_shows_the_time_of_day() -> None:
    begin = time.mktime((2030, 5, 17, 22, 30, 0, 0, 0, -1))
    ticks = ticks_of(begin, begin + 9000.0, begin, is_clock=True)
    assert [(at - begin, label) for at, label in ticks] == [
        (0.0, "22:30"),
        (1800.0, "23:00"),
        (3600.0, "23:30"),
        (5400.0, "2030-05-18"),
        (7200.0, "00:30"),
        (9000.0, "01:00"),
    ]
    places = tuple(replace(p, start=begin + p.start, end=begin + p.end) for p in PLAN.placements)
    picture = Picture(plan=replace(PLAN, placements=places), begin=begin, now=begin)
    lines = text_gantt(picture, CLUSTERS, columns=60)
    axis = next(line for line in lines if "^now" in line)
    assert "^now 22:30:00" in axis
    assert axis.endswith("22:31:40 +1:40")


def test_an_axis_counts_from_its_zero() -> None:
    ticks = ticks_of(-30.0, 60.0, 0.0)
    assert [label for _, label in ticks][:4] == ["-30 s", "-20 s", "-10 s", "0 s"]


def test_the_page_has_ties_links_and_the_clock_and_no_name_ends_its_data() -> None:
    places = (
        Placement(job="</script>", start=10.0, end=20.0, nodes={"p1": 2, "q1": 2}),
        Placement(job="runs", start=0.0, end=10.0, nodes={"p1": 2}),
    )
    plan = replace(PLAN, placements=places)
    clusters = {"p1": "p", "q1": "q"}
    page = html_gantt(
        Picture(plan=plan, now=5.0, running=1),
        clusters,
        critical=(0,),
        proc_gbps={"</script>": 0.3},
        link_gbps={"p": 1.0, "q": float("inf")},
    )
    found = re.findall(r'id="data">(.*?)</script>', page)
    data = json.loads(found[0])
    assert (data["now"], data["zero"]) == (5.0, 0.0)
    assert data["clusters"] == [["p", 1.0], ["q", None]]
    assert data["lanes"] == [["p", "p1", 2], ["q", "q1", 2]]
    # equation (4): 0.3 * 2 * 2 / 3 on both links
    tied, running = data["rows"]
    assert tied[:6] == ["</script>", "critical path", "", "planned", 10.0, 20.0]
    assert tied[6] == [0, 2, 1, 2]
    assert tied[7] == pytest.approx([0, 0.4, 1, 0.4])
    assert running[3] == "running"
    assert "import " not in page.partition('type="module">')[2]
