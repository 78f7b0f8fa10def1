"""Expected starts that waiting jobs were given: kept, and held against what happened.

See `coalloc.core.base.start_intervals` for what is learnt from them.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalloc.core.base.effects import (
    DropPromises,
    DropStartError,
    SaveJob,
    SavePromises,
    SaveStartError,
)
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.start_intervals import FIRST, LATER, Interval, Promise, lead_class
from coalloc.core.base.state import State


def keep(state: State, starts: Mapping[str, float], now: float) -> None:
    """Remember the expected starts of a round, as far as they say something new.

    A workflow or a divisible job is promised nothing. `now` is the time of the round's snapshot.
    """
    for job, expected in starts.items():
        if job in state.composites:
            continue
        begin = max(now, state.jobs[job].job.earliest)
        kept = state.learning.promises.get(job, ())
        if kept and lead_class(expected - begin) >= lead_class(kept[-1].lead_s):
            continue
        kind = LATER if kept else FIRST
        made = state.learning.calibration.promise(expected, now, kind, begin)
        state.learning.promises[job] = (*kept, made)
        state.out.append(SavePromises(job=job, promises=state.learning.promises[job]))


def settle(state: State) -> None:
    """Learn from the jobs that have started with this event; forget those that never will."""
    records = [
        effect.record
        for effect in state.out
        if isinstance(effect, SaveJob) and effect.record.id in state.learning.promises
    ]
    for record in records:
        if record.is_ended or record.started is not None:
            promised = withdraw(state, record.id)
            if record.started is None:
                continue
            for promise in promised:
                calibration = state.learning.calibration
                learnt, forgotten = calibration.learn(promise, record.started, record.user)
                state.out.append(SaveStartError(error=learnt))
                if forgotten is not None:
                    state.out.append(DropStartError(number=forgotten.number))
        elif record.state is JobState.HELD:
            withdraw(state, record.id)  # Held: it waits for its user, not for nodes.


def withdraw(state: State, job: str) -> tuple[Promise, ...]:
    """Forget what a job was promised: it has started or ended, or its user has changed it."""
    kept = state.learning.promises.pop(job, ())
    if kept:
        state.out.append(DropPromises(job=job))
    return kept


def interval(state: State, record: JobRecord, start: float | None, now: float) -> Interval | None:
    """Interval of the real start of a job with this expected one; None: not known."""
    outlook = state.findings.outlook.get(record.id)
    is_planned = outlook is not None and outlook.start is not None
    if start is None or not is_planned or not record.is_waiting or record.id in state.composites:
        return None
    kept = state.learning.promises.get(record.id, ())
    is_new = not kept or (len(kept) == 1 and kept[0].made >= state.schedule.time)
    kind = FIRST if is_new else LATER
    return state.learning.calibration.interval(start, now, kind, record.job.earliest)
