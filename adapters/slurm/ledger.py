"""The claims of parts that are over, so that their jobs are known should Slurm have them again."""

from __future__ import annotations

import contextlib
from pathlib import Path

KEPT = 5000
"""Claims in memory and, at least, on disk: the newest."""


class Ledger:
    """A file of claims, one on each line, newest last.

    Nothing depends on it but how soon a revived job's nodes are free again, so what cannot be
    read or written is left out.

    Parameters
    ----------
    path : Path
    most : int
        Claims that are kept.
    """

    def __init__(self, path: Path, most: int = KEPT) -> None:
        self._path, self._most = path, most
        self._order: dict[str, None] = {}
        with contextlib.suppress(OSError, ValueError):
            self._order = dict.fromkeys(path.read_text(encoding="ascii").split())
        self._trim()
        self._lines = len(self._order)
        self.claims = frozenset(self._order)

    def add(self, claim: str) -> None:
        """Keep one more."""
        self._order[claim] = None
        self._trim()
        self.claims = frozenset(self._order)
        self._lines += 1
        with contextlib.suppress(OSError):
            if self._lines > 2 * self._most:
                self._rewrite()
            else:
                with open(self._path, "a", encoding="ascii") as file:
                    file.write(f"{claim}\n")

    def _trim(self) -> None:
        while len(self._order) > self._most:
            del self._order[next(iter(self._order))]

    def _rewrite(self) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text("".join(f"{claim}\n" for claim in self._order), encoding="ascii")
        new.replace(self._path)
        self._lines = len(self._order)
