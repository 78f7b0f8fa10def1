"""The store's tables: a script per schema version, and the statement of each lasting effect."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from coalloc.core.base.effects import (
    AddUsage,
    AppendEvent,
    DropHistory,
    DropOrders,
    DropPromises,
    DropStartError,
    SaveAccount,
    SaveHistory,
    SaveJob,
    SaveLaunch,
    SaveMeta,
    SaveNotes,
    SavePlan,
    SavePromises,
    SaveStartError,
    SaveToken,
    SaveUsage,
    SendOrder,
)
from coalloc.core.base.records import JobRecord
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.records_json import (
    account_object,
    write_launch,
    write_object,
    write_record,
    write_tuple,
)
from coalloc.wire.codec import encode_order

APPLICATION_ID = 0x636F616C
"""Marks the file as ours ("coal"), so that another program's database is never touched."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE jobs (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,"
        " user TEXT NOT NULL, ended REAL, flow TEXT, body TEXT NOT NULL)",
        "CREATE INDEX jobs_active ON jobs (seq) WHERE ended IS NULL",
        "CREATE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL",
        "CREATE INDEX jobs_flow ON jobs (flow) WHERE flow IS NOT NULL",
        "CREATE TABLE launches (job TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE tokens (user TEXT NOT NULL, token TEXT NOT NULL, job TEXT NOT NULL,"
        " PRIMARY KEY (user, token)) WITHOUT ROWID",
        "CREATE INDEX tokens_job ON tokens (job)",
        "CREATE TABLE promises (job TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TRIGGER jobs_dropped AFTER DELETE ON jobs BEGIN"
        " DELETE FROM launches WHERE job = OLD.id; DELETE FROM tokens WHERE job = OLD.id;"
        " DELETE FROM promises WHERE job = OLD.id; END",
        # With a workflow go the commands of its tasks, "17.1" and so on; "/" follows ".".
        "CREATE TRIGGER workflow_dropped AFTER DELETE ON jobs WHEN OLD.flow IS NULL BEGIN"
        " DELETE FROM launches WHERE job > OLD.id || '.' AND job < OLD.id || '/'; END",
        "CREATE TABLE outbox (cluster TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,"
        " PRIMARY KEY (cluster, seq)) WITHOUT ROWID",
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL,"
        " job TEXT NOT NULL, body TEXT NOT NULL)",
        "CREATE INDEX events_job ON events (job, seq) WHERE job <> ''",
        "CREATE TABLE plans (round INTEGER PRIMARY KEY, time REAL NOT NULL, body TEXT NOT NULL)",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE history (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE start_errors (number INTEGER PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE usage (project TEXT NOT NULL, user TEXT NOT NULL, proc_s REAL NOT NULL,"
        " at REAL NOT NULL, PRIMARY KEY (project, user)) WITHOUT ROWID",
        "CREATE TABLE usage_days (day INTEGER NOT NULL, project TEXT NOT NULL, user TEXT NOT NULL,"
        " cluster TEXT NOT NULL, proc_s REAL NOT NULL, coallocated_proc_s REAL NOT NULL,"
        " jobs INTEGER NOT NULL, wait_s REAL NOT NULL,"
        " PRIMARY KEY (day, project, user, cluster)) WITHOUT ROWID",
        "CREATE TABLE accounts (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
        " project TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL, ended REAL NOT NULL,"
        " body TEXT NOT NULL)",
        "CREATE INDEX accounts_ended ON accounts (ended, seq)",
        "CREATE INDEX accounts_user ON accounts (user, ended, seq)",
    ),
)
"""``MIGRATIONS[n]`` leads from schema version n to n + 1; the first makes all tables. Entries of a
release never change."""

CREATE_MIGRATIONS = (
    "CREATE TABLE IF NOT EXISTS migrations"
    " (version INTEGER PRIMARY KEY, applied REAL NOT NULL, by TEXT NOT NULL)"
)

SqlStatement = tuple[str, Callable[[Any], tuple[Any, ...]]]


def _job_row(record: JobRecord) -> tuple[Any, ...]:
    ended = record.ended if record.is_ended else None
    body = write_record(record)
    return (record.id, str(record.state), record.user, ended, body, record.flow or None)


_PUT_META = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)

STATEMENTS: dict[type, SqlStatement] = {
    SaveJob: (
        # The first row of a job fixes its place in the queue.
        "INSERT INTO jobs (id, state, user, ended, body, flow) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state, user = excluded.user,"
        " ended = excluded.ended, body = excluded.body",
        lambda e: _job_row(e.record),
    ),
    SaveLaunch: (
        "INSERT INTO launches (job, body) VALUES (?, ?)"
        " ON CONFLICT (job) DO UPDATE SET body = excluded.body",
        lambda e: (e.job, write_launch(e.launch)),
    ),
    SaveToken: (
        "INSERT INTO tokens (user, token, job) VALUES (?, ?, ?)"
        " ON CONFLICT (user, token) DO UPDATE SET job = excluded.job",
        lambda e: (e.user, e.token, e.job),
    ),
    SendOrder: (
        "INSERT INTO outbox (cluster, seq, body) VALUES (?, ?, ?)"
        " ON CONFLICT (cluster, seq) DO UPDATE SET body = excluded.body",
        lambda e: (e.cluster, e.seq, encode_order(e.order).decode()),
    ),
    DropOrders: (
        "DELETE FROM outbox WHERE cluster = ? AND seq <= ?",
        lambda e: (e.cluster, e.through_seq),
    ),
    AppendEvent: (
        "INSERT INTO events (seq, time, kind, job, body) VALUES (?, ?, ?, ?, ?)",
        lambda e: (e.seq, e.time, str(e.kind), e.job, write_object(e.fields)),
    ),
    SavePlan: (
        "INSERT INTO plans (round, time, body) VALUES (?, ?, ?)"
        " ON CONFLICT (round) DO UPDATE SET time = excluded.time, body = excluded.body",
        lambda e: (e.round, e.time, write_object(e.body)),
    ),
    SaveMeta: (_PUT_META, lambda e: (e.key, e.value)),
    SaveNotes: (_PUT_META, lambda e: (f"notes.{e.policy}", write_object(e.notes))),
    SaveHistory: (
        "INSERT INTO history (key, body) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET body = excluded.body",
        lambda e: (
            e.key,
            write_object({"base_times": e.values, "ratios": e.ratios, "runs": e.runs}),
        ),
    ),
    DropHistory: ("DELETE FROM history WHERE key = ?", lambda e: (e.key,)),
    SavePromises: (
        "INSERT INTO promises (job, body) VALUES (?, ?)"
        " ON CONFLICT (job) DO UPDATE SET body = excluded.body",
        lambda e: (e.job, write_tuple(e.promises)),
    ),
    DropPromises: ("DELETE FROM promises WHERE job = ?", lambda e: (e.job,)),
    SaveStartError: (
        "INSERT OR REPLACE INTO start_errors (number, body) VALUES (?, ?)",
        lambda e: (e.error.number, write_tuple(e.error)),
    ),
    DropStartError: ("DELETE FROM start_errors WHERE number = ?", lambda e: (e.number,)),
    SaveUsage: (
        "INSERT INTO usage (project, user, proc_s, at) VALUES (?, ?, ?, ?) ON CONFLICT"
        " (project, user) DO UPDATE SET proc_s = excluded.proc_s, at = excluded.at",
        lambda e: (e.project, e.user, e.proc_s, e.at),
    ),
    AddUsage: (
        "INSERT INTO usage_days (day, project, user, cluster, proc_s, coallocated_proc_s, jobs,"
        " wait_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (day, project, user, cluster)"
        " DO UPDATE SET proc_s = proc_s + excluded.proc_s, coallocated_proc_s ="
        " coallocated_proc_s + excluded.coallocated_proc_s, jobs = jobs + excluded.jobs,"
        " wait_s = wait_s + excluded.wait_s",
        lambda e: (
            *(e.day, e.project, e.user, e.cluster),
            *(e.proc_s, e.coallocated_proc_s, e.jobs, e.wait_s),
        ),
    ),
    SaveAccount: (
        "INSERT INTO accounts (id, project, user, state, ended, body) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET project = excluded.project, state = excluded.state,"
        " ended = excluded.ended, body = excluded.body",
        lambda e: (
            *(e.record.id, e.project, e.record.user, str(e.record.state), e.record.ended),
            write_object(account_object(e.record, e.proc_s)),
        ),
    ),
}
"""Of each effect that lasts; the others are not written."""


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date, each version in one transaction.

    Raises
    ------
    StoreError
        The file was written by a newer coalloc.
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
