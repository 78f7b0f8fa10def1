"""Write man pages and shell completion from the parsers, into build/: ``make docs`` runs it.

The page of the configuration is written from ``etc/coallocd.toml``, which has every key.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import shtab
from argparse_manpage.manpage import Manpage

import coalloc
from coalloc.cli import main as cli
from coalloc.daemon import main
from coalloc.executor import main as executor_main

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PARSERS: Mapping[str, tuple[Callable[[], argparse.ArgumentParser], int]] = {
    "coalloc": (cli.build_parser, 1),
    "coallocd": (main.build_parser, 8),
    "coalloc-executor": (executor_main.build_parser, 8),
}
"""Command, its parser, the section of its page."""
SHELLS = {"bash": "{name}", "zsh": "_{name}", "fish": "{name}.fish"}
JOBS = "coalloc queue --noheader -o jobid --timeout 2 2>/dev/null"
CLUSTERS = "coalloc nodes --timeout 2 2>/dev/null | awk 'NF == 0 {exit} NR > 1 {print $1}'"
POLICIES = "coalloc policies | awk '/^  [a-z]/ {print $1}'"
VALUES: Mapping[tuple[str, str], tuple[str, str]] = {
    **dict.fromkeys((("job", "JOB"), ("jobs", "JOB"), ("jobs", "JOBS")), ("jobs", JOBS)),
    **dict.fromkeys(
        (
            *(("clusters", "NAMES"), ("clusters", "CLUSTER"), ("cluster", "CLUSTER")),
            *(("targets", "CLUSTER|NODES"), ("cluster", "NAME")),
        ),
        ("clusters", CLUSTERS),
    ),
    **dict.fromkeys((("policy", "NAME"), ("policy", "P[,P...]")), ("policies", POLICIES)),
}
"""By the name and metavar of an argument: what its values are, and what lists them."""


def pages() -> dict[str, str]:
    """Every generated file below build/ and its text."""
    out = {"man/coallocd.toml.5": config_page((ROOT / "etc" / "coallocd.toml").read_text())}
    for name, (build, section) in PARSERS.items():
        parser = build()
        out[f"man/{name}.{section}"] = man_page(parser, name, section)
        complete_values(parser)
        for shell, pattern in SHELLS.items():
            out[f"completion/{shell}/{pattern.format(name=name)}"] = shtab.complete(parser, shell)
    return out


def complete_values(parser: argparse.ArgumentParser) -> None:
    """Have jobs, clusters and policies completed, and files where a path is asked for."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                complete_values(command)
        elif (found := VALUES.get((action.dest, str(action.metavar)))) is not None:
            action.complete = listed(*found)  # type: ignore[attr-defined]
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def listed(kind: str, command: str) -> dict[str, object]:
    """A completion by the words that a command prints.

    shtab's own runs it for zsh when the completion is loaded, and not when Tab is pressed.
    """
    found: dict[str, Any] = dict(shtab.cmd(command))
    words = f'compadd -- ${{(f)"$({command})"}}'
    own = {"zsh": f"_coalloc_{kind}() {{\n  {words}\n}}"}
    return {**found, "zsh": f"_coalloc_{kind}", "preamble": {**found["preamble"], **own}}


def man_page(parser: argparse.ArgumentParser, name: str, section: int) -> str:
    """The command's manual page."""
    parser.man_short_description = (parser.description or name).splitlines()[0]  # type: ignore[attr-defined]
    facts = {
        "prog": name,
        "project_name": "coalloc",
        "version": coalloc.__version__,
        "manual_section": str(section),
        "manual_title": "coalloc",
    }
    return str(Manpage(parser, format="pretty", _data=facts))


def config_page(text: str) -> str:
    """The page of the configuration, in the order of the file."""
    return "\n".join(_config_lines(text)) + "\n"


def _config_lines(text: str) -> Iterator[str]:
    yield f'.TH COALLOCD.TOML 5 "" "coalloc {coalloc.__version__}" coalloc'
    yield ".SH NAME"
    yield r"coallocd.toml \- configuration of coallocd, coalloc-executor and coalloc"
    yield ".SH DESCRIPTION"
    said: list[str] = []
    section = ""
    for line in text.splitlines():
        given = re.fullmatch(r"#?(\w+) = (.*)", line)
        head = re.fullmatch(r"#?(\[+[\w.]+\]+)", line)
        if given:
            yield from (".TP", rf"\fB{given[1]}\fR = {_roff(given[2])}", *map(_roff, said))
            said = []
        elif head:
            section = head[1]
            yield from (f".SH {_roff(section)}", *map(_roff, said))
            said = []
        elif line.startswith("# "):
            said.append(line[2:])
        elif not line and not section and said:
            yield from map(_roff, said)
            said = []
    yield ".SH SEE ALSO"
    yield ".BR coallocd (8), coalloc-executor (8), coalloc (1)"


def _roff(text: str) -> str:
    """A line as troff takes it: no command, no hyphen for a minus."""
    out = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{out}" if out.startswith((".", "'")) else out


def write() -> int:
    """Write them all; returns the exit code."""
    for name, text in pages().items():
        path = BUILD / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(BUILD.parent))
    return 0


if __name__ == "__main__":
    sys.exit(write())
