"""Slurm's answers as every release printed them, and as no release should."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.adapters.slurm.parsers.queue import QUEUE_FIELDS, RECORD, parse_queue, queue_format
from coalloc.adapters.slurm.parsers.records import (
    ParseError,
    job_state,
    node_state,
    state_words,
)
from coalloc.adapters.slurm.parsers.text import (
    parse_fields,
    parse_node_list,
    parse_reservations,
    read_duration,
    read_integer,
    read_time,
)
from coalloc.model.platform import NodeState

MARK = "\x1f3f9a\x1f"
NODE = "NodeName=n1 CPUAlloc=2 CPUTot=8 CPULoad=1.50 State={} RealMemory=16000 Partitions=main "
BASE = {
    "id": "12",
    "number": "12",
    "state": "RUNNING",
    "reason": "None",
    "partition": "main",
    "user": "ann",
    "uid": "1000",
    "gid": "100",
    "cpus": "16",
    "node_count": "2",
    "nodes": "a[1-2]",
    "expected_nodes": "",
    "start": "2026-11-20T13:26:55",
    "end": "2026-11-20T13:36:55",
    "submitted": "2026-11-20T13:26:54",
    "time_limit": "10:00",
    "exclusive": "NO",
    "gres": "gres/gpu:a100=2",
    "features": "(null)",
    "reservation": "(null)",
    "required_nodes": "",
    "dependency": "(null)",
    "name": "work",
    "comment": "(null)",
}


def line(**changes: str) -> str:
    fields = BASE | changes
    return RECORD + MARK + MARK.join(fields[name] for name, _ in QUEUE_FIELDS) + "\n"


def recorded(shared: Path, pattern: str) -> list[Path]:
    found = sorted((shared / "data" / "slurm").glob(pattern))
    assert found, f"no recorded answer is {pattern}"
    return found


@pytest.mark.parametrize(
    ("text", "words", "state"),
    [
        ("IDLE", ("IDLE",), NodeState.UP),
        ("MIXED", ("MIXED",), NodeState.UP),
        ("IDLE+DRAIN", ("IDLE", "DRAIN"), NodeState.DRAINING),
        ("MIXED*+DRAIN", ("MIXED", "NOT_RESPONDING", "DRAIN"), NodeState.DOWN),
        ("DOWN*", ("DOWN", "NOT_RESPONDING"), NodeState.DOWN),
        ("IDLE~", ("IDLE", "POWERED_DOWN"), NodeState.DOWN),
        ("IDLE+CLOUD+POWERED_DOWN", ("IDLE", "CLOUD", "POWERED_DOWN"), NodeState.DOWN),
        ("IDLE+CLOUD+POWER", ("IDLE", "CLOUD", "POWER"), NodeState.DOWN),
        ("ALLOCATED#", ("ALLOCATED", "POWERING_UP"), NodeState.DOWN),
        ("IDLE+PLANNED", ("IDLE", "PLANNED"), NodeState.UP),
        ("IDLE-", ("PLANNED", "IDLE"), NodeState.UP),
        ("IDLE+MAINT+RESERVED", ("IDLE", "RESERVED", "MAINT"), NodeState.DRAINING),
        ("RESERVED", ("RESERVED",), NodeState.UP),
        ("DOWN+DRAIN+INVALID_REG", ("DOWN", "DRAIN", "INVALID_REG"), NodeState.DOWN),
        # A base state of a release to come: nothing is assumed of such a node.
        ("HUMMING", ("HUMMING",), NodeState.DOWN),
        # A flag of a release to come: Slurm itself refuses what it must.
        ("IDLE+HUMMING", ("IDLE", "HUMMING"), NodeState.UP),
        ("", ("UNKNOWN",), NodeState.DOWN),
    ],
)
def test_state_of_a_node(text: str, words: tuple[str, ...], state: NodeState) -> None:
    assert set(state_words(text)) == set(words)
    found, strange = node_state(state_words(text))
    assert found is state
    assert strange == (("HUMMING",) if "HUMMING" in text else ())


def test_state_of_a_job() -> None:
    assert job_state("R") == job_state("RUNNING") == "RUNNING"
    assert job_state("CANCELLED+") == "CANCELLED"
    assert job_state("DAYDREAMING") == "UNKNOWN"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10:00", 600.0),
        ("1:00:00", 3600.0),
        ("7-00:00:00", 604800.0),
        ("2-03:04:05", 183845.0),
        ("0:30", 30.0),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
        ("N/A", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert read_duration(text) == seconds


def test_times() -> None:
    assert read_time("2026-11-20T13:26:55") == 1795181215.0
    assert all(read_time(text) is None for text in ("N/A", "Unknown", "None", "(null)", ""))
    with pytest.raises(ParseError, match="'soon' is not a time"):
        read_time("soon")


def test_counts() -> None:
    assert read_integer("4", "", "") == 4
    assert read_integer("4K", "", "") == 4096
    assert read_integer("1.5K", "", "") == 1536
    assert read_integer("2-4", "", "") == 2
    with pytest.raises(ParseError, match="CPUs 'xx' is not a number in 'the line'"):
        read_integer("xx", "the line", "CPUs")


def test_queue() -> None:
    text = line() + line(id="7_3", state="PENDING", nodes="", expected_nodes="a3", comment="x|y")
    running, waiting = parse_queue(text, MARK)
    assert (running.nodes, running.cpus, running.time_limit) == (("a1", "a2"), 16, 600.0)
    assert running.exclusive
    assert running.comment == ""
    assert (waiting.id, waiting.state, waiting.expected_nodes) == ("7_3", "PENDING", ("a3",))
    assert waiting.comment == "x|y"
    assert parse_queue("", MARK) == ()


def test_a_name_cannot_forge_a_job() -> None:
    forged = line(id="666", nodes="a9").replace(MARK, "\x1f0000\x1f")
    (entry,) = parse_queue(line(name=f"x\n{forged}"), MARK)
    assert entry.id == "12"
    assert "666" in entry.name


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("slurm_load_jobs error: Unable to contact\n", "before the first job"),
        (line()[:-20], "cut short"),
        (line()[:-1], "cut short"),
    ],
)
def test_a_bad_queue_is_told_with_its_line(text: str, what: str) -> None:
    with pytest.raises(ParseError, match=re.escape(what)):
        parse_queue(text, MARK)


def test_format_asks_for_every_field() -> None:
    assert queue_format(MARK).count(MARK) == len(QUEUE_FIELDS)


def test_free_text_does_not_overrule_a_field() -> None:
    text = NODE.format("IDLE+DRAIN") + "Reason=fan State=IDLE CPUTot=99 [root@2026-11-20]"
    (node,) = parse_node_list(text)
    assert node_state(node.states)[0] is NodeState.DRAINING
    assert node.cpus == 8
    assert node.reason == "fan"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("slurm_load_node error: garbage", "no NodeName"),
        ("NodeName=n1 Arch=x86_64 CPUTot=8", "no State"),
        ("NodeName=n1 State=IDLE", "no CPUTot"),
    ],
)
def test_a_bad_node_is_told_with_its_line(text: str, what: str) -> None:
    with pytest.raises(ParseError, match=re.escape(what)):
        parse_node_list(text)


def test_recorded_nodes(shared: Path) -> None:
    (path,) = recorded(shared, "22.05.8-recorded/scontrol_show_nodes.txt")
    nodes = parse_node_list(path.read_text())
    assert [(n.name, n.cpus, n.cpus_taken) for n in nodes] == [
        ("r1", 32, 18),
        ("r2", 32, 32),
        ("r3", 8, 3),
        ("r4", 4, 2),
    ]
    assert nodes[3].reason.startswith("maint test")
    assert node_state(nodes[3].states)[0] is NodeState.DRAINING
    # ``-o`` prints each on a line.
    folded = "\n".join(" ".join(part.split()) for part in path.read_text().split("\n\n"))
    assert [n.states for n in parse_node_list(folded)] == [n.states for n in nodes]
    (older,) = recorded(shared, "clockwork-text/scontrol_node_2")
    # The recorded CPUEfctv lies below what is allocated, and is not believed.
    assert [n.cpus for n in parse_node_list(older.read_text())] == [80, 80]


def test_recorded_reservations(shared: Path) -> None:
    (path,) = recorded(shared, "22.05.8-recorded/scontrol_show_res.txt")
    (kept,) = parse_reservations(path.read_text())
    assert kept.name == "coalloc"
    assert kept.nodes == ("r1", "r2")
    assert kept.end - kept.start == 1200.0
    assert parse_reservations("No reservations in the system\n") == ()


def test_recorded_jobs_of_scontrol(shared: Path) -> None:
    (path,) = recorded(shared, "22.05.8-recorded/scontrol_show_jobs.txt")
    jobs = [parse_fields(part) for part in re.split(r"\n(?=JobId=)", path.read_text())]
    states = Counter(job_state(job["JobState"]) for job in jobs)
    assert states == {"RUNNING": 7, "PENDING": 5, "FAILED": 1}
    assert next(j["ExitCode"] for j in jobs if j["JobState"] == "FAILED") == "1:0"
    (older,) = recorded(shared, "clockwork-text/scontrol_job_2")
    for part in re.split(r"\n(?=JobId=)", older.read_text()):
        assert parse_fields(part)["JobState"] == "PENDING"


def words_of(value: object) -> list[str]:
    """State words as a release gave them in JSON: one text, or a list."""
    if isinstance(value, str):
        return [value]
    return [str(word) for word in value] if isinstance(value, list) else []


@pytest.mark.parametrize("release", ["21.08", "22.05.8", "22.05.9", "24.05", "25.05"])
def test_every_recorded_state_word_is_known(shared: Path, release: str) -> None:
    seen = 0
    for path in recorded(shared, f"*{release}*/*.json"):
        answer = json.loads(path.read_text())
        if not isinstance(answer, dict):
            continue
        for node in answer.get("nodes") or ():
            if isinstance(node, dict) and "state" in node:
                words = (*words_of(node["state"]), *words_of(node.get("state_flags")))
                assert node_state(tuple(w.upper() for w in words))[1] == (), f"{path}: {words}"
                seen += 1
        for job in answer.get("jobs") or ():
            for word in words_of(job.get("job_state")):
                assert job_state(word) != "UNKNOWN", f"{path}: {word}"
                seen += 1
    assert seen


ANSWERS = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(["NodeName=", "ReservationName=", "JobId=", "State=", "CPUTot=", "\n", " "])
        | st.sampled_from([MARK, RECORD + MARK, "a[1-9]", "(null)", "99999999999999", "-1", "UTC"])
        | st.text(max_size=8)
    ).map("".join),
)


@given(text=ANSWERS)
def test_garbage_raises_only_a_parse_error(text: str) -> None:
    for parse in (
        parse_node_list,
        parse_reservations,
        parse_fields,
        lambda answer: parse_queue(answer, MARK),
    ):
        with contextlib.suppress(ParseError):
            parse(text)


@given(cut=st.integers(0, 400))
def test_an_answer_cut_short_is_no_shorter_queue(cut: int) -> None:
    whole = line() + line(id="13", nodes="a3")
    text = whole[:cut]
    try:
        entries = parse_queue(text, MARK)
    except ParseError:
        return
    assert text == "".join([line(), line(id="13", nodes="a3")][: len(entries)])
