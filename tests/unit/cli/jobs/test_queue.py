"""``coalloc queue``: what a line says, which columns there are, in what order, in what width."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coalloc.cli.command import Parser
from coalloc.cli.jobs import queue
from coalloc.cli.jobs.array_summary import array_lines, first_waiting, members_of
from coalloc.cli.jobs.queue_columns import (
    COLUMNS,
    USUAL,
    Field,
    Now,
    as_usual,
    folded,
    lines_of,
    ordered,
    read_format,
    read_order,
)
from coalloc.cli.jobs.show import _lines
from coalloc.cli.output import aligned
from coalloc.client.client import Client
from coalloc.model.shape import Shape
from coalloc.wire.answers import QueueAnswer
from coalloc.wire.client import AnswerFrame
from coalloc.wire.frames import encode_answer
from coalloc.wire.job_rows import QueueRow

NOW = time.mktime((2030, 5, 17, 14, 30, 0, 0, 0, -1))


def shown(rows: list[QueueRow], names: tuple[str, ...] = USUAL) -> list[tuple[str, ...]]:
    return lines_of(folded(rows), names, Now(time=NOW))


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
    assert shown([running]) == [
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
    (cells,) = shown([waiting])
    assert cells[3:] == (
        *("PD", "0:00", "4-64", "2030-05-17T15:30:00", "-"),
        "(Resources: planned to start on a1)",
    )
    (cells,) = shown([row("14", reason="insufficient", detail="beta is stale")])
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
    assert shown([row("1", state)])[0][3] == code


def test_an_ended_job_says_how() -> None:
    failed = row(
        "1", "failed", started=NOW - 60, ended=NOW - 50, exit_code=3, detail="rank 0 exited with 3"
    )
    (cells,) = shown([failed])
    assert (cells[4], cells[8]) == ("0:10", "(rank 0 exited with 3, exit code 3)")
    (cells,) = shown([row("2", "completed", started=NOW, ended=NOW, exit_code=0)])
    assert cells[8] == ""


def test_waiting_members_of_an_array_share_a_line() -> None:
    rows = [
        row("5_0", "running", started=NOW, nodes={"a1": 4}, clusters=("alpha",)),
        *(row(f"5_{i}", reason="planned", start_estimate=NOW + i) for i in (1, 2, 3, 12)),
        row("5_13", "held", reason="held"),
        row("6", reason="planned"),
    ]
    lines = shown(rows)
    assert [cells[0] for cells in lines] == ["5_0", "5_[1-3,12]", "5_13", "6"]
    assert lines[1][6] == "2030-05-17T14:30:01"  # the earliest of them
    assert len(folded(rows, unfold=True)) == 7
    waiting = [row(f"5_{i}", reason="array_limit", throttle=2) for i in (1, 2, 7)]
    (cells,) = shown(waiting)
    assert cells[0] == "5_[1-2,7%2]"
    assert cells[8] == "(JobArrayTaskLimit)"


def test_members_that_are_taken_ahead_share_a_line_by_node() -> None:
    at = {"1": "a1", "2": "a1", "3": "a2", "4": "a1"}
    rows = [row(f"5_{i}", "preparing", nodes={node: 1}) for i, node in at.items()]
    rows[3] = row("5_4", "running", nodes={"a1": 1}, started=NOW)
    lines = shown(rows)
    assert [(cells[0], cells[3], cells[8]) for cells in lines] == [
        ("5_[1-2]", "CF", "a1"),
        ("5_3", "CF", "a2"),
        ("5_4", "R", "a1"),
    ]


def test_an_array_with_a_throttle_and_a_deadline_says_both() -> None:
    bounds = {"throttle": 2, "finish_by": NOW}
    common = {"name": "scan", "user": "ada", "procs": 2, "submitted": NOW, "state": "pending"}
    rows = [{**common, **bounds, "id": f"5_{i}"} for i in (1, 2)]
    lines = array_lines("5", msgspec.convert(rows, list[QueueRow]))
    assert lines[3:5] == ["  at once    at most 2", "  deadline   2030-05-17T14:30:00"]


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
    # of many members that are named, the same of these alone
    named = [f"5_{index}" for index in range(4)]
    assert _lines(client, "5", named)[0] == "Job 5  scan  array of 4"
    assert [one.id for one in members_of(client, "5", named)] == named


class Listing(Client):
    """A client whose queue is given."""

    def __init__(self, rows: tuple[QueueRow, ...]) -> None:
        super().__init__("ipc:///nowhere")
        self.rows = rows

    def _answered(self, body: Mapping[str, Any], timeout_s: float | None = None) -> AnswerFrame:
        answer = QueueAnswer(jobs=self.rows if body["all"] else ())
        return AnswerFrame("1", None, encode_answer("1", answer))


def printed(capsys: pytest.CaptureFixture[str], *words: str, rows: list[QueueRow]) -> list[str]:
    """What the command prints into a pipe."""
    parser = Parser()
    queue.COMMANDS["queue"].add(parser)
    queue.show_queue(tuple(rows), NOW, parser.parse_args(words))
    return capsys.readouterr().out.splitlines()


RUNNING = row(
    "9", "running", started=NOW - 90, time_limit=600.0, nodes={"a1": 4}, clusters=("alpha",)
)
WAITING = row("10", reason="planned", start_estimate=NOW + 60, time_limit=7200.0, weight=2.5)
LATER = row("11", reason="insufficient", start_estimate=NOW + 30)


def test_limit_time_left_and_priority() -> None:
    cells = shown([RUNNING, WAITING, LATER], ("limit", "left", "priority", "end"))
    assert cells == [
        ("10:00", "8:30", "1", "2030-05-17T14:38:30"),
        ("2:00:00", "2:00:00", "2.5", "2030-05-17T16:31:00"),
        ("UNLIMITED", "UNLIMITED", "1", "N/A"),
    ]


def test_columns_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "-o", "jobid,left,PRIORITY", rows=[RUNNING, WAITING])
    assert lines == [
        "JOBID TIME_LEFT PRIORITY",
        "9          8:30        1",
        "10      2:00:00      2.5",
    ]


def test_a_format_of_squeue(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--noheader", "-o", "%.5i|%3j|%T")
    assert printed(capsys, *words, rows=[RUNNING]) == ["    9|mod|RUNNING"]
    lines = printed(capsys, "--format=%i %L", rows=[RUNNING])
    assert lines == ["JOBID TIME_LEFT", "9 8:30"]


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (read_format, "jobid,colour", "'colour' is not one of jobid, name"),
        (read_format, "%i %Z", "'%Z' is none of %i"),
        (read_format, "50%", "has no field such as %i"),
        (read_order, "-colour", "'colour' is not one of"),
    ],
)
def test_a_column_that_is_not_there(read: Any, text: str, told: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(told)):
        read(text)


def test_every_letter_and_name_reads() -> None:
    names = tuple(COLUMNS)
    assert read_format(",".join(names)) == names
    letters = "".join(column.letters for column in COLUMNS.values())
    assert len(set(letters)) == len(letters)
    fields = read_format(" ".join(f"%{letter}" for letter in letters))
    assert {field.name for field in fields if isinstance(field, Field)} == {
        name for name, column in COLUMNS.items() if column.letters
    }


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("-priority,jobid", ["10", "9", "11"]),
        ("start", ["9", "11", "10"]),
        ("-i", ["11", "10", "9"]),  # by number, not by text
        ("t,-S", ["10", "11", "9"]),
    ],
)
def test_lines_in_another_order(text: str, jobs: list[str]) -> None:
    groups = ordered(folded([RUNNING, WAITING, LATER]), read_order(text), Now(time=NOW))
    assert [group[0].id for group in groups] == jobs


def test_what_a_job_takes_of_nodes_by_the_letters_of_squeue() -> None:
    shape = Shape(cpus_per_proc=3, min_nodes=2, max_nodes=4, per_node={"gpu:a100": 2})
    names = tuple(field.name for field in read_format("%C %c %D %b") if isinstance(field, Field))
    waiting, placed = (
        row("1", shape=shape),
        row("2", "running", shape=shape, nodes={"a": 2, "b": 2}),
    )
    moldable = row("3", procs=2, max_procs=6, shape=Shape(min_nodes=2, max_nodes=2))
    assert shown([waiting, placed, moldable, row("4")], names) == [
        ("12", "3", "2-4", "gres:gpu:a100:2"),
        ("12", "3", "2", "gres:gpu:a100:2"),
        ("2-6", "1", "2", "N/A"),
        ("4", "1", "-", "N/A"),
    ]


def test_a_falling_order_is_typed_as_in_squeue(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("-S", "-p"), ("-S=-p",), ("--sort", "-priority,i")):
        lines = printed(capsys, *words, "--noheader", rows=[RUNNING, WAITING])
        assert [line.split()[0] for line in lines] == ["10", "9"]


def test_jobs_that_wait_by_their_start(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--start", "--noheader", rows=[WAITING, LATER])
    assert [line.split()[0] for line in lines] == ["11", "10"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    wide = row(
        "12345_[0-9,20-29]",
        name="a very long name of a job",
        user="somebody.with.a.long.name",
        reason="insufficient",
        detail="asks for 300 processes, and of 512 slots 400 are taken until tomorrow " * 3,
    )
    headers = [COLUMNS[name].header for name in USUAL]
    lines = aligned([headers, *shown([RUNNING, wide])], headers, columns=columns)
    assert max(map(len, lines)) <= columns
    assert lines[2].endswith("~")
    if columns >= 80:
        assert "PD" in lines[2].split()


def test_wide_letters_take_two_columns() -> None:
    lines = aligned([["計算計算計算", "x" * 30]], ["WORDS", "LAST"], columns=34)
    assert lines == ["計算計算計算 " + "x" * 20 + "~"]


def test_names_are_cut_before_reasons() -> None:
    headers = ["JOBID", "NAME", "USER", "NODELIST(REASON)"]
    rows = [["12", "a-long-name-of-a-job", "somebody", "(Resources: alpha has 3 of 8 slots free)"]]
    assert aligned(rows, headers, columns=61) == [
        "12 a-long-~ somebody (Resources: alpha has 3 of 8 slots free)"
    ]


def test_what_runs_comes_first_and_a_planned_start_is_said_once() -> None:
    rows = [
        row("1", state="completed", ended=5.0),
        row("2", reason="planned", detail="planned to start on alpha", start_estimate=90.0),
        row("3", state="running", started=1.0),
        row("4", reason="insufficient", detail="alpha is down"),
    ]
    groups = as_usual(folded(rows))
    assert [group[0].id for group in groups] == ["3", "2", "4", "1"]
    cells = lines_of(groups[1:3], ["where"], Now(time=10.0, brief=True))
    assert cells == [("(Resources)",), ("(Resources: alpha is down)",)]
    assert lines_of(groups[1:2], ["where"], Now(time=10.0)) == [
        ("(Resources: planned to start on alpha)",)
    ]


def test_every_column_is_documented() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "operations" / "queue.md"
    words = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8")))
    assert set(COLUMNS) <= words
    assert {letter for column in COLUMNS.values() for letter in column.letters} <= words
