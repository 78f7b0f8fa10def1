"""Bytes of files that a user names."""

from __future__ import annotations

from pathlib import Path

from coalloc.model.errors import InputError


def read_bytes(path: Path, most: int) -> bytes:
    """The first bytes of a file, no more than so many.

    Raises
    ------
    InputError
        It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from error
