"""The number of the last commit in a small file beside the store.

Notes
-----
SQLite takes a WAL that is missing, or not whole, for one that ends there: the store is then as it
was some commits ago. The mark is written after each commit and without a sync, which costs a
microsecond: it survives a killed daemon. After a loss of power it may be older than the store,
never newer, so what it says is never a false alarm.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from zlib import crc32

ENDING = "-mark"


def mark_path(store: Path) -> Path:
    """The file beside a store."""
    return Path(f"{store}{ENDING}")


class Mark:
    """The mark of one store; the file is made with the first commit."""

    def __init__(self, store: Path) -> None:
        self._path = mark_path(store)
        self._file: int | None = None

    def read(self) -> int:
        """The number of the last commit, as far as it is known; else 0."""
        try:
            number, _, check = self._path.read_bytes().partition(b" ")
            return int(number) if int(check) == crc32(number) else 0
        except (OSError, ValueError):
            return 0

    def write(self, commit: int) -> None:
        """Mark a commit that is on disk; what cannot be written is left as it is."""
        with suppress(OSError):
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o600)
            number = b"%020d" % commit
            os.pwrite(self._file, b"%b %010d\n" % (number, crc32(number)), 0)

    def close(self) -> None:
        """Let go of the file; again is harmless."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
