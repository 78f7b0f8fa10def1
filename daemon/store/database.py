"""The connection to the store's file: opened with checks, made again after errors of the disk.

Notes
-----
One connection in WAL mode, with exclusive locking: a second process is refused, and the WAL defect
of SQLite 3.7-3.51.2, which needs two writing connections, cannot occur. The connection belongs to
the thread that made it; only a backup reads through it in another.

Checkpoint policy: SQLite moves the WAL into the database after every 1000 pages; a WAL that a
burst made large is cut back to 64 MiB, and to nothing when the store is closed.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from coalloc.daemon.store.beginning import former_store, new_store
from coalloc.daemon.store.disk import mount_of, write_error
from coalloc.daemon.store.errors import (
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    error_of,
    unusable,
)
from coalloc.daemon.store.mark import Mark
from coalloc.daemon.store.schema import APPLICATION_ID, check_schema, migrate
from coalloc.daemon.store.tables import (
    DamagedError,
    check_tallies,
    count_commit,
    keep_tallies,
    written_commits,
)

BUSY_TIMEOUT_S = 2.0
"""How long a start waits for the former daemon to let go of the file, seconds."""


class Database:
    """The one connection to a database on a local disk; places and errors are those of `Store`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.get_ident()
        mount = mount_of(path)
        if mount is not None and mount.is_network:
            raise StoreError(
                f"{path}: lies on a network file system ({mount.type} at {mount.point}), where"
                " SQLite may lose data; set state_dir to a local disk"
            )
        self._mark = Mark(path)
        with self.errors_translated():
            if not os.path.lexists(path):
                self._begin()
            self._file = _file_id(path)
            self._connect(check=True)

    def _begin(self) -> None:
        witness = former_store(self.path)
        if witness is not None:
            raise self._unusable(f"is missing, and {witness} says that there was one")
        new_store(self.path)

    def open(self) -> sqlite3.Connection:
        """The connection, for the thread that made it; made again where an error has closed it."""
        self._check_thread()
        if self._connection is None:
            self._connect(check=False)
        assert self._connection is not None
        return self._connection

    def check_place(self) -> None:
        """Look whether its file is still found under its name. Raises `StoreError`."""
        if _file_id(self.path) != self._file:
            how = "another file is in its place" if os.path.lexists(self.path) else "it is gone"
            raise StoreError(f"{self.path}: {how}; what this daemon would write there is lost")

    def shared(self) -> sqlite3.Connection:
        """The connection, to read through from any thread."""
        return self._connection or self.open()

    def close(self) -> None:
        """Move the WAL into the database and let go of the file; again is harmless."""
        connection = self._connection
        if connection is not None:
            self._check_thread()
            # a last checkpoint that fails: the WAL still holds every commit
            with suppress(sqlite3.Error):
                connection.close()
            self._connection = None
        self._mark.close()

    def _connect(self, *, check: bool) -> None:
        if check and not self.path.stat().st_size:
            raise self._unusable("is empty")
        connection = sqlite3.connect(
            # never one that is made here: a store begins under another name
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            # `backup` reads through it in a thread of its own; see `_check_thread` for the rest.
            check_same_thread=sqlite3.threadsafety < 3,
        )
        try:
            # Before the first access: then the WAL's index lives in our memory, not in a file.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            if check:
                self._check_owner(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("PRAGMA cache_size = -16000")
            if check:
                self._check(connection)
            keep_tallies(connection)
            self._commits = written_commits(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise self._unusable("is damaged, or a database of another program")
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            raise self._unusable("is damaged (it has no schema)")

    def _check(self, connection: sqlite3.Connection) -> None:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise self._corrupt(verdict)
        migrate(connection, self.path)
        check_schema(connection)
        written, acknowledged = check_tallies(connection), self._mark.read()
        if written < acknowledged:
            raise self._unusable(
                f"lacks the last {acknowledged - written} of its {acknowledged} commits (its WAL"
                " is lost, or it is an older copy)"
            )

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise StoreError(f"{self.path}: is in use by the thread that opened it")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is executed within, or nothing."""
        connection = self.open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            count_commit(connection, self._commits + 1)
            connection.execute("COMMIT")
            self._commits += 1
            self._mark.write(self._commits)
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except DamagedError as error:
            raise self._corrupt(str(error)) from error
        except OSError as error:
            raise error_of(error.errno or errno.EIO, str(self.path)) from error

    def _translated(self, error: sqlite3.Error) -> StoreError:
        path = self.path
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")):
            # SQLite's handle may no longer match the file; the next use makes a new one.
            self.close()
            code = write_error(path.parent)
            return error_of(code, f"{path}: {error}") if code else self._corrupt(str(error))
        if name.startswith("SQLITE_FULL"):
            return StoreFullError(f"{path}: {error}")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreBusyError(f"{path}: is in use by another process")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")) or (
            not name or "no such" in str(error)  # a text that is no UTF-8; a table that is gone
        ):
            return self._corrupt(str(error))
        return StoreError(f"{path}: {error}")

    def _corrupt(self, what: str) -> StoreCorruptError:
        return self._unusable(f"is damaged ({' '.join(what.split())})")

    def _unusable(self, what: str) -> StoreCorruptError:
        return unusable(self.path, what)


def _file_id(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
