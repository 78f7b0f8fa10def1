"""Our accounts beside those of Slurm."""

from __future__ import annotations

import pytest

from coalloc.adapters.slurm.accounts import (
    DELIMITER,
    FIELDS,
    OurRow,
    differences,
    parse_accounts,
    sacct_words,
)
from coalloc.adapters.slurm.records import ParseError

NOON = 1_795_348_800.0  # 2026-11-22T12:00:00 UTC
CLAIM = "0" * 32


def line(
    number: str,
    name: str,
    state: str,
    start: str,
    end: str,
    comment: str = "",
    nodes: str = "a[1-2]",
) -> str:
    return DELIMITER.join((number, "ada", state, start, end, nodes, comment, name))


def ours(job: str, name: str = "prep", state: str = "completed", at: float = 0.0) -> OurRow:
    return OurRow(
        id=job, user="ada", name=name, state=state, started=NOON + at, ended=NOON + at + 600.0
    )


def at(minute: int, second: int = 0) -> str:
    return f"2026-11-22T12:{minute:02}:{second:02}"


def found(jobs: list[OurRow], *lines: str, until: float = 86_400.0) -> list[tuple[str, str, str]]:
    rows = list(parse_accounts("\n".join(lines)))
    told = differences(jobs, rows, since=NOON, until=NOON + until)
    return [(d.job, d.number, d.text) for d in told]


def test_jobs_that_agree_are_not_named() -> None:
    """By the comment whatever the name is, without one by user, name and time."""
    marked = f"coalloc:7.2.0:{CLAIM}"
    assert not found(
        [ours("7", "other"), ours("8", state="timeout")],
        line("41", "prep", "COMPLETED", at(0), at(10, 1), marked),
        line("42", "prep", "CANCELLED by 0", at(0), at(10, 1)),
    )


@pytest.mark.parametrize(
    ("state", "start", "end", "text"),
    [
        ("FAILED", at(0), at(10), "completed here, FAILED in Slurm"),
        ("COMPLETED", at(0), at(8), "ended 120 s earlier in Slurm"),
        ("COMPLETED", at(0), at(15), "held its nodes for 300 s after its end"),
        ("COMPLETED", at(5), at(10), "began 300 s later in Slurm"),
        ("COMPLETED", "2026-11-22T11:50:00", at(10), "held its nodes for 600 s before it began"),
        ("COMPLETED", at(0), "Unknown", "still runs in Slurm"),
    ],
)
def test_what_differs_is_said(state: str, start: str, end: str, text: str) -> None:
    row = line("41", "x", state, start, end, f"coalloc:7.1.0:{CLAIM}")
    assert found([ours("7")], row) == [("7", "41", text)]


def test_the_last_attempt_counts() -> None:
    rows = [
        line("41", "x", "CANCELLED", at(0), at(0), f"coalloc:7.1.0:{CLAIM}"),
        line("43", "x", "COMPLETED", at(0), at(10), f"coalloc:7.3.0:{CLAIM}"),
        line("42", "x", "PREEMPTED", at(0), at(1), f"coalloc:7.2.0:{CLAIM}"),
    ]
    assert not found([ours("7")], *rows)


def test_a_claim_that_never_had_nodes_is_nobodys_run() -> None:
    """Without comments a withdrawn claim has the name of the job, and a start: its cancellation."""
    rows = [
        line("41", "prep", "CANCELLED by 999", at(0), at(0), nodes="None assigned"),
        line("42", "prep", "CANCELLED by 999", at(0), at(0, 2)),  # held, then withdrawn
        line("43", "prep", "COMPLETED", at(0, 1), at(10, 1)),
    ]
    assert not found([ours("7")], *rows)


def test_a_row_serves_one_job() -> None:
    """Two jobs of one name and one row: the one that began nearest to it has it."""
    told = found(
        [ours("7"), ours("8", at=30.0)], line("41", "prep", "COMPLETED", at(0), at(10, 30))
    )
    assert told == [("8", "", "Slurm has no such job")]


def test_jobs_unknown_here_are_named_if_they_ran_and_ended_then() -> None:
    rows = [
        line("41", "x", "COMPLETED", at(0), at(10), f"coalloc:9.1.0:{CLAIM}"),
        line("42", "x", "CANCELLED", "None", at(10), f"coalloc:10.1.0:{CLAIM}"),
        line("43", "x", "RUNNING", at(0), "Unknown", f"coalloc:11.1.0:{CLAIM}"),
        line("44", "x", "COMPLETED", at(0), at(10)),
    ]
    assert found([], *rows) == [("9", "41", "not in coalloc's accounts")]
    assert not found([], *rows, until=60.0)


def test_names_of_any_characters_are_read() -> None:
    (row,) = parse_accounts(line("41", f"a|b{DELIMITER}c", "COMPLETED", at(0), at(1)))
    assert row.name == f"a|b{DELIMITER}c"


@pytest.mark.parametrize(
    "text",
    ["41|ada|COMPLETED", line("", "x", "COMPLETED", at(0), at(1)), line("1", "", "", "x", "")],
)
def test_rubbish_is_refused_with_its_line(text: str) -> None:
    good = line("41", "x", "COMPLETED", at(0), at(1))
    with pytest.raises(ParseError, match="line 2"):
        list(parse_accounts(f"{good}\n{text}"))


def test_sacct_is_asked_in_utc_for_all_or_one() -> None:
    words = sacct_words(NOON, NOON + 3600.0)
    assert ",".join(FIELDS) in words
    assert words[-5:] == ("-S", "2026-11-22T12:00:00", "-E", "2026-11-22T13:00:00", "-a")
    assert sacct_words(NOON, NOON, "ada")[-2:] == ("-u", "ada")
