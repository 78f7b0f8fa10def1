"""Patterns of output files: sbatch's marks, of a job and of its processes."""

from __future__ import annotations

import pytest

from coalloc.adapters.runner.rank import output_path
from coalloc.model.output_names import filled, marks_of, pattern_of_ranks, rank_marks, strange_marks


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("", ""),
        ("out", "out"),
        ("%j.out", "12_3.out"),
        ("%A_%a.out", "12_3.out"),
        ("%A/%3a-%5A", "12/003-00012"),
        ("%x-%u.%r", "a_b-ann.7"),  # a slash would name a folder
        ("%t %2t %02r %012r", "7 07 07 0000000007"),  # ten figures at most, as in sbatch
        ("%N-%3N %J", "n1-n1 12_3"),
        ("%%j %%%j 100%", "%j %12_3 100%"),
        ("%q%n%s%3j", "%q%n%s12_3"),  # unknown marks stay; a width is for numbers
    ],
)
def test_a_pattern_names_a_file(pattern: str, name: str) -> None:
    marks = marks_of("12_3", "a/b", "ann")
    assert filled(pattern, marks | rank_marks(7, "a/n1.site")) == name
    # in two steps, as an executor and a process do it
    left = pattern_of_ranks(pattern, "12_3", "a/b", "ann")
    assert output_path(left, "12_3", 7, "a/n1.site") == name


def test_what_comes_from_a_name_is_no_mark() -> None:
    left = pattern_of_ranks("%x.%r", "12", "%r%%t", "ann")
    assert left == "%%r%%%%t.%r"
    assert output_path(left, "12", 7, "n1") == "%r%%t.7"


def test_what_is_started_once_has_marks_of_its_own() -> None:
    assert pattern_of_ranks("%n %3n %s %N", "12", "", "ann", once=True) == "0 000 batch %N"
    assert strange_marks("%j%3q%%s%s", once=True) == ["%3q"]
    assert strange_marks("%j%s", once=False) == ["%s"]


def test_a_job_in_no_array_has_the_index_0() -> None:
    assert filled("%A_%a", marks_of("12", "", "")) == "12_0"
    assert filled("%A_%a", marks_of("12.two_3", "", "")) == "12.two_3_0"
