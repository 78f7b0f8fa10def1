"""The option lines of scripts, read as sbatch reads them."""

from __future__ import annotations

from argparse import ArgumentTypeError as BadText

import pytest

from coalloc.cli.submit.script_lines import lines_of, words_of

SCRIPT = """\
#!/bin/sh
# about it
#COALLOC -n 4 --time=10
#COALLOC--job-name "a b" # the name
 #COALLOC -n 7
#PBS -l nodes=2
\u2028# no line ends here, and a command begins
#COALLOC -n 99
#COALLOC
"""


def test_options_end_at_the_first_command() -> None:
    lines = lines_of(SCRIPT.replace("\u2028", "  \v"), ("#COALLOC",))
    assert lines.read[:2] == [(3, " -n 4 --time=10"), (4, '--job-name "a b" # the name')]
    assert [number for number, _ in lines.read] == [3, 4, 8, 9]
    assert lines_of(SCRIPT, ("#COALLOC",)).late == [8]
    assert lines.other == {"#PBS": [6]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (' --job-name "a b" # the name', ["--job-name", "a b"]),
        ("\t-J a\\#b\f-n 4", ["-J", "a#b", "-n", "4"]),
        (" -J 'a\\b#c'", ["-J", "ab#c"]),
        (" -J a#b -n 4", ["-J", "a"]),
        ("\u00a0-n 4", ["\u00a0-n", "4"]),
        (" -o \"a b\"c'd'", ["-o", "a bcd"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    # "-J a#b -n 4": the rest of the line is a comment
    assert words_of(text) == words


@pytest.mark.parametrize("text", [" -J ''", ' -J "open', " -n 2 : -n 3", " hetjob", " -J packjob"])
def test_what_sbatch_refuses(text: str) -> None:
    with pytest.raises(BadText):
        words_of(text)
