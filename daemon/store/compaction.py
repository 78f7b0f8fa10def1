"""Free pages of the store: kept in order from its creation, and given back in small steps.

Notes
-----
SQLite reuses the pages that deleted rows leave, and never shortens the file by itself. With
``auto_vacuum = INCREMENTAL``, which must be set before the first table is made, the last pages can
be moved into free ones a few at a time (https://sqlite.org/pragma.html#pragma_auto_vacuum).
"""

from __future__ import annotations

import sqlite3

INCREMENTAL = 2
SPARE_SHARE = 8
"""One page in so many may stay free: the next events and jobs need it again."""


def prepare(connection: sqlite3.Connection) -> None:
    """Have a store that is still empty keep its free pages in order."""
    connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")


def release(connection: sqlite3.Connection, at_most: int) -> int:
    """Shorten the store by free pages beyond its spare ones; returns how many."""
    pages, free = _count(connection, "page_count"), _count(connection, "freelist_count")
    wanted = min(free - pages // SPARE_SHARE, at_most)
    if wanted <= 0:
        return 0
    # `execute` would take one step of it, which moves one page
    connection.executescript(f"PRAGMA incremental_vacuum({wanted})")
    # The file is shortened when the WAL is moved into it; by much at once, that takes long.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return free - _count(connection, "freelist_count")


def _count(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
