"""Files that are on disk on return, and survive a loss of power from then on.

Imports the standard library only: a part's runner uses it too.

Notes
-----
``fsync`` of a file makes its content durable, not its name. A file that was created or renamed has
its former name again, or none, after a loss of power, until its folder is synchronised too.
"""

from __future__ import annotations

import contextlib
import os


def write(path: str | os.PathLike[str], content: bytes, mode: int = 0o600) -> None:
    """Write a file whole or not at all; what it held before stays until then. Raises `OSError`."""
    folder, name = os.path.split(os.fspath(path))
    partial = os.path.join(folder, f".{name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial)
    try:
        with open(os.open(partial, flags, mode), "wb") as file:
            file.write(content)
        put(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def put(written: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Have a file of the same folder take the place of another, or of none. Raises `OSError`."""
    synchronise(written)
    os.replace(written, path)
    synchronise(os.path.dirname(os.fspath(path)) or ".")


def make_folder(path: str | os.PathLike[str], mode: int = 0o700) -> None:
    """Make a folder, and those above it as the umask has it, where they are not there yet."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_folder(parent, 0o777)  # the jobs of other users pass through a folder of parts
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    synchronise(parent)


def synchronise(path: str | os.PathLike[str]) -> None:
    """Synchronise the content of a file, or the names in a folder. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
