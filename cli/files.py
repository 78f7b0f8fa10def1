"""The files that commands read and write.

What is wrong with one is a `CommandError` of one line, with its path; the exit code is 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coalloc.cli.command import BAD_USAGE, CommandError
from coalloc.model.errors import InputError

if TYPE_CHECKING:
    from coalloc.model.plan import Plan
    from coalloc.model.snapshot import Snapshot

Read = TypeVar("Read")

LARGEST_SCRIPT = 4 << 20
"""Bytes; as sbatch's default."""


def script_of(path: Path) -> str:
    """The text of a script."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LARGEST_SCRIPT + 1)
    except OSError as error:
        hint = ""
        if isinstance(error, FileNotFoundError) and "/" not in str(path):
            hint = "; to submit a command write: coalloc submit [options] -- COMMAND"
        raise CommandError(f"{path}: {error.strerror}{hint}", BAD_USAGE) from error
    return read_script(raw, str(path))


def read_script(raw: bytes, shown: str) -> str:
    """The text of a script, if it is one; bytes that are not UTF-8 are surrogates in it."""
    if not raw.strip():
        raise CommandError(f"{shown}: is empty", BAD_USAGE)
    if raw[:4] == b"\x7fELF":
        raise CommandError(
            f"{shown}: is a program, no script; write: coalloc submit [options] -- {shown}",
            BAD_USAGE,
        )
    if raw[:5] == b"\xef\xbb\xbf#!":
        what = "begins with a byte order mark; to remove it: LC_ALL=C sed -i '1s/^...//' FILE"
        raise CommandError(f"{shown}: {what}", BAD_USAGE)
    if raw[:2] != b"#!":
        raise CommandError(
            f"{shown}: is no script: its first line must begin with #! and the interpreter's "
            "path, such as #!/bin/sh",
            BAD_USAGE,
        )
    if len(raw) > LARGEST_SCRIPT:
        raise CommandError(f"{shown}: is larger than {LARGEST_SCRIPT >> 20} MiB", BAD_USAGE)
    if b"\r\n" in raw:
        raise CommandError(f"{shown}: has DOS line breaks; convert it with dos2unix", BAD_USAGE)
    # other bytes reach the job as they are
    text = raw.decode("utf-8", "surrogateescape")
    if "\0" in text:
        raise CommandError(f"{shown}: holds a zero byte", BAD_USAGE)
    return text


def read_json(path: Path) -> Any:
    """A JSON file; "-" is standard input."""
    from coalloc.adapters.formats.files import HEAD, misfit

    shown = "standard input" if str(path) == "-" else str(path)
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        if what := misfit(raw[:HEAD]):
            raise CommandError(f"{shown}: {what}", BAD_USAGE)
        return json.loads(raw)
    except OSError as error:
        raise CommandError(f"{shown}: {error.strerror}", BAD_USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{shown}: is not UTF-8 text", BAD_USAGE) from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{shown}: is not JSON: {error}", BAD_USAGE) from error


def write_text(text: str, path: Path | None) -> None:
    """Write to a file, or to standard output where none is named."""
    if path is None or str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def load_snapshot(path: Path) -> Snapshot:
    """A snapshot from a file; "-" is standard input."""
    from coalloc.model.formats.snapshot_json import read_snapshot

    return _load(path, read_snapshot)


def load_plan(path: Path) -> Plan:
    """A plan from a file."""
    from coalloc.model.formats.plan_json import read_plan

    return _load(path, read_plan)


def _load(path: Path, read: Callable[[Any], Read]) -> Read:
    try:
        return read(read_json(path))
    except InputError as error:
        raise CommandError(f"{path}: {error}", BAD_USAGE) from error
