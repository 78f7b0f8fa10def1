"""Starts that an executor remembers when it has forgotten the parts.

A daemon whose store is an older copy asks for them (`coalloc.core.jobs.after_restore`): what waits
in the copy may have run since.

Notes
-----
A line for each part that is removed: the store it belongs to, job, attempt, how it ended; some 30
bytes. The file begins anew at `MOST_BYTES`, and the one before it stays: between the newest 70,000
and 140,000 starts are known, which are a day and a half at one a second.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from coalloc.adapters.runner import durable
from coalloc.core.base.messages import Started
from coalloc.model.sites.parts import PartKey

MOST_BYTES = 2 << 20
TOLD_AT_ONCE = 2_000
STORE_LETTERS = 8
"""So much of a store's name tells it from another."""


class StartedFile:
    """The file, and the one before it."""

    def __init__(self, path: Path) -> None:
        self._path, self._before = path, path.with_name(f"{path.name}.before")
        self._is_new = self._is_unwritten = False

    def add(self, store: str, key: PartKey, how: str) -> None:
        """Write a start down; it survives this process, and more from `synchronise` on."""
        line = f"{store[:STORE_LETTERS]} {key.job} {key.attempt} {how}\n".encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(file).st_size
            # It begins a line of its own, whatever a crash has cut off before it.
            if os.write(file, b"\n" + line) != len(line) + 1:
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        finally:
            os.close(file)
        self._is_unwritten, self._is_new = True, self._is_new or not size
        if size >= MOST_BYTES:
            self.synchronise()
            os.replace(self._path, self._before)

    def synchronise(self) -> None:
        """Have what was written down on disk. Raises `OSError`."""
        if self._is_unwritten:
            durable.synchronise(self._path)
            if self._is_new:
                durable.synchronise(self._path.parent)
            self._is_new = self._is_unwritten = False

    def told(
        self, store: str, cluster: str, owed: Iterable[tuple[str, int, str]] = ()
    ) -> Iterator[Started]:
        """All that is remembered of one store, and more, to its daemon. Raises `OSError`."""
        starts = dict.fromkeys((*self._starts(store[:STORE_LETTERS]), *owed))
        pages = [*starts]
        for first in range(0, max(len(pages), 1), TOLD_AT_ONCE):
            page = tuple(pages[first : first + TOLD_AT_ONCE])
            yield Started(cluster=cluster, starts=page, is_last=first + TOLD_AT_ONCE >= len(pages))

    def _starts(self, store: str) -> Iterator[tuple[str, int, str]]:
        for path in (self._before, self._path):
            with suppress(FileNotFoundError):
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    fields = line.split(" ")
                    if len(fields) == 4 and fields[0] == store and fields[2].isdecimal():
                        yield fields[1], int(fields[2]), fields[3]
