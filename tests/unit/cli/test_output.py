"""What the commands print of jobs, nodes, plans and events."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from typing import Any

import msgspec
import pytest

from coalloc.cli.array_summary import array_lines, first_waiting, members_of
from coalloc.cli.events import event_line
from coalloc.cli.gantt import html_gantt, rows_of, svg_gantt, text_gantt
from coalloc.cli.job_details import job_lines
from coalloc.cli.nodes import cluster_line, node_lines
from coalloc.cli.output import aligned, figure, node_set, printable, show_table
from coalloc.cli.picture import Picture, counts, headline, picture_of
from coalloc.cli.queue import queue_lines, status_lines
from coalloc.client.client import Client
from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.runtime.texts import length
from coalloc.wire.answers import (
    ClusterRow,
    Event,
    NodeRow,
    QueueAnswer,
    ServiceStatus,
    SolverStatus,
)
from coalloc.wire.job_rows import JobDetails, QueueRow

NOW = time.mktime((2030, 5, 17, 14, 30, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (5.9, "0:05"),
        (754, "12:34"),
        (3723, "1:02:03"),
        (273906, "3-04:05:06"),
        (-3, "0:00"),
        (None, "-"),
    ],
)
def test_lengths_as_in_squeue(seconds: float | None, text: str) -> None:
    assert length(seconds) == text


def test_node_sets_are_folded_by_count() -> None:
    assert node_set({"a1": 1, "a2": 1, "a3": 1, "b1": 4, "b2": 4}) == "a[1-3],b[1-2]x4"
    assert node_set({"a1": 2}) == "a1x2"


def test_what_a_terminal_would_act_on_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("red\x1b[31m\n") == "red?[31m?"
    show_table(("NAME",), [("\x1b]0;title\x07",)])
    assert "\x1b" not in capsys.readouterr().out


def test_columns_are_aligned_and_the_last_is_free() -> None:
    lines = [("A", "N", "LAST"), ("alpha", "7", "x"), ("b", "12", "long text")]
    assert aligned(lines, ("A", "N", "LAST"), frozenset({"N"})) == [
        "A      N LAST",
        "alpha  7 x",
        "b     12 long text",
    ]


def row(job: str, state: str = "pending", **fields: Any) -> QueueRow:
    return QueueRow(
        **{
            "id": job,
            "name": "model",
            "user": "ada",
            "state": state,
            "procs": 4,
            "submitted": NOW - 60,
            **fields,
        }
    )


def test_a_running_job() -> None:
    nodes = {"a1": 1, "a2": 1, "b1": 2}
    running = row(
        "12", "running", started=NOW - 90, nodes=nodes, clusters=("alpha", "beta"), reason=""
    )
    assert queue_lines([running], NOW) == [
        (
            *("12", "model", "ada", "R", "1:30", "4", "2030-05-17T14:28:30"),
            *("alpha+beta", "a[1-2],b1x2"),
        )
    ]


def test_a_waiting_job_has_reason_and_estimate() -> None:
    waiting = row(
        "13",
        reason="planned",
        detail="planned to start on a1",
        start_estimate=NOW + 3600,
        max_procs=64,
    )
    (cells,) = queue_lines([waiting], NOW)
    assert cells[3:] == (
        *("PD", "0:00", "4-64", "2030-05-17T15:30:00", "-"),
        "(Resources: planned to start on a1)",
    )
    (cells,) = queue_lines([row("14", reason="insufficient", detail="beta is stale")], NOW)
    assert cells[6:] == ("N/A", "-", "(Resources: beta is stale)")


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("held", "PD"),
        ("preparing", "CF"),
        ("completed", "CD"),
        ("failed", "F"),
        ("cancelled", "CA"),
        ("timeout", "TO"),
        ("lost", "NF"),
        ("melted", "melted"),  # a state of a newer daemon
    ],
)
def test_codes_of_squeue(state: str, code: str) -> None:
    assert queue_lines([row("1", state)], NOW)[0][3] == code


def test_an_ended_job_says_how() -> None:
    failed = row(
        "1", "failed", started=NOW - 60, ended=NOW - 50, exit_code=3, detail="rank 0 exited with 3"
    )
    (cells,) = queue_lines([failed], NOW)
    assert (cells[4], cells[8]) == ("0:10", "(rank 0 exited with 3, exit code 3)")
    (cells,) = queue_lines([row("2", "completed", started=NOW, ended=NOW, exit_code=0)], NOW)
    assert cells[8] == ""


def test_waiting_members_of_an_array_share_a_line() -> None:
    rows = [
        row("5_0", "running", started=NOW, nodes={"a1": 4}, clusters=("alpha",)),
        *(row(f"5_{i}", reason="planned", start_estimate=NOW + i) for i in (1, 2, 3, 12)),
        row("5_13", "held", reason="held"),
        row("6", reason="planned"),
    ]
    lines = queue_lines(rows, NOW)
    assert [cells[0] for cells in lines] == ["5_0", "5_[1-3,12]", "5_13", "6"]
    assert lines[1][6] == "2030-05-17T14:30:01"  # the earliest of them
    assert len(queue_lines(rows, NOW, unfold=True)) == 7


def test_an_array_as_a_whole() -> None:
    rows = [
        {"id": "5_0", "state": "running"},
        *({"id": f"5_{i}", "state": "pending", "reason": "planned"} for i in (1, 2, 3)),
        {"id": "5_4", "state": "failed"},
        {"id": "5", "state": "running"},
        {"id": "15_1", "state": "running"},
    ]
    common = {"name": "scan", "user": "ada", "procs": 2, "submitted": NOW}
    client = Listing(msgspec.convert([{**common, **one} for one in rows], tuple[QueueRow, ...]))
    members = members_of(client, "5")
    assert [one.id for one in members] == ["5_0", "5_1", "5_2", "5_3", "5_4"]
    assert members_of(client, "7") == []
    assert first_waiting(members) == "5_1"
    assert array_lines("5", members) == [
        "Job 5  scan  array of 5",
        "  user                ada",
        "  processes           2 each",
        "  running             1: 5_0",
        "  pending: Resources  3: 5_[1-3]",
        "  failed              1: 5_4",
    ]


class Listing(Client):
    """A client whose queue is given."""

    def __init__(self, rows: tuple[QueueRow, ...]) -> None:
        super().__init__("ipc:///nowhere")
        self.rows = rows

    def whole_queue(self, *, user: str = "", everything: bool = False) -> QueueAnswer:
        return QueueAnswer(jobs=self.rows if everything else ())


def details() -> dict[str, Any]:
    return {
        "id": "12",
        "name": "model",
        "user": "ada",
        "uid": 1000,
        "gid": 100,
        "procs": 6,
        "state": "running",
        "submitted": NOW - 100.0,
        "started": NOW - 90.0,
        "planned": 600.0,
        "nodes": {"a1": 4, "b1": 2},
        "clusters": ["alpha", "beta"],
        "skew_ms": 1.234,
        "round": 41,
        "policy": "easy",
        "attempt": 2,
        "refusals": 1,
        "reason": "",
        "detail": "",
        "link_gbps": {"alpha": 0.12, "beta": 0.12},
        "job": {
            "kind": "rigid",
            "procs": 6,
            "base_time": 480.0,
            "sigma": 0.7,
            "proc_gbps": 0.075,
            "time_limit": 900.0,
            "features": ["ib"],
            "weight": 2.0,
        },
        "sources": {"base_time": "history", "sigma": "defaults", "proc_gbps": "user"},
        "needs": [["afterok", "11"]],
        "launch": {"argv": ["job.sh", "a b"], "script": "#!/bin/sh\n", "cwd": "/home/ada"},
        "parts": [
            {
                "cluster": "alpha",
                "index": 0,
                "nodes": {"a1": 4},
                "first_rank": 0,
                "state": "running",
                "started": NOW - 90.0,
            },
            {
                "cluster": "beta",
                "index": 1,
                "nodes": {"b1": 2},
                "first_rank": 4,
                "state": "running",
                "started": NOW - 90.0,
            },
        ],
        "events": [
            {"seq": 3, "time": NOW - 100.0, "kind": "job_submitted", "user": "ada"},
            {"seq": 4, "time": NOW - 95.0, "kind": "job_placed", "nodes": {"a1": 4, "b1": 2}},
        ],
        "a field of a newer daemon": 1,
    }


def test_show_tells_where_values_came_from_and_the_history() -> None:
    text = "\n".join(job_lines(msgspec.convert(details(), JobDetails), NOW))
    for pattern in (
        r"^Job 12  model  running$",
        r"user +ada \(1000:100\)$",
        r"run time +1:30 \(planned 10:00\)$",
        r"start skew +1\.234 ms between",
        r"link load +alpha 0\.12 Gbit/s, beta 0\.12 Gbit/s$",
        r"decided +round 41, policy easy$",
        r"attempts +2, 1 refused in a row$",
        r"base time +480 s  \(from earlier runs of this command\)$",
        r"sigma +0\.7  \(the site's default\)$",
        r"bandwidth +0\.075 Gbit/s per process  \(given\)$",
        r"after +afterok:11$",
        r"script +job\.sh 'a b'$",
        r"^  1  beta  b1x2  ranks 4-5  running  started 2030-05-17T14:28:30\.000$",
        r"^  2030-05-17T14:28:25\.000  job_placed  nodes=a1x4,b1x2$",
    ):
        assert re.search(pattern, text, re.MULTILINE), pattern


@pytest.mark.parametrize(
    ("speedup", "words"),
    [
        (
            {"model": "amdahl", "time": 100.0, "parallel_fraction": 0.95},
            "amdahl, 100 s on one process, fraction 0.95",
        ),
        ({"model": "downey", "time": 9.0, "A": 4.0, "sigma": 1.0}, "A 4, sigma 1"),
        ({"model": "table", "procs": [1, 2], "times": [8.0, 5.0]}, "1: 8 s, 2: 5 s"),
    ],
)
def test_show_of_a_moldable_job(speedup: dict[str, Any], words: str) -> None:
    body = details()
    body["job"] = {"kind": "moldable", "speedup": speedup, "min_procs": 1, "max_procs": 8}
    text = "\n".join(job_lines(msgspec.convert(body, JobDetails), NOW))
    assert words in text
    assert "1 to 8" in text


def node(name: str, **fields: Any) -> NodeRow:
    base = {"state": "up", "slots": 4, "free": 4, "power": 0.9, "raw_power": 0.91, "load": 0.02}
    return NodeRow(name=name, **{**base, **fields})


def cluster(**fields: Any) -> ClusterRow:
    nodes = (node("a1"), node("a2", load=0.03), node("a3", free=1), node("a4", state="down"))
    base: dict[str, Any] = {
        "cluster": "alpha",
        "stale": False,
        "connected": True,
        "drained": False,
        "age_s": 3.0,
        "link_gbps": 1.0,
        "link_used_gbps": 0.25,
    }
    return ClusterRow(nodes=nodes, **{**base, **fields})


def test_nodes_that_have_everything_in_common_share_a_line() -> None:
    lines = node_lines(cluster())
    assert [line[-1] for line in lines] == ["a[1-2]", "a3", "a4"]
    assert lines[0][1:6] == ("up", "4", "4", "0.9", "0.91")
    assert [line[-1] for line in node_lines(cluster(), each=True)] == ["a1", "a2", "a3", "a4"]


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "up"),
        ({"drained": True}, "drained"),
        ({"stale": True}, "stale"),
        ({"connected": False, "stale": True}, "unreachable"),
    ],
)
def test_state_of_a_cluster(fields: dict[str, Any], state: str) -> None:
    assert cluster_line(cluster(**fields))[:2] == ("alpha", state)


def test_of_a_cluster_that_is_away_nothing_is_known_but_the_nodes() -> None:
    away = cluster(connected=False, stale=True)
    assert cluster_line(away)[2:5] == ("4", "16", "-")
    assert {line[1:7] for line in node_lines(away)} == {("unknown", "4", "-", "-", "-", "-")}


def test_sums_of_a_cluster() -> None:
    assert cluster_line(cluster())[2:8] == ("4", "16", "13", "1", "0.25", "0:03 ago")
    assert cluster_line(cluster(link_gbps=None, age_s=None))[5:8] == ("no limit", "0.25", "never")


def test_status_says_what_is_wrong() -> None:
    status = ServiceStatus(
        time=NOW,
        user="ada",
        epoch=3,
        rounds=9,
        paused=True,
        waiting=2,
        placed=1,
        clusters={"alpha": True, "beta": False},
        writable=False,
        faults={"client_bad_json": 4},
        orders_waiting={"alpha": 0, "beta": 2},
        solver=SolverStatus(is_warm=False, done=3, steps=12),
    )
    text = "\n".join(status_lines(status, "ipc:///x"))
    for words in ("paused", "not connected: beta", "CANNOT WRITE", "4 client_bad_json"):
        assert words in text
    assert "2 for beta" in text
    assert "warming, 3 of 12 steps" in text


def test_an_event_is_one_line() -> None:
    fields = {"detail": "two words", "nodes": {"a1": 1, "a2": 1}, "exit_code": None, "x": "a\nb"}
    event = Event(seq=7, time=NOW + 0.25, kind="job_placed", job="3", fields=fields)
    assert event_line(event) == (
        "7 2030-05-17T14:30:00.250 job_placed job=3 detail='two words' nodes=a[1-2] exit_code=-"
        " x=a?b"
    )


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
    assert len(titles) == 6  # two lanes of job 2 are one bar
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


def test_figures() -> None:
    assert [figure(v) for v in (None, 0.1, 3600.0, 1 / 3)] == ["-", "0.1", "3600", "0.333333"]
