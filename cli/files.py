"""Reading a script before it is submitted: what could not run is refused here, in one line."""

from __future__ import annotations

from pathlib import Path

from coalloc.cli.command import BAD_USAGE, CommandError

LARGEST_SCRIPT = 4 << 20
"""Bytes; as sbatch's default."""


def script_of(path: Path) -> str:
    """The text of a script.

    Raises
    ------
    CommandError
        It is missing, cannot be read, or is no script.
    """
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
    """The text of a script, if it is one.

    Raises
    ------
    CommandError
    """
    if not raw.strip():
        raise CommandError(f"{shown}: is empty", BAD_USAGE)
    if raw[:4] == b"\x7fELF":
        raise CommandError(
            f"{shown}: is a program, no script; write: coalloc submit [options] -- {shown}",
            BAD_USAGE,
        )
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
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise CommandError(f"{shown}:{line}: is not UTF-8 text", BAD_USAGE) from error
    if "\0" in text:
        raise CommandError(f"{shown}: holds a zero byte", BAD_USAGE)
    return text
