"""Charges what has run to its user and project, and writes the account of each job that ends."""

from __future__ import annotations

from coalloc.core.base.effects import AddUsage, SaveAccount, SaveJob, SaveUsage
from coalloc.core.base.projects import DAY_S, added, by_day, decayed_proc_s, spans
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.sharing.priority import dearness, project_of

MOST_DAYS = 366
"""Days of usage in memory: the longest window of a limit."""


def charge(state: State, record: JobRecord, now: float, *, is_last: bool) -> None:
    """Charge an attempt that has ended; `is_last`: the job with it, which is counted."""
    owner = project, user = project_of(state, record), record.user
    half_life_s = state.settings.priority.half_life_s
    is_coallocated = len(record.parts) > 1
    total, first = 0.0, is_last
    for part, procs, start, end in spans(record, now):
        total += decayed_proc_s(procs, start, end, max(now, end), half_life_s)
        last_day = int(end // DAY_S)
        for day, seconds in by_day(start, end):
            proc_s = procs * seconds
            is_counted = first and day == last_day
            state.out.append(
                AddUsage(
                    day=day,
                    project=project,
                    user=user,
                    cluster=part.cluster,
                    proc_s=proc_s,
                    coallocated_proc_s=proc_s if is_coallocated else 0.0,
                    jobs=int(is_counted),
                    wait_s=waited_s(record) if is_counted else 0.0,
                )
            )
            days = state.sharing.days.setdefault(owner, {})
            days[day] = days.get(day, 0.0) + proc_s
            first = first and not is_counted
    if total:
        usage = state.sharing.usage[owner] = added(
            state.sharing.usage.get(owner),
            total * dearness(record, state.settings.priority),
            now,
            half_life_s,
        )
        saved = SaveUsage(project=project, user=user, proc_s=usage.proc_s, at=usage.at)
        state.out.append(saved)
        days = state.sharing.days[owner]
        for day in [day for day in days if day <= int(now // DAY_S) - MOST_DAYS]:
            del days[day]


def waited_s(record: JobRecord) -> float:
    """From when a job could start until it did, seconds; 0 where it never did."""
    if record.started is None:
        return 0.0
    return max(record.started - record.eligible, 0.0)


def proc_s(record: JobRecord) -> float:
    """Processor-seconds of the attempt that a record describes, once it has ended."""
    return sum(procs * (end - start) for _, procs, start, end in spans(record, 0.0))


def close_accounts(state: State) -> None:
    """Write the accounts of the jobs that have ended with this event."""
    ended = [e.record for e in state.out if isinstance(e, SaveJob) and e.record.is_ended]
    for record in ended:
        project = project_of(state, record)
        state.out.append(SaveAccount(record=record, project=project, proc_s=proc_s(record)))
