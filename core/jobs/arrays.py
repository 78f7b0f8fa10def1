"""Arrays that are too long for the queue: one record, whose members are made as others start.

The record of array 12 has the id ``12_``. It stands for the indices that are not in the queue yet,
counts the ends of all members, and ends with the last. Members in the queue are jobs like any
other. Making them and taking their indices from the record is one step, and so one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coalloc.core.base.effects import Wake
from coalloc.core.base.records import ArrayRest, JobRecord, JobState
from coalloc.core.base.requests import RequestError
from coalloc.core.base.state import State, whole_id
from coalloc.core.jobs.dependencies import has_started
from coalloc.core.jobs.ends import release_dependents
from coalloc.model.event_kinds import EventKind
from coalloc.model.formats.indices import Indices
from coalloc.model.values import replace

WINDOW = 1000
"""Members in the queue; once only half as many are pending, others follow."""
BATCH = 250
"""Members that are made in one step, so that it stays short."""
MOST_SINGLE = 20_000
"""Members of an array that must all be in the queue, since others wait for one of them each."""


def is_long(indices: Indices, needs: Iterable[tuple[str, str]]) -> bool:
    """Test if an array with these needs is kept as one record."""
    has_twins = any(kind == "aftercorr" for kind, _ in needs)
    if has_twins and len(indices) > MOST_SINGLE:
        raise RequestError("too_many", f"aftercorr: is for arrays of at most {MOST_SINGLE} jobs")
    return not has_twins and len(indices) > WINDOW


def begin(state: State, base: JobRecord, indices: Indices, now: float) -> None:
    """Queue an array as one record, from which its members follow."""
    name = whole_id(base.id)
    rest = ArrayRest(indices=str(indices), left=len(indices), members=len(indices))
    state.put(replace(base, id=name, job=replace(base.job, id=name), rest=rest))
    fields = {"user": base.user, "name": base.name, "members": rest.members}
    state.emit(now, EventKind.JOB_SUBMITTED, name, **fields)


def found(state: State, job: str) -> JobRecord | None:
    """A job's record, of a member that is not in the queue yet the one that it will have."""
    number, _, index = job.partition("_")
    whole = state.jobs.get(whole_id(number))
    if job in state.jobs or whole is None or whole.rest is None or not whole.rest.left:
        return state.jobs.get(job)
    if not index.isdecimal() or int(index) not in Indices.read(whole.rest.indices):
        return None
    return member(whole, number, int(index))


def reached(state: State, job: str, now: float) -> JobRecord | None:
    """A job's record; a member that is not in the queue yet is put into it."""
    record = found(state, job)
    if record is not None and record.array_index is not None and job not in state.jobs:
        whole = state.jobs[whole_id(record.array)]
        assert whole.rest is not None
        left = Indices.read(whole.rest.indices).without(record.array_index)
        _make(state, whole, [record.array_index], left, now)
    return record


def reach_needed(state: State, needs: Iterable[tuple[str, str]], now: float, job: str = "") -> None:
    """Have the members in the queue on which a job is to depend, or a whole array one by one."""
    for kind, needed in needs:
        reached(state, needed, now)
        for number in (needed, job) if kind == "aftercorr" else ():
            whole = state.jobs.get(whole_id(number))
            if whole is not None and whole.rest is not None and whole.rest.left:
                _make(state, whole, *Indices.read(whole.rest.indices).split(MOST_SINGLE), now)


def follow(state: State, now: float) -> None:
    """Count the members that have ended, make others, and end the arrays that are over."""
    changes, state.array_changes = state.array_changes, {}
    for number, ended in changes.items():
        whole = state.jobs.get(whole_id(number))
        if whole is None or (rest := whole.rest) is None or whole.is_ended:
            continue
        if ended:
            ends = Counter(rest.ends) + Counter(str(record.state) for record in ended)
            codes = [r.exit_code for r in (whole, *ended) if r.exit_code is not None]
            rest = replace(rest, ends=dict(ends))
            whole = replace(whole, rest=rest, exit_code=max(codes, default=None))
            state.put(whole)
        waiting = state.pending.members[number] - whole.is_waiting
        pending = waiting - state.pending.held[number]
        if rest.left and whole.state is JobState.PENDING and 2 * pending < WINDOW:
            count = min(BATCH, WINDOW - pending)
            _make(state, whole, *Indices.read(rest.indices).split(count), now)
            if 2 * (pending + count) < WINDOW:
                state.out.append(Wake(at=now))
        elif rest.members == sum(rest.ends.values()):
            _end(state, whole, rest, now)
        elif whole.is_waiting and not (rest.left or waiting):
            state.put(replace(whole, state=JobState.RUNNING, started=now))
            has_started(state, whole)


def _make(state: State, whole: JobRecord, taken: list[int], left: Indices, now: float) -> None:
    assert whole.rest is not None
    state.put(replace(whole, rest=replace(whole.rest, indices=str(left), left=len(left))))
    for index in taken:
        record = member(whole, whole.array, index)
        state.put(record)
        state.emit(now, EventKind.JOB_SUBMITTED, record.id, user=record.user, name=record.name)
    state.rounds.job_arrived(state.pending.jobs, state.pending.procs)


def member(whole: JobRecord, number: str, index: int) -> JobRecord:
    """The record of a member that has just been submitted."""
    id = f"{number}_{index}"
    job = replace(whole.job, id=id)
    return replace(whole, id=id, job=job, rest=None, array_index=index, exit_code=None)


def _end(state: State, whole: JobRecord, rest: ArrayRest, now: float) -> None:
    """All of an array has ended: well, if all its members have."""
    failed = rest.ends.keys() - {JobState.COMPLETED, JobState.CANCELLED}
    cancelled = JobState.CANCELLED if JobState.CANCELLED in rest.ends else JobState.COMPLETED
    end = JobState.FAILED if failed else cancelled
    counts = ", ".join(f"{count} {state}" for state, count in rest.ends.items())
    detail = f"of {rest.members} members {counts}"
    state.put(replace(whole, state=end, ended=now, detail=detail))
    state.tell(now, EventKind.JOB_ENDED, whole.id, state=str(end), detail=detail)
    release_dependents(state, whole.id, now)
