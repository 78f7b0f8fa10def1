"""The daemon's wall clock may be set back; what lies ahead then stays as far ahead as it was.

A clock that is set forward needs nothing: deadlines are over early, and what they end is tried
again. One that is set back by an hour would otherwise hold every back-off, every deadline and the
next round up for an hour.
"""

from __future__ import annotations

from dataclasses import replace

from coalloc.core.records import JobRecord, PartRecord
from coalloc.core.state import State


def set_back(state: State, now: float, seconds: float) -> None:
    """Shift every time that the core compares with the clock.

    Parameters
    ----------
    now : float
        By the clock as it is from here on.
    seconds : float
        How far it was set back.
    """
    rounds = state.rounds
    if rounds.last_start is not None:
        rounds.last_start -= seconds
    for cluster in state.clusters.values():
        cluster.read_at -= seconds
        if cluster.behind_since is not None:
            seq, since = cluster.behind_since
            cluster.behind_since = (seq, since - seconds)
    if state.round is not None:
        state.round.started -= seconds
    state.plan_time -= seconds
    state.later = {entry: at - seconds for entry, at in state.later.items()}
    for record in _timed(state, now):
        put_off = record.id in state.backing_off
        state.put(
            replace(
                record,
                not_before=record.not_before - seconds if put_off else min(record.not_before, now),
                deadline=None if record.deadline is None else record.deadline - seconds,
                parts=tuple(_earlier(part, seconds) for part in record.parts),
            )
        )
    state.note("clock_set_back", level="warning", seconds=round(seconds, 3))


def _earlier(part: PartRecord, seconds: float) -> PartRecord:
    """A part whose claim was asked for and granted so much earlier."""
    granted = None if part.granted is None else part.granted - seconds
    return replace(part, asked=part.asked - seconds, granted=granted)


def after_restart(state: State, now: float) -> None:
    """Bring back what an earlier run set by a clock that was ahead of this one."""
    limits = state.settings
    for record in _timed(state, now):
        not_before = min(record.not_before, now + limits.backoff_max_s)
        deadline = record.deadline
        if deadline is not None:
            patience = limits.max_wait_s if record.queued else limits.prepare_timeout_s
            deadline = min(deadline, now + patience)
        if (not_before, deadline) != (record.not_before, record.deadline):
            state.put(replace(record, not_before=not_before, deadline=deadline))


def _timed(state: State, now: float) -> list[JobRecord]:
    """Jobs with a deadline, or that may not be tried before some time to come."""
    return [
        record
        for record in state.jobs.values()
        if not record.is_ended and (record.deadline is not None or record.not_before > now)
    ]
