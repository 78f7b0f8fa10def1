"""What ``sacct`` prints."""

from __future__ import annotations

import pytest

from coalloc.adapters.slurm.parsers.records import ParseError
from tests.slurm.sacct_rows import DELIMITER, FIELDS, parse_accounts, sacct_words

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


def at(minute: int, second: int = 0) -> str:
    return f"2026-11-22T12:{minute:02}:{second:02}"


def test_a_row_names_the_part_that_it_was_made_for() -> None:
    rows = [
        line("41", "x", "COMPLETED", at(0), at(10), f"coalloc:9.2.0:{CLAIM}"),
        line("42", "x", "CANCELLED by 999", at(0), at(0), nodes="None assigned"),
        line("43", "x", "RUNNING", at(0, 1), "Unknown"),
    ]
    first, second, third = parse_accounts("\n".join(rows))
    assert first.token is not None
    assert (first.token.job, first.token.attempt, first.ended) == ("9", 2, NOON + 600.0)
    assert (second.state, second.started, second.token) == ("CANCELLED", None, None)
    assert (third.started, third.ended) == (NOON + 1.0, None)


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
