"""A copy of the store, checked and put back in its place; or what is whole of one, or an empty one.

Notes
-----
A copy that is put back is older than what the executors have seen, and `restore` makes it a
successor of itself:

- its epoch is ahead of every epoch that executors know, so that they welcome the restored daemon
  and refuse the one it replaces (an epoch counts starts; a restored one begins at the clock's
  seconds, where no count of starts gets);
- orders, jobs and events go on at numbers that nobody has used; the orders that the copy held back
  are dropped, since an executor may have carried them out long ago;
- a job that was being prepared waits again, one attempt earlier: whether that attempt ran is for
  its executor to say;
- every cluster is marked as unreconciled (`coalloc.core.jobs.after_restore`), executors are asked
  what they remember to have started (`coalloc.executor.started`), and rounds are paused
  until an operator has had a look.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from coalloc.adapters.runner import durable
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.jobs.after_restore import MARK, RESTORED
from coalloc.daemon.store import tables
from coalloc.daemon.store.backup import is_store
from coalloc.daemon.store.beginning import new_store
from coalloc.daemon.store.disk import make_private
from coalloc.daemon.store.errors import StoreBusyError, StoreCorruptError, StoreError, error_of
from coalloc.daemon.store.mark import mark_path
from coalloc.daemon.store.records_json import read_record
from coalloc.daemon.store.schema import MIGRATIONS, job_row, migrate
from coalloc.model.event_kinds import EventKind
from coalloc.model.values import replace

LOCK_BYTE, LOCK_BYTES = 0x4000_0002, 510
"""Where SQLite locks a file that it uses: https://sqlite.org/fileformat2.html#the_lock_byte_page"""
ORDERS_AHEAD = 1_000_000
NUMBERS_AHEAD = 10_000
"""Jobs and events that may have been numbered since the copy was made."""
EVENT = "event"
LAST_JOB = "last_job"


class Restored(Struct, frozen=True, kw_only=True):
    """Figures of a restored store."""

    kept: Path | None
    """Where the former store lies now."""
    active: int
    """Jobs that have not ended."""
    unprepared: int
    """Jobs that were being prepared, and wait again."""
    epoch: int
    next_job: int
    """Number of the next job."""
    left_out: int = 0
    """Rows that were not whole, as far as they were found."""


Source = Literal["backup", "damaged", "empty"]


def restore(
    backup: Path, store: Path, now: float | None = None, *, source: Source = "backup"
) -> Restored:
    """Put a copy in the place of a store that nobody uses; the former one is kept beside it.

    `backup` is as `write_copy` made it. Where the `source` is ``damaged`` it may be damaged, and be
    the store itself: what is whole of it is kept; for ``empty``, a store without any job, it is not
    read. The `store` may be damaged, or not be there. `StoreBusyError` while a process uses it,
    `StoreCorruptError` for a damaged copy; then it is as it was.
    """
    moment = time.time() if now is None else now
    fresh = store.with_name(f"{store.name}.restoring")
    try:
        with _alone(store):
            former = _numbers(store)
            fresh.unlink(missing_ok=True)
            left_out = 0
            if source == "backup":
                _copy_checked(backup, fresh)
            elif source == "damaged":
                left_out = _salvaged(backup, fresh)
            else:
                new_store(fresh)
            restored = _succeed(fresh, backup, former, moment)
            if os.geteuid() == 0:  # Root restores for the daemon's user.
                owner = (store if store.exists() else store.parent).stat()
                os.chown(fresh, owner.st_uid, owner.st_gid)
            durable.synchronise(fresh)
            kept = _swap(fresh, store, moment)
            durable.synchronise(store.parent)
    except OSError as error:
        raise error_of(error.errno or 0, f"{error.filename or store}") from error
    except sqlite3.Error as error:
        raise StoreError(f"{fresh}: {error}") from error
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    return replace(restored, kept=kept, left_out=left_out)


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Hold SQLite's own lock, so that no daemon begins meanwhile; damaged files have it too."""
    if not store.exists():
        yield
        return
    with open(store, "r+b", buffering=0) as file:
        # Of the open file, not of the process: that kind would end when we read the file and close.
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, LOCK_BYTE, LOCK_BYTES, 0)
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        except (BlockingIOError, PermissionError) as error:
            raise StoreBusyError(f"{store}: is in use; stop coallocd first") from error
        yield


@contextmanager
def _probed(store: Path, beside: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a store that may be damaged, with what its WAL holds."""
    probe = beside.with_name(f"{beside.name}.probe")
    try:
        for end in ("", "-wal"):
            if Path(f"{store}{end}").exists():
                make_private(Path(f"{probe}{end}"))
                shutil.copyfile(f"{store}{end}", f"{probe}{end}")
        with closing(sqlite3.connect(probe)) as connection:
            yield connection
    finally:
        for end in ("", "-wal", "-shm"):
            Path(f"{probe}{end}").unlink(missing_ok=True)


def _numbers(store: Path) -> dict[str, int]:
    """The highest numbers of a locked store, from what is whole of it."""
    if not store.exists():
        return {}
    with _probed(store, store) as connection:
        return _highest(connection)


def _highest(connection: sqlite3.Connection) -> dict[str, int]:
    meta = {row.key: row.value for row in tables.whole_rows(connection, tables.META).rows}
    events = (row.seq for row in tables.whole_rows(connection, tables.EVENTS).rows)
    ids = [row.id for row in tables.whole_rows(connection, tables.JOBS).rows]
    ids += [row.id for row in tables.whole_rows(connection, tables.ACCOUNTS).rows]
    known = highest(meta, max(events, default=0))
    jobs = (int(job.partition("_")[0].partition(".")[0]) for job in ids)
    return {**known, LAST_JOB: max(known.get(LAST_JOB, 0), max(jobs, default=0))}


def _copy_checked(backup: Path, fresh: Path) -> None:
    if not backup.is_file():
        raise StoreError(f"{backup}: there is no such file")
    if not is_store(backup):
        raise StoreCorruptError(f"{backup}: is no backup of a store")
    make_private(fresh)
    try:
        with (
            closing(sqlite3.connect(f"file:{backup}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(fresh)) as target,
        ):
            version = source.execute("PRAGMA user_version").fetchone()[0]
            if version > len(MIGRATIONS):
                raise StoreError(
                    f"{backup}: has schema {version}, this coalloc knows up to {len(MIGRATIONS)}"
                )
            source.backup(target)
            verdict = target.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise tables.DamagedError(str(verdict))
            tables.check_tallies(target)
            for _ in tables.examined(target, tables.EXAMINED_AT_ONCE):
                pass
    except (sqlite3.DatabaseError, tables.DamagedError) as error:
        what = " ".join(str(error).split())
        raise StoreCorruptError(
            f"{backup}: is damaged ({what}); take an older one, or what is whole of it with:"
            f" coalloc restore --salvage {backup}"
        ) from error


def _salvaged(damaged: Path, fresh: Path) -> int:
    """Copy what is whole; returns how many rows were found that are not."""
    if not damaged.is_file():
        raise StoreError(f"{damaged}: there is no such file")
    new_store(fresh)
    with (
        _probed(damaged, fresh) as source,
        closing(sqlite3.connect(fresh, isolation_level=None)) as target,
    ):
        tables.keep_tallies(target)
        target.execute("BEGIN")
        left_out = 0
        for table in tables.TABLES:
            found = tables.whole_rows(source, table)
            target.executemany(table.put, map(table.written_again, found.rows))
            left_out += found.left_out
        target.execute("COMMIT")
    return left_out


def _succeed(fresh: Path, backup: Path, former: dict[str, int], now: float) -> Restored:
    """Make the copy a successor of the store it was taken from."""
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        migrate(connection, fresh)
        tables.keep_tallies(connection)
        connection.execute("BEGIN IMMEDIATE")
        own = _highest(connection)
        meta, event = renumbered(own, former, own[LAST_JOB], now)
        _put(connection, tables.META, meta.items())
        connection.execute("DELETE FROM outbox")
        waiting = _unprepare(connection)
        told = json.dumps({"backup": str(backup)})
        _put(connection, tables.EVENTS, [(event, now, str(EventKind.STORE_RESTORED), "", told)])
        active = connection.execute("SELECT count(*) FROM jobs WHERE ended IS NULL").fetchone()[0]
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = DELETE")
    return Restored(
        kept=None,
        active=active,
        unprepared=waiting,
        epoch=int(meta["epoch"]),
        next_job=int(meta[LAST_JOB]) + 1,
    )


def _put(
    connection: sqlite3.Connection, table: tables.Table[Any], rows: Iterable[Iterable[Any]]
) -> None:
    connection.executemany(table.put, (table.written(*row) for row in rows))


def _unprepare(connection: sqlite3.Connection) -> int:
    """Jobs that were being prepared wait again, one attempt earlier; returns their number."""
    found = connection.execute(f"{tables.JOBS.select} WHERE ended IS NULL").fetchall()
    jobs = [read_record(row.body) for row in tables.JOBS.read(found)]
    waits = [unprepared(job) for job in jobs if job.state is JobState.PREPARING]
    _put(connection, tables.JOBS, map(job_row, waits))
    return len(waits)


def _swap(fresh: Path, store: Path, now: float) -> Path | None:
    """At every instant there is a store; the former one keeps the part that its WAL holds."""
    # It counts the commits of the former one.
    mark_path(store).unlink(missing_ok=True)
    if not store.exists():
        # A WAL without its store would be taken for the new one's.
        for left in (Path(f"{store}-wal"), Path(f"{store}-shm")):
            if left.exists():
                left.replace(f"{left}.alone")
        fresh.replace(store)
        return None
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    kept = store.with_name(f"{store.name}.before-{stamp}")
    number = 1
    while kept.exists():
        number += 1
        kept = store.with_name(f"{store.name}.before-{stamp}.{number}")
    wal = Path(f"{store}-wal")
    os.link(store, kept)
    if wal.exists():
        wal.replace(f"{kept}-wal")
    fresh.replace(store)
    return kept


def highest(meta: Mapping[str, str], event: int) -> dict[str, int]:
    """The numbers of a store that must not come again, by key; `ValueError` where one is none."""
    numbers = {
        key: int(value)
        for key, value in meta.items()
        if key in {"epoch", LAST_JOB} or key.startswith("seq.")
    }
    return {**numbers, EVENT: event}


def renumbered(
    own: Mapping[str, int], former: Mapping[str, int], last_job: int, now: float
) -> tuple[dict[str, str], int]:
    """Numbers that put a copy ahead of all that anybody has seen, and that of the event of it.

    `own` and `former` are `highest` of the copy, and of the store that it replaces: empty where
    that is unreadable. `last_job` is the highest number of a job in the copy.
    """
    high = {key: max(own.get(key, 0), former.get(key, 0)) for key in {*own, *former}}
    epoch = max(int(now), high.get("epoch", 0) + 1)
    meta = {
        "epoch": str(epoch),
        LAST_JOB: str(max(high.get(LAST_JOB, 0), last_job) + NUMBERS_AHEAD),
        "paused": "1",
        RESTORED: str(epoch),
    }
    for key, number in high.items():
        if key.startswith("seq."):
            meta[key] = str(number + ORDERS_AHEAD)
            meta[f"{MARK}{key.removeprefix('seq.')}"] = "1"
    return meta, high[EVENT] + NUMBERS_AHEAD


def unprepared(record: JobRecord) -> JobRecord:
    """Have a job that was being prepared wait, one attempt earlier; others stay as they are."""
    if record.state is not JobState.PREPARING:
        return record
    return replace(record.unplaced(), attempt=record.attempt - 1, rendezvous="")
