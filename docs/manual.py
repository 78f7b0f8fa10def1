"""Write man pages and shell completion from the parsers, into build/: ``make docs`` runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

import coalloc
from coalloc.cli import main as cli
from coalloc.daemon import main
from coalloc.executor import main as executor_main

BUILD = Path(__file__).resolve().parent.parent / "build"
PARSERS: Mapping[str, tuple[Callable[[], argparse.ArgumentParser], int]] = {
    "coalloc": (cli.build_parser, 1),
    "coallocd": (main.build_parser, 8),
    "coalloc-executor": (executor_main.build_parser, 8),
}
"""Command, its parser, the section of its page."""
SHELLS = {"bash": "{name}", "zsh": "_{name}"}


def pages() -> dict[str, str]:
    """Every generated file below build/ and its text."""
    out: dict[str, str] = {}
    for name, (build, section) in PARSERS.items():
        parser = build()
        out[f"man/{name}.{section}"] = man_page(parser, name, section)
        for shell, pattern in SHELLS.items():
            out[f"completion/{shell}/{pattern.format(name=name)}"] = shtab.complete(parser, shell)
    return out


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
