"""The store: every acknowledged job, decision and event, on disk before the reply.

Notes
-----
SQLite in WAL mode with ``synchronous=FULL`` (`database`): a commit is on disk when it returns.
Group commit is the caller's: one `Store.commit` per batch is one transaction and one fsync.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Hashable, Iterable, Iterator
from itertools import groupby
from pathlib import Path

from coalloc.core.base.effects import Effect, SaveJob, SaveMeta, SavePlan
from coalloc.core.base.projects import DAY_S
from coalloc.daemon.store import tables
from coalloc.daemon.store.backup import write_copy
from coalloc.daemon.store.database import Database
from coalloc.daemon.store.disk import write_error
from coalloc.daemon.store.errors import StoreError, error_of
from coalloc.daemon.store.schema import LASTING, carry_out, release
from coalloc.daemon.store.tables import EventRow, JobRow, PlanRow, StoredAccount, UsedDay

KEEP_PLANS = 20
PAGE_ROWS = 2000


class Store(Database):
    """A store in one SQLite file on a local disk, made with mode 0600 where it does not exist.

    The plans of the last `keep_plans` rounds are kept. Raises `StoreBusyError`,
    `StoreCorruptError`, `StoreFullError`, `StoreReadOnlyError`; a plain `StoreError` for a network
    file system and for a file of a newer version.
    """

    def __init__(self, path: Path, *, keep_plans: int = KEEP_PLANS) -> None:
        super().__init__(path)
        self._keep_plans = keep_plans

    def commit(self, effects: Iterable[Effect]) -> bool:
        """Write the lasting ones among the effects, all or none; on disk on return.

        Those of a table are written together, in their order. Returns whether there was something
        to write. After an error the store stays usable.
        """
        kept: dict[Hashable, Effect] = {}
        for number, effect in enumerate(effects):
            if type(effect) in LASTING:  # of each job or key its last value, in place of its first
                kept[_key_of(effect, number)] = effect
        lasting = sorted(kept.values(), key=lambda effect: LASTING[type(effect)])
        if not lasting:
            return False
        with self.errors_translated(), self.transaction() as connection:
            for kind, run in groupby(lasting, type):
                carry_out(connection, kind, run)
                if kind is SavePlan:
                    connection.execute(
                        "DELETE FROM plans WHERE round <= (SELECT max(round) FROM plans) - ?",
                        (self._keep_plans,),
                    )
        return True

    def active_jobs(self) -> Iterator[JobRow]:
        """Active jobs in the order of their first write, by the page: 100,000 texts are long.

        Go through it once, before any commit.
        """
        last = -1
        while True:
            where = "WHERE ended IS NULL AND seq > ? ORDER BY seq LIMIT ?"
            rows = self.rows(tables.JOBS, where, last, PAGE_ROWS)
            yield from rows
            if len(rows) < PAGE_ROWS:
                return
            last = rows[-1].seq

    def rows(
        self, table: tables.Table[tables.Row], where: str = "", *values: str | float
    ) -> list[tables.Row]:
        """Rows of a table, each compared with its checksum."""
        with self.errors_translated():
            found = self.open().execute(f"{table.select} {where}", values).fetchall()
            return list(table.read(found))

    def job(self, job: str) -> JobRow | None:
        return next(iter(self.rows(tables.JOBS, "WHERE id = ?", job)), None)

    def finished(self, limit: int) -> list[JobRow]:
        """Ended jobs, the last one to end first."""
        where = "WHERE ended IS NOT NULL ORDER BY ended DESC, seq DESC LIMIT ?"
        return self.rows(tables.JOBS, where, limit)

    def tasks(self, flow: str) -> list[JobRow]:
        """The tasks of a workflow that were ever placed, ended ones too."""
        return self.rows(tables.JOBS, "WHERE flow = ? ORDER BY seq", flow)

    def launch(self, job: str) -> str | None:
        rows = self.rows(tables.LAUNCHES, "WHERE job = ?", job)
        return rows[0].body if rows else None

    def job_of_token(self, user: str, token: str) -> str | None:
        """The job that this user's token made, active or ended."""
        rows = self.rows(tables.TOKENS, "WHERE user = ? AND token = ?", user, token)
        return rows[0].job if rows else None

    def events(self, since: int, limit: int, job: str | None = None) -> list[EventRow]:
        """Events with a number above `since` by rising number, of all jobs or of one."""
        if job is None:
            return self.rows(tables.EVENTS, "WHERE seq > ? ORDER BY seq LIMIT ?", since, limit)
        # "job <> ''" lets the query use the partial index
        where = "WHERE seq > ? AND job = ? AND job <> '' ORDER BY seq LIMIT ?"
        return self.rows(tables.EVENTS, where, since, job, limit)

    def accounts(
        self, since: float, until: float, after: int, user: str, job: str, limit: int
    ) -> list[StoredAccount]:
        """Accounts of jobs that ended in [since, until), by their end; no user: everybody's.

        `job`: of it, and of its members, tasks or pieces; empty: of all.
        `after` is the `seq` of the account before the first one, which ended at `since`; else 0.
        """
        mine, values, only = "", list[str](), "+" if job else ""  # a plus: no index of that column
        if job:
            mine += "(id = ? OR id > ? AND id < ? OR id > ? AND id < ?) AND "
            values += [job, f"{job}.", f"{job}/", f"{job}_", f"{job}`"]
        if user:
            mine += f"{only}user = ? AND "
            values.append(user)
        ended = f"{only}ended"
        where = f"WHERE {mine}({ended}, seq) > (?, ?) AND {ended} < ? ORDER BY {ended}, seq LIMIT ?"
        return self.rows(tables.ACCOUNTS, where, *values, since, after, until, limit)

    def used_days(
        self, after: tuple[int, str, str, str], until_day: int, limit: int
    ) -> list[UsedDay]:
        """Use by day, project, user and cluster behind these four, up to a day."""
        where = (
            "WHERE (day, project, user, cluster) > (?, ?, ?, ?)"
            " AND day <= ? ORDER BY day, project, user, cluster LIMIT ?"
        )
        return self.rows(tables.USAGE_DAYS, where, *after, until_day, limit)

    def prune_accounts(self, before: float, at_most: int) -> int:
        """Forget the oldest accounts, and the use of days, before this time; returns how many.

        When it equals `at_most`, there is more to do.
        """
        with self.errors_translated(), self.transaction() as connection:
            connection.execute("DELETE FROM usage_days WHERE day < ?", (int(before // DAY_S),))
            return connection.execute(
                "DELETE FROM accounts WHERE seq IN (SELECT seq FROM accounts WHERE ended < ?"
                " ORDER BY ended, seq LIMIT ?)",
                (before, at_most),
            ).rowcount

    def plan(self, round: int | None = None) -> PlanRow | None:
        if round is None:
            rows = self.rows(tables.PLANS, "ORDER BY round DESC LIMIT 1")
        else:
            rows = self.rows(tables.PLANS, "WHERE round = ?", round)
        return rows[0] if rows else None

    def examine(self) -> Iterator[None]:
        """Compare every row with its checksum and every index with its table, step by step."""
        steps = tables.examined(self.open(), tables.EXAMINED_AT_ONCE)
        while True:
            with self.errors_translated():
                try:
                    next(steps)
                except StopIteration:
                    return
            yield

    def prune(self, keep_events: int, at_most: int = 5000) -> int:
        """Forget the oldest events, and the jobs that ended before the oldest one kept.

        At least one is kept: the newest holds the number that the next one follows. One call
        removes `at_most` so many, so that the daemon is not held up; when it returns as many, there
        is more to do.
        """
        with self.errors_translated(), self.transaction() as connection:
            # asked for together, they would be sought in the whole table
            oldest, newest = connection.execute(
                "SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events)"
            ).fetchone()
            if newest is None:
                return 0
            last = min(newest - max(keep_events, 1), oldest + at_most - 1)
            removed = connection.execute("DELETE FROM events WHERE seq <= ?", (last,)).rowcount
            connection.execute(
                # What has run of a workflow that lives must be known: it must not run again.
                "DELETE FROM jobs WHERE seq IN (SELECT seq FROM jobs WHERE ended IS NOT NULL AND"
                " ended < (SELECT time FROM events ORDER BY seq LIMIT 1) AND (flow IS NULL OR"
                " NOT EXISTS (SELECT 1 FROM jobs AS whole WHERE whole.id = jobs.flow AND"
                " whole.ended IS NULL)) ORDER BY ended LIMIT ?)",
                (at_most,),
            )
            return removed

    def compact(self, at_most: int = 256) -> int:
        """Give free pages back to the file system, as long as too many are free; returns how many.

        An eighth of the file stays free for what comes next. One call moves `at_most` so many, so
        that the daemon is not held up; after 0 there is nothing more to do.
        """
        with self.errors_translated():
            return release(self.open(), at_most)

    def backup(self, path: Path) -> None:
        """Write a consistent copy while the store is in use; `path` appears only when complete.

        May be called from another thread than the rest. After an error the store stays usable.
        """
        # Its lock would end with any other handle of ours on the file that is closed.
        if path.exists() and path.samefile(self.path):
            raise StoreError(f"{path}: is the store itself, not a place for a backup")
        try:
            write_copy(self.shared(), path)
        # the copy is written by SQLite, so its errors are about the target
        except sqlite3.Error as error:
            code = write_error(path.parent)
            raise error_of(code, f"{path}: {error}") from error
        except OSError as error:
            raise error_of(error.errno or errno.EIO, str(path)) from error


def _key_of(effect: Effect, number: int) -> Hashable:
    """The key under which an effect replaces one before it; its own number: none."""
    if isinstance(effect, SaveJob):
        return effect.record.id
    return (effect.key,) if isinstance(effect, SaveMeta) else number
