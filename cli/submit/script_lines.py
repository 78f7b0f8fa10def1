"""Pure readers of a script: its lines of options, byte by byte as sbatch reads, and programs."""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError as BadText
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from coalloc.cli.command import Parser
from coalloc.cli.submit.sbatch_words import HETEROGENEOUS, WORDS

SBATCH, COALLOC = "#SBATCH", "#COALLOC"
OTHERS = ("#PBS", "#BSUB", "#SLURM")
"""Lines that sbatch reads, too, where they have options."""
BLANKS = " \t\v\f\r\n"
"""Others, such as no-break blanks, are letters to sbatch."""
_OPTION = re.compile(r"[ \t]+-", re.ASCII)


class Said(NamedTuple):
    """Options in one place."""

    where: str
    """Beginning of a message on it."""
    words: list[str]


class Lines(NamedTuple):
    """Lines of a script, each with its number."""

    read: list[tuple[int, str]]
    """What follows the prefixes, up to the first command."""
    late: list[int]
    """Behind the first command."""
    other: dict[str, list[int]]
    """Of other batch systems, by their prefix."""


def lines_of(script: str, prefixes: tuple[str, ...]) -> Lines:
    """The lines that hold options; as in sbatch, they end at the first command."""
    out = Lines([], [], {})
    is_over = False
    for number, line in enumerate(script.split("\n"), 1):
        prefix = next((each for each in prefixes if line.startswith(each)), None)
        other = next((each for each in OTHERS if line.startswith(each)), None)
        if prefix is not None and is_over:
            if _OPTION.match(line, len(prefix)):
                out.late.append(number)
        elif prefix is not None:
            out.read.append((number, line[len(prefix) :]))
        elif other is not None and not is_over:
            if _OPTION.match(line, len(other)):
                out.other.setdefault(other, []).append(number)
        elif (text := line.strip(BLANKS)) and not text.startswith("#"):
            is_over = True
    return out


def words_of(text: str) -> list[str]:
    """The words of a line, in sbatch's quotes."""
    out: list[str] = []
    at = 0
    while True:
        while at < len(text) and text[at] in BLANKS:
            at += 1
        if at == len(text) or text[at] == "#":
            return out
        word, at = _word(text, at)
        if not word:
            raise BadText("sbatch knows no empty word; leave the option out, or write --option=")
        if word in HETEROGENEOUS or word.startswith(":"):
            raise BadText(f"{word}: jobs of several components are not run here")
        out.append(word)


def _word(text: str, at: int) -> tuple[str, int]:
    """One word, and where it ends: backslashes count in quotes, too."""
    word, quote = "", ""
    while at < len(text) and (quote or text[at] not in BLANKS):
        letter = text[at]
        if letter == "\\":
            at += 1
            if quote or text[at : at + 1] not in BLANKS:
                word += text[at : at + 1]
            else:
                break  # a blank ends a word all the same
        elif quote and letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        elif letter == "#" and not quote:
            break
        else:
            word += letter
        at += 1
    if quote:
        raise BadText(f"no closing quotation {quote}")
    return word, at


def options_of(
    words: Iterable[str], parser: Parser, completed: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Each option in full and joined with its value, or what is wrong, as getopt_long reads them.

    Of the two texts one is empty. `completed` gives a long option that the parser does not know in
    full.
    """
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word in {"-", "--"}:
            yield "", f"{word!r} is no option; only options may stand here"
            return  # nor is to sbatch what follows
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            flag = flag if parser.takes(flag) else completed(flag)
        else:
            flag, value = word[:2], word[2:]
            equals = value
        takes = parser.takes(flag)
        if takes == "none" and value and not word.startswith("--"):
            left.insert(0, f"-{value}")
            value = equals = ""
        if takes == "needed" and not equals and left:
            value = equals = left.pop(0)
        if takes is None:
            yield "", f"unrecognized arguments: {word}"
            return  # what follows may be its value
        elif takes == "needed" and not equals:
            yield "", f"argument {parser.whole(flag)}: expected one argument"
        elif takes == "none" and equals:
            yield "", f"argument {parser.whole(flag)}: takes no value"
        else:
            yield parser.whole(flag) + ("" if takes == "none" else f"={value}"), ""


def variables_of(environ: Mapping[str, str]) -> Iterator[Said]:
    """Options in sbatch's input variables."""
    for word in WORDS:
        for name in word.variables.split():
            value, flag = environ.get(name), word.flags[-1]
            if value is None:
                continue
            if word.value == "none":
                if value in {"", "yes"} or (value.isdigit() and int(value)):
                    yield Said(f"{name}: ", [flag])
            elif word.value == "optional" and not value:
                yield Said(f"{name}: ", [flag])
            else:
                yield Said(f"{name}: ", [f"{flag}={value}"])


def unknown_variables(environ: Iterable[str]) -> list[str]:
    """Variables named as sbatch's are that it does not read."""
    known = {name for word in WORDS for name in word.variables.split()}
    ours = (name for name in environ if name.startswith("SBATCH_") and name not in known)
    return [name for name in ours if not name.startswith("SBATCH_MEM_BIND_")]


# fmt: off
BUILTIN = frozenset({
    ".", ":", "alias", "bg", "break", "case", "cd", "command", "continue", "do", "done",
    "echo", "else", "eval", "exec", "exit", "export", "false", "fg", "fi", "for", "function",
    "getopts", "hash", "if", "in", "jobs", "kill", "printf", "pwd", "read", "return",
    "select", "set", "shift", "source", "test", "then", "time", "times", "trap", "true",
    "type", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
})
# fmt: on
"""Words that shells know by themselves; `true` and others are programs, too, but need not be."""
SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
PLAIN_LINE = re.compile(r"(?:exec +|\w+=[\w./:+-]* +)*([\w./+-]+)(?: [\w./:+=@%, -]*)?")
"""A command without any syntax of the shell."""


def programs(text: str) -> list[str]:
    """Programs that a script is certain to execute: its interpreter, and its one plain command.

    Of a shell script with more in it nothing is said: commands may be functions, or be skipped.
    """
    first, *lines = text.splitlines() or [""]
    words = first.removeprefix("#!").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    commands = [line.strip() for line in lines]
    commands = [line for line in commands if line and not line.startswith("#")]
    found = words[:1]
    if words and os.path.basename(words[0]) in SHELLS and len(commands) == 1:
        plain = PLAIN_LINE.fullmatch(commands[0])
        if plain is not None and plain[1] not in BUILTIN:
            found.append(plain[1])
    return found
