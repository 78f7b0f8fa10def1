"""Answers from the accounts: jobs that have ended, and usage by day.

Each answer looks at so many rows of the store, whatever is asked for, so that a long history keeps
nobody waiting; what is filtered out makes an answer shorter, and the caller asks for the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from coalloc.core.base.projects import DAY_S
from coalloc.core.base.records import JobState
from coalloc.daemon.queries.caller import QueryRefusedError
from coalloc.daemon.store.records_json import read_object
from coalloc.daemon.store.rows import StoredAccount
from coalloc.daemon.store.sqlite import Store
from coalloc.wire.share_answers import AccountAnswer, AccountRow, UsageAnswer, UsageRow

ROWS_AT_ONCE = 2_000
LATEST = 1e15


def accounts(store: Store, body: Mapping[str, Any], now: float) -> AccountAnswer:
    """A page of the jobs that ended within a time.

    Raises
    ------
    QueryRefusedError
    """
    since, until = _time(body, "since", 0.0), _time(body, "until", LATEST)
    after = 0
    if body.get("after"):
        since, after = _cursor(str(body["after"]))
    user, project, state = (str(body.get(key) or "") for key in ("user", "project", "state"))
    rows = store.accounts(since, until, after, user, ROWS_AT_ONCE)
    last = rows[-1] if len(rows) == ROWS_AT_ONCE else None
    return AccountAnswer(
        jobs=tuple(
            _account(row)
            for row in rows
            if project in ("", row.project) and state in ("", row.state)
        ),
        after="" if last is None else f"{last.ended!r} {last.seq}",
        time=now,
    )


def _cursor(text: str) -> tuple[float, int]:
    ended, _, seq = text.partition(" ")
    try:
        return float(ended), int(seq)
    except ValueError as error:
        raise QueryRefusedError("bad_request", "after: is not from an answer") from error


def _time(body: Mapping[str, Any], key: str, default: float) -> float:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueryRefusedError("bad_request", f"{key}: is not a time in seconds")
    return float(value)


def _account(row: StoredAccount) -> AccountRow:
    return AccountRow(
        id=row.id,
        project=row.project,
        user=row.user,
        state=JobState(row.state),
        ended=row.ended,
        **read_object(row.body),
    )


def usage(store: Store, body: Mapping[str, Any], now: float) -> UsageAnswer:
    """A page of usage by day, project, user and cluster.

    Raises
    ------
    QueryRefusedError
    """
    first = int(_time(body, "since", 0.0) // DAY_S)
    last = int(min(_time(body, "until", now + DAY_S), LATEST) // DAY_S)
    after = body.get("after")
    begin = (first - 1, "\U0010ffff", "", "") if not after else _key(after)
    rows = store.used_days(begin, last, ROWS_AT_ONCE + 1)
    return UsageAnswer(
        rows=tuple(
            UsageRow(
                day=f"{datetime.fromtimestamp(row.day * DAY_S, UTC):%Y-%m-%d}",
                project=row.project,
                user=row.user,
                cluster=row.cluster,
                proc_s=row.proc_s,
                coallocated_proc_s=row.coallocated_proc_s,
                jobs=row.jobs,
                wait_s=row.wait_s,
            )
            for row in rows[:ROWS_AT_ONCE]
        ),
        more=len(rows) > ROWS_AT_ONCE,
        time=now,
    )


def _key(after: Any) -> tuple[int, str, str, str]:
    try:
        day, project, user, cluster = map(str, after)
        number = (date.fromisoformat(day) - date(1970, 1, 1)).days
    except (TypeError, ValueError) as error:
        raise QueryRefusedError("bad_request", "after: is not from an answer") from error
    return number, project, user, cluster
