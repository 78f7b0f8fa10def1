"""What qstat says: recorded answers of Grid Engine 8.1.9, and whatever else may come."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.adapters.gridengine.parse_xml import (
    QstatError,
    parse_number,
    parse_size_mb,
    parse_span,
    parse_status,
    parse_time,
    tasks_in,
)

ANSWERS = Path(__file__).parents[3] / "gridengine" / "data"
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><job_info>&b;</job_info>'


def answer(name: str) -> str:
    return (ANSWERS / f"8.1.9-{name}.xml").read_text()


@pytest.mark.parametrize("path", sorted(ANSWERS.glob("*.xml")), ids=lambda path: path.stem)
def test_every_recorded_answer_is_read(path: Path) -> None:
    status = parse_status(path.read_text())
    assert status.queues or status.waiting


def test_idle() -> None:
    (queue,) = parse_status(answer("idle")).queues
    assert (queue.queue, queue.host) == ("main", "localhost")
    assert (queue.slots, queue.used, queue.available, queue.state) == (4, 0, 4, "")
    assert queue.cpus == 2
    assert queue.memory_mb == 24105
    assert queue.load is not None
    assert queue.time_limit is None
    assert queue.jobs == ()


def test_jobs() -> None:
    status = parse_status(answer("jobs"))
    (queue,) = status.queues
    assert (queue.used, queue.available) == (4, 0)
    first, *tasks = queue.jobs
    assert first.name == "coalloc-0123456789abcdef0123456789abcdef"
    assert (first.id, first.slots, first.time_limit, first.owner) == ("1", 2, 100.0, "root")
    assert first.start == 1795291608.0
    assert [task.id for task in tasks] == ["2.1", "2.2"]
    assert {task.name for task in tasks} == {"a%lt;&>b"}
    assert {task.time_limit for task in tasks} == {120.0}
    assert {(job.id, job.count) for job in status.waiting} == {("2.3-5:1", 3), ("4", 1), ("3", 1)}
    assert {job.state for job in status.waiting} == {"qw", "hqw"}


def test_queue_that_takes_nothing() -> None:
    assert parse_status(answer("disabled")).queues[0].state == "d"
    (unheard,) = parse_status(answer("unheard")).queues
    assert unheard.state == "du"
    assert unheard.load is None
    assert unheard.time_limit == 3600.0


def test_jobs_without_queues() -> None:
    short, long = parse_status(answer("jobs-short")), parse_status(answer("jobs"))
    assert short.queues == ()
    assert sorted(job.id for job in short.jobs()) == sorted(job.id for job in long.jobs())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "error: commlib error",
        "<job_info>",
        "<qhost/>",
        BOMB,
        '<!DOCTYPE job_info SYSTEM "file:///etc/passwd"><job_info/>',
        "<job_info>&lol;</job_info>",
        "<job_info><queue_info><Queue-List><name>all.q</name></Queue-List></queue_info></job_info>",
        "<job_info><job_info><job_list><JB_job_number>x</JB_job_number></job_list></job_info>"
        "</job_info>",
    ],
)
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(QstatError) as caught:
        parse_status(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    for read in (parse_status, parse_number):
        try:
            read(text)
        except QstatError:
            continue


@given(st.binary(max_size=60), st.integers(min_value=0))
def test_any_damage_to_a_real_answer(noise: bytes, place: int) -> None:
    raw = answer("jobs").encode()
    at = place % len(raw)
    damaged = (raw[:at] + noise + raw[at + len(noise) :]).decode(errors="replace")
    try:
        status = parse_status(damaged)
    except QstatError:
        return
    assert all(queue.slots >= 0 and queue.used >= 0 for queue in status.queues)


@given(st.text(min_size=1, max_size=40))
def test_no_name_of_a_job_makes_the_cell_unreadable(name: str) -> None:
    """A user who may name a job must not be able to hide the whole cell."""
    text = answer("jobs").replace("a%lt;&amp;&gt;b", escape(name))
    assert len(list(parse_status(text).jobs())) == 6


@given(st.text(max_size=30))
def test_single_values_never_raise(text: str) -> None:
    assert tasks_in(text) >= 1
    for read in (parse_time, parse_size_mb, parse_span):
        value = read(text)
        assert value is None or value >= 0


def test_single_values() -> None:
    assert parse_time("2026-11-21T20:06:48") == 1795291608.0
    assert parse_time("2026-13-21T20:06:48") is None
    assert parse_size_mb("23.541G") == 24105
    assert parse_size_mb("512.0M") == 512
    assert parse_size_mb("-") is None
    assert parse_span("01:00:05") == 3605.0
    assert parse_span("100") == 100.0
    assert parse_span("infinity") is None
    assert tasks_in("4-10:2,15") == 5
    assert tasks_in("") == 1
    assert parse_number("17\n") == "17"
