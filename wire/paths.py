"""Files of listening sockets: the folder they lie in, and whether one is still the socket's own."""

from __future__ import annotations

import os
from pathlib import Path

FileId = tuple[int, int]
"""Device and inode; a listening socket keeps its inode from being given to another file."""


def make_folder(path: Path, *, is_shared: bool) -> None:
    """Make a socket's folder, which others may pass only to a shared socket."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if is_shared else 0o700)


def file_id(path: Path) -> FileId | None:
    """Identify the file of this name; None: there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
