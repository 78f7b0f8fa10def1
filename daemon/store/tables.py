"""The store's tables: statements derived from their rows, and a checksum in each row.

Notes
-----
SQLite's own checks look at the structure of pages, not at what rows hold. So each row has, in the
column ``crc``, the CRC-32 of its table's name and its columns, written with it and compared
whenever it is read. Of each table the store counts its rows and sums up their checksums (table
``tallies``), by triggers of its own connection: a row that is lost, doubled, older than its last
write, or changed by somebody else does not add up. Bodies are JSON texts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints
from zlib import crc32

import msgspec

Row = TypeVar("Row", bound=tuple[Any, ...])
NUMBERED = "seq"
"""First column of a table whose rows SQLite numbers; not part of the checksum, since it is not
known when that is made. That the numbers rise is seen by SQLite's own check."""
COMMITS = "commits"
"""Name in ``tallies`` under which the commits are counted."""
EXAMINED_AT_ONCE = 500
"""Rows that are looked at in one step, so that the daemon is not held up."""

_encode = msgspec.msgpack.Encoder().encode


class DamagedError(Exception):
    """A row or a table is not as it was written; the message names it."""


class Table(Generic[Row]):
    """A table of rows of one class, whose fields are the columns; no two rows have the same key.

    Where it `is_numbered`, SQLite numbers the rows as they come, in the first column; where it
    `is_final`, a row is written once: the same key a second time is an error.
    """

    def __init__(
        self,
        name: str,
        row: type[Row],
        *key: str,
        is_numbered: bool = False,
        is_final: bool = False,
    ) -> None:
        hints = get_type_hints(row)
        self.name, self._make = name, row
        self._first = int(is_numbered)
        written = [*hints][self._first :]
        self._floats = [n for n, column in enumerate(written) if "float" in str(hints[column])]
        self._seed = crc32(name.encode())
        self._walk = ", ".join([NUMBERED] if is_numbered else key)
        downwards = ", ".join(f"{column} DESC" for column in self._walk.split(", "))
        self.orders = (f"ORDER BY {self._walk}", f"ORDER BY {downwards}")
        self._walked = [[*hints].index(column) for column in self._walk.split(", ")]
        self.select = f"SELECT {', '.join(hints)}, crc FROM {name}"
        columns = [*written, "crc"]
        places = ", ".join("?" * len(columns))
        self.put = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})"
        if not is_final:
            changed = ", ".join(f"{c} = excluded.{c}" for c in columns if c not in key)
            self.put += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"

    def written(self, *values: Any) -> tuple[Any, ...]:
        """The values of `put` for these columns, a number by SQLite left out."""
        row = list(values)
        for n in self._floats:
            # as it comes back: SQLite keeps no integer there, and no negative zero
            row[n] = None if row[n] is None else float(row[n]) + 0.0
        return (*row, crc32(_encode(row), self._seed))

    def written_again(self, row: Row) -> tuple[Any, ...]:
        """The same for a row that was read, under a new number where SQLite gives it."""
        return self.written(*row[self._first :])

    def is_whole(self, found: tuple[Any, ...]) -> bool:
        """Test if what `select` has found agrees with its checksum."""
        return bool(crc32(_encode(found[self._first : -1]), self._seed) == found[-1])

    def read(self, found: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
        """Rows that `select` has found, each compared with its checksum. Raises `DamagedError`."""
        make, first, seed = self._make._make, self._first, self._seed  # type: ignore[attr-defined]
        for row in found:
            if crc32(_encode(row[first:-1]), seed) != row[-1]:
                raise DamagedError(
                    f"row {str(row[first])[:40]!r} of table {self.name} is not as it was written"
                )
            yield make(row[:-1])

    def page(
        self, connection: sqlite3.Connection, after: tuple[Any, ...] | None, limit: int
    ) -> tuple[Any, ...] | None:
        """Compare so many rows after this key with their checksums; returns the last one's key."""
        where = "" if after is None else f"WHERE ({self._walk}) > ({', '.join('?' * len(after))})"
        found = connection.execute(
            f"{self.select} {where} ORDER BY {self._walk} LIMIT {limit}", after or ()
        ).fetchall()
        rows = list(self.read(found))
        return tuple(rows[-1][n] for n in self._walked) if len(rows) == limit else None


class JobRow(NamedTuple):
    """A job as it was last written."""

    seq: int
    """Its place in the queue: when it was first written."""
    id: str
    ended: float | None
    flow: str | None
    """The workflow or divisible job that it is a part of."""
    body: str


class JobTextRow(NamedTuple):
    """The command of a job, or the starts that it was told to expect."""

    job: str
    body: str


class TokenRow(NamedTuple):
    """The job that a user's token made."""

    user: str
    token: str
    job: str


class OrderRow(NamedTuple):
    """An order that its executor has not yet carried out."""

    cluster: str
    seq: int
    body: str


class EventRow(NamedTuple):
    """One event of the stream."""

    seq: int
    time: float
    kind: str
    job: str
    body: str


class PlanRow(NamedTuple):
    """The plan of one round."""

    round: int
    time: float
    body: str


class MetaRow(NamedTuple):
    """A number, mark or note."""

    key: str
    value: str


class HistoryRow(NamedTuple):
    """Run times of jobs of one kind."""

    key: str
    body: str


class StartErrorRow(NamedTuple):
    """Error of an expected start."""

    number: int
    body: str


class UsageRow(NamedTuple):
    """Decayed use of a user in a project."""

    project: str
    user: str
    proc_s: float
    at: float


class UsedDay(NamedTuple):
    """Use of one cluster by a user in a project on one day of UTC."""

    day: int
    project: str
    user: str
    cluster: str
    proc_s: float
    coallocated_proc_s: float
    jobs: int
    wait_s: float


class StoredAccount(NamedTuple):
    """The account of a job that has ended."""

    seq: int
    id: str
    project: str
    user: str
    state: str
    ended: float
    body: str


JOBS = Table("jobs", JobRow, "id", is_numbered=True)
LAUNCHES = Table("launches", JobTextRow, "job")
TOKENS = Table("tokens", TokenRow, "user", "token")
PROMISES = Table("promises", JobTextRow, "job")
OUTBOX = Table("outbox", OrderRow, "cluster", "seq")
EVENTS = Table("events", EventRow, "seq", is_final=True)
PLANS = Table("plans", PlanRow, "round")
META = Table("meta", MetaRow, "key")
HISTORY = Table("history", HistoryRow, "key")
START_ERRORS = Table("start_errors", StartErrorRow, "number")
USAGE = Table("usage", UsageRow, "project", "user")
USAGE_DAYS = Table("usage_days", UsedDay, "day", "project", "user", "cluster")
ACCOUNTS = Table("accounts", StoredAccount, "id", is_numbered=True)

TABLES: tuple[Table[Any], ...] = (
    *(JOBS, LAUNCHES, TOKENS, PROMISES, OUTBOX, EVENTS, PLANS, META, HISTORY, START_ERRORS),
    *(USAGE, USAGE_DAYS, ACCOUNTS),
)


READ_LATER = (LAUNCHES, TOKENS, ACCOUNTS)
"""Tables of which a start reads nothing: their tallies are compared soon after it."""
TALLIED = (COMMITS, *(table.name for table in TABLES))
"""Names in ``tallies``."""


def keep_tallies(connection: sqlite3.Connection) -> None:
    """Have what this connection writes counted."""
    change = "UPDATE tallies SET rows = rows + {}, total = total + {} WHERE name = '{}'"
    for event, rows, total in (
        ("INSERT", 1, "NEW.crc"),
        ("DELETE", -1, "-OLD.crc"),
        ("UPDATE", 0, "NEW.crc - OLD.crc"),
    ):
        for table in TABLES:
            name = f"{event.lower()}_{table.name}"
            counted = change.format(rows, total, table.name)
            connection.execute(
                f"CREATE TEMP TRIGGER {name} AFTER {event} ON {table.name} BEGIN {counted}; END"
            )


class Whole(NamedTuple, Generic[Row]):
    """Whole rows of a damaged table."""

    rows: list[Row]
    left_out: int
    """Rows that were found, and are not as they were written."""


def whole_rows(connection: sqlite3.Connection, table: Table[Row]) -> Whole[Row]:
    """Read what can be read, from both ends of the table up to a page that cannot."""
    kept: dict[Row, None] = {}
    left_out = 0
    for order in table.orders:
        rows: list[tuple[Any, ...]] = []
        is_all = False
        with suppress(sqlite3.Error):
            for row in connection.execute(f"{table.select} NOT INDEXED {order}"):
                rows.append(row)
            is_all = True
        whole = [row for row in rows if table.is_whole(row)]
        left_out += len(rows) - len(whole)
        if order != table.orders[0]:
            whole.reverse()
        kept |= dict.fromkeys(table.read(whole))
        if is_all:
            break
    return Whole([*kept], left_out)


def check_tallies(connection: sqlite3.Connection) -> int:
    """Compare tables that a start reads with their tallies; returns the last commit's number."""
    for table in TABLES:
        if table not in READ_LATER:
            _check_tally(connection, table)
    return written_commits(connection)


def _check_tally(connection: sqlite3.Connection, table: Table[Any]) -> None:
    kept = "SELECT rows, total FROM tallies WHERE name = ?"
    count = f"SELECT count(*), ifnull(sum(crc), 0) FROM {table.name} NOT INDEXED"
    if connection.execute(count).fetchone() != connection.execute(kept, (table.name,)).fetchone():
        raise DamagedError(f"rows of table {table.name} are missing, or not the newest")


def written_commits(connection: sqlite3.Connection) -> int:
    """Number of the last commit. Raises `DamagedError` or `sqlite3.Error`."""
    statement = f"SELECT rows FROM tallies WHERE name = '{COMMITS}' AND typeof(rows) = 'integer'"
    found = connection.execute(statement).fetchone()
    if found is None:
        raise DamagedError("the number of its commits is missing")
    return int(found[0])


def count_commit(connection: sqlite3.Connection, number: int) -> None:
    """Have the transaction under way be the commit of this number."""
    connection.execute(f"UPDATE tallies SET rows = ? WHERE name = '{COMMITS}'", (number,))


def examined(connection: sqlite3.Connection, rows_at_once: int) -> Iterator[None]:
    """Compare all rows with their checksums and all indexes with their tables, step by step."""
    for table in TABLES:
        if table in READ_LATER:
            _check_tally(connection, table)
            yield
        verdict = connection.execute(f"PRAGMA integrity_check({table.name})").fetchone()[0]
        if verdict != "ok":
            raise DamagedError(str(verdict))
        last = table.page(connection, None, rows_at_once)
        yield
        while last is not None:
            last = table.page(connection, last, rows_at_once)
            yield
