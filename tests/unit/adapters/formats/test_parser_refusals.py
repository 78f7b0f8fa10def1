"""What readers of batch systems and of workflow files refuse, in one line that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from coalloc.adapters.formats import workflow
from coalloc.adapters.formats.swf_jobs import read_draw
from coalloc.adapters.formats.workflow import parse_workflow
from coalloc.adapters.gridengine import parse_xml
from coalloc.adapters.gridengine.parse_xml import parse_status
from coalloc.adapters.slurm.parsers.records import ParseError
from coalloc.adapters.slurm.parsers.text import (
    parse_clock,
    parse_node_list,
    parse_reservations,
    read_duration,
)
from coalloc.model.errors import InputError

KEPT = "ReservationName=r StartTime={} EndTime=2026-11-20T14:00:00 Nodes={} Users=ann,bob\n"
START = "2026-11-20T13:00:00"
STATUS = (Path(__file__).parents[3] / "gridengine" / "data" / "8.1.9-jobs.xml").read_text()


@pytest.mark.parametrize("text", ["1-1", "soon", "1:2:3:4", "10", "-1:00", "1:0x"])
def test_a_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="is not a length of time"):
        read_duration(text)


def test_reservations_of_slurm() -> None:
    (kept,) = parse_reservations(KEPT.format(START, "n[1-2]") + KEPT.format(START, "(null)"))
    assert (kept.nodes, kept.users, kept.end - kept.start) == (("n1", "n2"), ("ann", "bob"), 3600.0)
    (kept,) = parse_reservations(KEPT.format("N/A", "n1"))
    assert (kept.odd, kept.nodes) == ("no StartTime or EndTime", ("n1",))
    with pytest.raises(ParseError, match="empty ReservationName"):
        parse_reservations("ReservationName= StartTime=N/A")
    assert parse_reservations("No reservations in the system\n") == ()


def test_other_answers_of_slurm() -> None:
    with pytest.raises(ParseError, match="no time"):
        parse_clock("Configuration data as of N/A\n")
    with pytest.raises(ParseError, match="empty NodeName"):
        parse_node_list("NodeName= CPUTot=4 State=IDLE")


def test_answers_of_grid_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    (queue,) = parse_status(STATUS).queues
    assert queue.used == 4
    with pytest.raises(parse_xml.QstatError, match="slots_used: 'four' is not a number"):
        parse_status(STATUS.replace("<slots_used>4<", "<slots_used>four<"))
    with pytest.raises(parse_xml.QstatError, match="'x7' is not a job number"):
        parse_status(STATUS.replace("<JB_job_number>1<", "<JB_job_number>x7<"))
    missing = STATUS.replace("<slots>2</slots>", "", 1)
    assert parse_status(missing).queues[0].jobs[0].slots == 1
    monkeypatch.setattr(parse_xml, "LARGEST", 10)
    with pytest.raises(parse_xml.QstatError, match="an answer of 11 characters is too long"):
        parse_status("<job_info/>")


DAX = '<adag name="x"><job id="a" runtime="1">{}</job>{}</adag>'
FILE = '{{"name": "x", "tasks": [{{"id": "a", "work": 1.0}}], {}}}'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (DAX.format('<uses link="input"/>', ""), "a <uses> names no file"),
        (
            DAX.format("", '<child ref="a"><parent/></child>'),
            "a dependency has no ref",
        ),
        ("strict graph { a }", "is no workflow"),
        ("digraph", "'{' is expected, not the end"),
        ("digraph x { a ->", "is expected, not the end"),
        ("digraph x {", "is expected, not the end"),
        (FILE.format('"started": [{"task": "a"}]'), "a file has no task that has started"),
        (FILE.format('"kind": "rigid"'), "is not workflow"),
        ("- 1\n- 2\n", "is no workflow"),
    ],
)
def test_a_workflow_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_workflow(text.encode(), "w.x", "w.x")
    assert str(caught.value).startswith("w.x: ")
    assert what in str(caught.value)


def test_a_workflow_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "LARGEST_FILE", 9)
    with pytest.raises(InputError, match="w: is larger than 9 bytes"):
        parse_workflow(b"digraph {}", "w", "w")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1e", "'1e' is not a number"),
        ("--1", "'--1' is not a number"),
        ("1e999", "'1e999' is not a number"),
        ("1x", "'1x' is not a number"),
        ("uniform:0.5,0.2", "'uniform:0.5,0.2' is not uniform:LOW,HIGH"),
        ("uniform:0.5", "'uniform:0.5' is not uniform:LOW,HIGH"),
        ("2", "2 is outside 0..1"),
    ],
)
def test_a_rule_of_draws_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        read_draw(text, "--sigma", low=0.0, high=1.0)
    assert str(caught.value) == f"--sigma: {what}"
