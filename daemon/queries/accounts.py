"""Answers about shares and accounts: weights of waiting jobs, ended jobs, and usage by day.

Each answer from the accounts looks at so many rows of the store, whatever is asked for, so that a
long history keeps nobody waiting; what is filtered out makes an answer shorter, and the caller asks
for the next.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime

from coalloc.core.base.projects import DAY_S, Factors
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import RequestError
from coalloc.core.base.state import State
from coalloc.core.sharing.priority import factors, project_of
from coalloc.daemon.store.records_json import read_object
from coalloc.daemon.store.sqlite import Store
from coalloc.model.values import fields_of
from coalloc.wire.questions import AccountQuestion, UsageQuestion
from coalloc.wire.share_answers import (
    AccountAnswer,
    AccountRow,
    PriorityAnswer,
    PriorityRow,
    UsageAnswer,
    UsageRow,
)

ROWS_AT_ONCE = 2_000
LATEST = 1e15


def accounts(store: Store, asked: AccountQuestion, now: float) -> AccountAnswer:
    """A page of the jobs that ended within a time."""
    since = 0.0 if asked.since is None else asked.since
    until = LATEST if asked.until is None else asked.until
    after = 0
    if asked.after:
        ended, _, seq = asked.after.partition(" ")
        try:
            since, after = float(ended), int(seq)
        except ValueError as error:
            raise RequestError("bad_request", "after: is not from an answer") from error
    rows = store.accounts(since, until, after, asked.user, asked.job, ROWS_AT_ONCE)
    last = rows[-1] if len(rows) == ROWS_AT_ONCE else None
    return AccountAnswer(
        jobs=tuple(
            AccountRow(
                id=row.id,
                project=row.project,
                user=row.user,
                state=JobState(row.state),
                ended=row.ended,
                **read_object(row.body),
            )
            for row in rows
            if asked.project in ("", row.project) and asked.state in ("", row.state)
        ),
        after="" if last is None else f"{last.ended!r} {last.seq}",
        time=now,
    )


def usage(store: Store, asked: UsageQuestion, now: float) -> UsageAnswer:
    """A page of usage by day, project, user and cluster."""
    first = int((asked.since or 0.0) // DAY_S)
    until = now + DAY_S if asked.until is None else asked.until
    last = int(min(until, LATEST) // DAY_S)
    begin = (first - 1, "\U0010ffff", "", "") if asked.after is None else _key(asked.after)
    rows = store.used_days(begin, last, ROWS_AT_ONCE + 1)
    return UsageAnswer(
        rows=tuple(
            UsageRow(
                **{
                    **row._asdict(),
                    "day": f"{datetime.fromtimestamp(row.day * DAY_S, UTC):%Y-%m-%d}",
                }
            )
            for row in rows[:ROWS_AT_ONCE]
        ),
        more=len(rows) > ROWS_AT_ONCE,
        time=now,
    )


def _key(after: tuple[str, str, str, str]) -> tuple[int, str, str, str]:
    day, project, user, cluster = after
    try:
        number = (date.fromisoformat(day) - date(1970, 1, 1)).days
    except ValueError as error:
        raise RequestError("bad_request", "after: is not from an answer") from error
    return number, project, user, cluster


def priority_rows(state: State, jobs: Collection[str] | None, now: float) -> PriorityAnswer:
    """The factors of waiting jobs (None: of the first of all), the greatest weight first."""
    planned = (r for r in state.waiting_records() if r.state is not JobState.HELD)
    made = sorted(factors(state, planned, now), key=lambda row: -row[1].weight)
    rows = [
        PriorityRow(
            job=record.id,
            user=record.user,
            project=project_of(state, record),
            place=place,
            **fields_of(found, Factors),
        )
        for place, (record, found) in enumerate(made, 1)
        if jobs is None or record.id in jobs
    ]
    return PriorityAnswer(jobs=tuple(rows[:ROWS_AT_ONCE]), time=now)
