"""The store's file: a script per schema version, the statement of each effect, its free pages."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from coalloc.core.base import effects
from coalloc.core.base.records import JobRecord
from coalloc.daemon.store import tables
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.records_json import account_object, write_object
from coalloc.daemon.store.tables import UsedDay
from coalloc.wire.codec import encode_order

APPLICATION_ID = 0x636F616C
"""Marks the file as ours ("coal"), so that another program's database is never touched."""


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE jobs (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, ended REAL,"
        " flow TEXT, crc INTEGER NOT NULL, body TEXT NOT NULL)",
        "CREATE INDEX jobs_active ON jobs (seq) WHERE ended IS NULL",
        "CREATE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL",
        "CREATE INDEX jobs_flow ON jobs (flow) WHERE flow IS NOT NULL",
        "CREATE TABLE launches (job TEXT PRIMARY KEY, crc INTEGER NOT NULL, body TEXT NOT NULL)",
        "CREATE TABLE tokens (user TEXT NOT NULL, token TEXT NOT NULL, job TEXT NOT NULL,"
        " crc INTEGER NOT NULL, PRIMARY KEY (user, token)) WITHOUT ROWID",
        "CREATE INDEX tokens_job ON tokens (job)",
        "CREATE TABLE promises (job TEXT PRIMARY KEY, crc INTEGER NOT NULL, body TEXT NOT NULL)"
        " WITHOUT ROWID",
        "CREATE TRIGGER jobs_dropped AFTER DELETE ON jobs BEGIN"
        " DELETE FROM launches WHERE job = OLD.id; DELETE FROM tokens WHERE job = OLD.id;"
        " DELETE FROM promises WHERE job = OLD.id; END",
        # With a workflow go the commands of its tasks, "17.1" and so on; "/" follows ".".
        "CREATE TRIGGER workflow_dropped AFTER DELETE ON jobs WHEN OLD.flow IS NULL BEGIN"
        " DELETE FROM launches WHERE job > OLD.id || '.' AND job < OLD.id || '/'; END",
        "CREATE TABLE outbox (cluster TEXT NOT NULL, seq INTEGER NOT NULL, crc INTEGER NOT NULL,"
        " body TEXT NOT NULL, PRIMARY KEY (cluster, seq)) WITHOUT ROWID",
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL,"
        " job TEXT NOT NULL, crc INTEGER NOT NULL, body TEXT NOT NULL)",
        "CREATE INDEX events_job ON events (job, seq) WHERE job <> ''",
        "CREATE TABLE plans (round INTEGER PRIMARY KEY, time REAL NOT NULL, crc INTEGER NOT NULL,"
        " body TEXT NOT NULL)",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL)"
        " WITHOUT ROWID",
        "CREATE TABLE history (key TEXT PRIMARY KEY, crc INTEGER NOT NULL, body TEXT NOT NULL)"
        " WITHOUT ROWID",
        "CREATE TABLE start_errors (number INTEGER PRIMARY KEY, crc INTEGER NOT NULL,"
        " body TEXT NOT NULL)",
        "CREATE TABLE usage (project TEXT NOT NULL, user TEXT NOT NULL, proc_s REAL NOT NULL,"
        " at REAL NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (project, user)) WITHOUT ROWID",
        "CREATE TABLE usage_days (day INTEGER NOT NULL, project TEXT NOT NULL, user TEXT NOT NULL,"
        " cluster TEXT NOT NULL, proc_s REAL NOT NULL, coallocated_proc_s REAL NOT NULL,"
        " jobs INTEGER NOT NULL, wait_s REAL NOT NULL, crc INTEGER NOT NULL,"
        " PRIMARY KEY (day, project, user, cluster)) WITHOUT ROWID",
        "CREATE TABLE accounts (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
        " project TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL, ended REAL NOT NULL,"
        " crc INTEGER NOT NULL, body TEXT NOT NULL)",
        "CREATE INDEX accounts_ended ON accounts (ended, seq)",
        "CREATE INDEX accounts_user ON accounts (user, ended, seq)",
        "CREATE TABLE tallies (name TEXT PRIMARY KEY, rows INTEGER NOT NULL,"
        " total INTEGER NOT NULL) WITHOUT ROWID",
        *(f"INSERT INTO tallies VALUES ('{name}', 0, 0)" for name in tables.TALLIED),
    ),
    (),  # a long array is one row of jobs, which a coalloc that does not know them would run
)
"""``MIGRATIONS[n]`` leads from schema version n to n + 1; the first makes all tables. Entries of a
release never change. The checksum stands before long texts: counting must not read their pages."""

CREATE_MIGRATIONS = (
    "CREATE TABLE IF NOT EXISTS migrations"
    " (version INTEGER PRIMARY KEY, applied REAL NOT NULL, by TEXT NOT NULL)"
)

PUTS: dict[type, tuple[tables.Table[Any], Callable[[Any], tuple[Any, ...]]]] = {
    # The first row of a job fixes its place in the queue.
    effects.SaveJob: (tables.JOBS, lambda e: job_row(e.record)),
    effects.SaveLaunch: (tables.LAUNCHES, lambda e: (e.job, write_object(e.launch))),
    effects.SaveToken: (tables.TOKENS, lambda e: (e.user, e.token, e.job)),
    effects.SendOrder: (
        tables.OUTBOX,
        lambda e: (e.cluster, e.seq, encode_order(e.order).decode()),
    ),
    effects.AppendEvent: (
        tables.EVENTS,
        lambda e: (e.seq, e.time, str(e.kind), e.job, write_object(e.fields)),
    ),
    effects.SavePlan: (tables.PLANS, lambda e: (e.round, e.time, write_object(e.body))),
    effects.SaveMeta: (tables.META, lambda e: (e.key, e.value)),
    effects.SaveNotes: (tables.META, lambda e: (f"notes.{e.policy}", write_object(e.notes))),
    effects.SaveHistory: (
        tables.HISTORY,
        lambda e: (
            e.key,
            write_object({"base_times": e.values, "ratios": e.ratios, "runs": e.runs}),
        ),
    ),
    effects.SavePromises: (tables.PROMISES, lambda e: (e.job, write_object(e.promises))),
    effects.SaveStartError: (
        tables.START_ERRORS,
        lambda e: (e.error.number, write_object(e.error)),
    ),
    effects.SaveUsage: (tables.USAGE, lambda e: (e.project, e.user, e.proc_s, e.at)),
    effects.SaveAccount: (
        tables.ACCOUNTS,
        lambda e: (
            *(e.record.shown_id, e.project, e.record.user, str(e.record.state), e.record.ended),
            write_object(account_object(e.record, e.proc_s)),
        ),
    ),
}
"""Row of each effect that lasts as one; the first of a key makes the row, later ones change it."""

DROPS: dict[type, tuple[tables.Table[Any], str, Callable[[Any], tuple[Any, ...]]]] = {
    effects.DropOrders: (
        tables.OUTBOX,
        "cluster = ? AND seq <= ?",
        lambda e: (e.cluster, e.through_seq),
    ),
    effects.DropHistory: (tables.HISTORY, "key = ?", lambda e: (e.key,)),
    effects.DropPromises: (tables.PROMISES, "job = ?", lambda e: (e.job,)),
    effects.DropStartError: (tables.START_ERRORS, "number = ?", lambda e: (e.number,)),
}
"""Table of each effect that removes rows, and which."""

LASTING: dict[type, str] = {
    effects.AddUsage: tables.USAGE_DAYS.name,
    **{kind: table.name for kind, (table, _) in PUTS.items()},
    **{kind: table.name for kind, (table, *_) in DROPS.items()},
}
"""Effects that are written, by their tables; the others are not."""


def job_row(record: JobRecord) -> tuple[Any, ...]:
    """The columns of a job, but for its place in the queue."""
    ended = record.ended if record.is_ended else None
    return (record.id, ended, record.flow or None, write_object(record))


def carry_out(connection: sqlite3.Connection, kind: type, found: Iterable[Any]) -> None:
    """Write effects of one kind of `LASTING`."""
    if kind in DROPS:
        table, which, values = DROPS[kind]
        connection.executemany(f"DELETE FROM {table.name} WHERE {which}", map(values, found))
        return
    if kind is effects.AddUsage:
        rows = (_used(connection, effect) for effect in found)
        connection.executemany(
            tables.USAGE_DAYS.put, (tables.USAGE_DAYS.written(*row) for row in rows)
        )
        return
    table, columns = PUTS[kind]
    connection.executemany(table.put, (table.written(*columns(effect)) for effect in found))


def _used(connection: sqlite3.Connection, added: effects.AddUsage) -> UsedDay:
    key = (added.day, added.project, added.user, added.cluster)
    where = "WHERE day = ? AND project = ? AND user = ? AND cluster = ?"
    found = connection.execute(f"{tables.USAGE_DAYS.select} {where}", key)
    before = next(tables.USAGE_DAYS.read(found), UsedDay(*key, 0.0, 0.0, 0, 0.0))
    return before._replace(
        proc_s=before.proc_s + added.proc_s,
        coallocated_proc_s=before.coallocated_proc_s + added.coallocated_proc_s,
        jobs=before.jobs + added.jobs,
        wait_s=before.wait_s + added.wait_s,
    )


def check_schema(connection: sqlite3.Connection) -> None:
    """Compare tables, indexes and triggers with those of a new store. Raises `DamagedError`."""
    there = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        migrate(fresh, Path(":memory:"))
        expected = fresh.execute(there).fetchall()
    found = connection.execute(there).fetchall()
    for wrong in [*(row for row in expected if row not in found), *found[len(expected) :]]:
        raise tables.DamagedError(f"{wrong[0]} {wrong[1]} is missing, or another one")


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date, each version in one transaction.

    `StoreError`: the file was written by a newer coalloc.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path}: has schema {version}, this coalloc knows up to {len(MIGRATIONS)};"
            " install the newer coalloc, or restore a backup from before it"
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(CREATE_MIGRATIONS)
            for statement in script:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations (version, applied, by) VALUES (?, ?, ?)",
                (number, time.time(), f"sqlite {sqlite3.sqlite_version}"),
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


INCREMENTAL = 2
SPARE_SHARE = 8
"""One page in so many may stay free: the next events and jobs need it again."""


def prepare(connection: sqlite3.Connection) -> None:
    """Have a store that is still empty keep its free pages in order.

    SQLite reuses the pages that deleted rows leave, and never shortens the file by itself. With
    ``auto_vacuum = INCREMENTAL``, which must be set before the first table is made, the last pages
    can be moved into free ones a few at a time (https://sqlite.org/pragma.html#pragma_auto_vacuum).
    """
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
