"""Answers to questions about shares: the factors of waiting jobs."""

from __future__ import annotations

from collections.abc import Collection

from coalloc.core.base.records import JobState
from coalloc.core.base.state import State
from coalloc.core.sharing.priority import factors, project_of
from coalloc.wire.share_answers import PriorityAnswer, PriorityRow

ROWS_AT_ONCE = 2_000


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
            **found._asdict(),
        )
        for place, (record, found) in enumerate(made, 1)
        if jobs is None or record.id in jobs
    ]
    return PriorityAnswer(jobs=tuple(rows[:ROWS_AT_ONCE]), time=now)
