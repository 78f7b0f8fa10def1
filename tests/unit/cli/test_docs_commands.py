"""Every command line of ours in the documentation is one that the parsers take.

What stands in a fenced block is parsed as a whole. What stands in a sentence, in back-ticks, may be
the beginning of a command: its subcommand and options must exist.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from coalloc.cli import main as cli
from coalloc.cli.command import CommandError
from coalloc.daemon import main as daemon
from coalloc.executor import main as executor

ROOT = Path(__file__).resolve().parents[3]
# History tells of commands as they were.
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/*/README.md"))
    if path.name != "CHANGELOG.md" and "history" not in path.parts
)
PARSERS = {
    "coalloc": cli.build_parser,
    "coallocd": daemon.build_parser,
    "coalloc-executor": executor.build_parser,
}
FENCED = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:coalloc|coallocd|coalloc-executor) [^`]+)`")
SHELLS = ("sh", "bash", "console")
BEFORE = re.compile(r"[A-Z_][A-Z_0-9]*=.*|sudo|exec|time|env|nohup|runuser|&&?|\|\|?|;")
JOB = "1"


@cache
def parser_of(program: str) -> argparse.ArgumentParser:
    return PARSERS[program]()


def typed(kind: str, block: str) -> Iterator[str]:
    """The lines of a block that are typed, each with those that it goes on in."""
    text = re.sub(r"\\\n(> )?", " ", block)
    here = ""
    for line in text.splitlines():
        if here:
            here = "" if line.removeprefix("> ").strip() == here else here
        elif kind != "console" or line.startswith(("$ ", "# coalloc")):
            line = re.sub(r"^[$#] ", "", line) if kind == "console" else line
            found = re.search(r"<<-?\s*'?(\w+)'?", line)
            here = found[1] if found else ""
            yield re.sub(r"<<-?\s*'?\w+'?", "", line)


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of ours in a line of shell."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from simple_commands(inner)
    lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", JOB, line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    redirected = False
    for word in [*lexer, ";"]:
        if set(word) <= set(";|&()"):
            yield from ours(words)
            words = []
        elif set(word) <= set("<>&"):
            redirected = True
            if words and words[-1] in ("1", "2"):
                words.pop()
        elif redirected:
            redirected = False
        else:
            words.append(word)


def ours(words: list[str]) -> Iterator[list[str]]:
    while words and BEFORE.fullmatch(words[0]):
        words = words[1:]
    if words and words[0].rpartition("/")[2] in PARSERS:
        yield [words[0].rpartition("/")[2], *words[1:]]


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the parser says against a command; empty: nothing."""
    # A name in capitals stands for a value.
    values = [JOB if re.fullmatch(r"[A-Z][A-Z_]*", word) else word for word in words[1:]]
    for arguments in (words[1:], values):
        try:
            parser_of(words[0]).parse_args(arguments)
        except CommandError as error:
            said = str(error)
        except SystemExit as end:
            said = capsys.readouterr().err.strip().rpartition("\n")[2]
            if end.code in (0, None):
                return ""
        else:
            return ""
    return said


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def unknown(words: list[str]) -> list[str]:
    """Subcommand and options of a command that do not exist."""
    parser = parser_of(words[0])
    rest = words[1:]
    while rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]) and (choices := commands_of(parser)):
        if rest[0] not in choices:
            return rest[:1]
        parser, rest = choices[rest[0]], rest[1:]
    if "--" in rest:
        rest = rest[: rest.index("--")]
    named = [
        re.split("[=|]", word.strip("[],"))[0] for word in rest if word.startswith(("-", "[-"))
    ]
    options = parser._option_string_actions
    return [
        name
        for name in named
        if name not in options and not re.fullmatch(r"-|-\d.*|-[a-zA-Z].+", name)
    ]


def test_documents_are_found() -> None:
    assert {"README.md", "docs/slurm.md", "docs/operations/queue.md"} <= set(DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_typed_is_taken(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = []
    for kind, block in FENCED.findall((ROOT / document).read_text(encoding="utf-8")):
        if kind not in SHELLS:
            continue
        for line in typed(kind, block):
            if "coalloc" not in line:
                continue
            for words in simple_commands(line):
                if said := refusal(words, capsys):
                    refused.append(f"{line}: {said}")
    assert not refused


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_mentioned_exists(document: str) -> None:
    text = FENCED.sub("", (ROOT / document).read_text(encoding="utf-8"))
    wrong = []
    for span in SPAN.findall(text):
        words = " ".join(span.split()).replace("'", "").replace('"', "").split()
        if names := unknown(words):
            wrong.append(f"{span}: {names}")
    assert not wrong


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("coalloc queue | less", [["coalloc", "queue"]]),
        (
            "sudo coallocd --warm && coalloc why 3 > out 2>&1",
            [["coallocd", "--warm"], ["coalloc", "why", "3"]],
        ),
        (
            "A=1 .venv/bin/coalloc wait $(coalloc submit -- true)  # a remark",
            [["coalloc", "submit", "--", "true"], ["coalloc", "wait", "1"]],
        ),
        ("echo coalloc queue", []),
    ],
)
def test_commands_are_found_in_shell(line: str, expected: list[list[str]]) -> None:
    assert list(simple_commands(line)) == expected


def test_what_does_not_exist_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--nonsense" in refusal(["coalloc", "queue", "--nonsense"], capsys)
    assert refusal(["coalloc", "why", "JOB"], capsys) == ""
    assert unknown(["coalloc", "gone", "--long"]) == ["gone"]
    assert unknown(["coalloc", "queue", "--gone=3", "--long"]) == ["--gone"]
