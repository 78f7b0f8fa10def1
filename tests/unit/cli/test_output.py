"""What the commands print of jobs, nodes, plans and events."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from coalloc.cli import output
from coalloc.cli.command import print_json, print_json_rows
from coalloc.cli.events import event_line
from coalloc.cli.jobs.job_details import job_lines
from coalloc.cli.nodes import cluster_line, node_lines
from coalloc.cli.output import aligned, figure, node_set, show_table
from coalloc.model.values import replace
from coalloc.runtime.texts import length, printable
from coalloc.wire.answers import Event
from coalloc.wire.job_rows import JobDetails
from coalloc.wire.node_rows import ClusterRow, NodeRow

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


def test_a_long_table_is_printed_in_sheets_that_become_wider(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def rows() -> Iterator[tuple[str, str]]:
        for name in ("a", "b", "longer", "c"):
            assert len(taken) < 3 or capsys.readouterr().out == "N X\na 1\nb 1\n"
            taken.append(name)
            yield name, "1"

    monkeypatch.setattr(output, "SHEET", 2)
    show_table(("N", "X"), rows())
    assert capsys.readouterr().out == "longer 1\nc      1\n"
    show_table(("N", "X"), [])
    assert capsys.readouterr().out == "N X\n"
    show_table(("N", "X"), [], header=False)
    assert not capsys.readouterr().out


@pytest.mark.parametrize("count", [0, 1, 3])
def test_rows_are_printed_as_they_would_be_at_once(
    capsys: pytest.CaptureFixture[str], count: int
) -> None:
    rows = [{"id": n, "of": {"a": [1, "x\ny"]}, "none": None} for n in range(count)]
    print_json({"jobs": rows})
    at_once = capsys.readouterr().out
    print_json_rows("jobs", iter(rows))
    assert capsys.readouterr().out == at_once


def details() -> dict[str, Any]:
    common = {"id": "12", "user": "ada"}
    return {
        **common,
        "name": "model",
        "procs": 6,
        "state": "running",
        "submitted": NOW - 100.0,
        "started": NOW - 90.0,
        "needs": [["afterok", "11"]],
        "requeue": True,
        "nodes": {"a1": 4, "b1": 2},
        "clusters": ["alpha", "beta"],
        "skew_ms": 1.234,
        "record": {
            **common,
            "uid": 1000,
            "gid": 100,
            "planned": 600.0,
            "round": 41,
            "policy": "easy",
            "attempt": 2,
            "refusals": 1,
            "link_gbps": {"alpha": 0.12, "beta": 0.12},
            "job": {
                "kind": "rigid",
                "id": "12",
                "procs": 6,
                "base_time": 480.0,
                "sigma": 0.7,
                "proc_gbps": 0.075,
                "time_limit": 900.0,
                "features": ["ib"],
                "weight": 2.0,
            },
            "sources": {"base_time": "history", "sigma": "defaults", "proc_gbps": "user"},
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
                    "cpu_s": 12.5,
                    "max_rss_mb": 310.0,
                },
            ],
        },
        "launch": {"argv": ["job.sh", "a b"], "script": "#!/bin/sh\n", "cwd": "/home/ada"},
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
        r"^  1  beta  b1x2  ranks 4-5  running  started 2030-05-17T14:28:30\.000  12\.5 CPU-s",
        r"CPU-s  310 MiB at most in a process$",
        r"if preempted +run again from its beginning$",
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
    moldable = {"kind": "moldable", "id": "12", "speedup": speedup}
    body["record"]["job"] = {**moldable, "min_procs": 1, "max_procs": 8}
    text = "\n".join(job_lines(msgspec.convert(body, JobDetails), NOW))
    assert words in text
    assert "1 to 8" in text


def test_show_of_what_a_job_asks_of_its_nodes() -> None:
    body = details()
    body["batch"] = {"passed": ["--exclude=n1"]}
    body["record"]["job"] |= {"memory_mb_per_proc": 512}
    body["record"]["job"]["shape"] = {
        "cpus_per_proc": 4,
        "min_nodes": 2,
        "procs_per_node": 3,
        "exclusive": True,
        "memory_mb_per_node": 512,
        "per_node": {"gpu": 2},
        "per_job": {"matlab": 1},
    }
    text = "\n".join(job_lines(msgspec.convert(body, JobDetails), NOW))
    for pattern in (
        r"memory +512 MiB per process$",
        r"cpus per proc +4$",
        r"procs per node +3$",
        r"exclusive +True$",
        r"per node +2 gpu$",
        r"passed on +--exclude=n1$",
    ):
        assert re.search(pattern, text, re.MULTILINE), text


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


def test_what_is_free_of_memory_and_resources() -> None:
    there = {"memory_mb": 900, "resources": {"gpu": 4, "gpu:a100": 4, "nvme": 9}}
    free = {"gpu": 3, "gpu:a100": 3, "nvme": 9}
    nodes = (
        node("a1", **there, free_memory_mb=800, free_resources=free),
        node("a2", **there, free_memory_mb=800, free_resources=free),
    )
    (line,) = node_lines(replace(cluster(), nodes=nodes))
    assert line[7:9] == ("800/900M", "3/4 gpu:a100, 9/9 nvme")
    assert cluster_line(replace(cluster(), nodes=nodes))[8] == "6/8 gpu:a100, 18/18 nvme"
    (older,) = node_lines(replace(cluster(), nodes=(node("a1", **there),)))  # of an older daemon
    assert older[7:9] == ("900M", "?/4 gpu:a100, ?/9 nvme")


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
    assert cluster_line(cluster(notices=("it has no nodes",)))[8] == "it has no nodes"
    own = cluster(owner="bob", read_by="alpha@ada")
    assert cluster_line(own)[8] == "jobs of bob only, read by alpha@ada"


def test_an_event_is_one_line() -> None:
    fields = {"detail": "two words", "nodes": {"a1": 1, "a2": 1}, "exit_code": None, "x": "a\nb"}
    event = Event(seq=7, time=NOW + 0.25, kind="job_placed", job="3", fields=fields)
    assert event_line(event) == (
        "7 2030-05-17T14:30:00.250 job_placed job=3 detail='two words' nodes=a[1-2] exit_code=-"
        " x=a?b"
    )


def test_figures() -> None:
    assert [figure(v) for v in (None, 0.1, 3600.0, 1 / 3)] == ["-", "0.1", "3600", "0.333333"]
