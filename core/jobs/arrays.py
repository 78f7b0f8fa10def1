"""Arrays that are too long for the queue: one record, whose members are made as others start.

The record of array 12 has the id ``12_``. It stands for the indices that are not in the queue yet,
it counts the ends of all members, and it ends when the last of them has. Members in the queue are
jobs like any other; they keep the array's place in the order of arrival, as they have its number.
Making them and taking their indices from the record is one step, and so one transaction.
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
    if all(kind != "aftercorr" for kind, _ in needs):
        return len(indices) > WINDOW
    _check_single(len(indices))
    return False


def begin(state: State, base: JobRecord, number: str, indices: Indices, now: float) -> None:
    """Queue an array as one record, and its first members."""
    name = whole_id(number)
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
    is_index = index.isdecimal() and index == str(int(index))
    if not is_index or int(index) not in Indices.read(whole.rest.indices):
        return None
    return _member(whole, number, int(index))


def reached(state: State, job: str, now: float) -> JobRecord | None:
    """A job's record; a member that is not in the queue yet is put into it."""
    record = found(state, job)
    if record is not None and record.array_index is not None and job not in state.jobs:
        whole = state.jobs[whole_id(record.array)]
        assert whole.rest is not None
        left = Indices.read(whole.rest.indices).without(record.array_index)
        _make(state, whole, [record.array_index], left, now)
    return record


def reach_needed(state: State, needs: Iterable[tuple[str, str]], now: float) -> None:
    """Have the members in the queue on which a job is to depend, one by one."""
    for kind, job in needs:
        reached(state, job, now)
        if kind == "aftercorr" and (whole := state.jobs.get(whole_id(job))) is not None:
            unfolded(state, [whole], now)


def unfolded(state: State, records: Iterable[JobRecord], now: float) -> list[JobRecord]:
    """Records of jobs, with the members of an array in place of the array as a whole."""
    out: list[JobRecord] = []
    for record in records:
        if record.rest is None:
            out.append(record)
        elif record.rest.left:
            _check_single(record.rest.left)
            taken, left = Indices.read(record.rest.indices).split(MOST_SINGLE)
            _make(state, record, taken, left, now)
            out += (state.jobs[f"{record.array}_{index}"] for index in taken)
    return out


def _check_single(count: int) -> None:
    if count > MOST_SINGLE:
        message = f"dependency: aftercorr is for arrays of at most {MOST_SINGLE} jobs"
        raise RequestError("too_many", message)


def follow(state: State, now: float) -> None:
    """Count the members that have ended, make others, and end the arrays that are over."""
    changes, state.array_changes = state.array_changes, {}
    for number, ended in changes.items():
        whole = state.jobs.get(whole_id(number))
        if whole is None or whole.rest is None or whole.is_ended:
            continue
        if ended:
            ends = Counter(whole.rest.ends) + Counter(str(record.state) for record in ended)
            codes = [r.exit_code for r in (whole, *ended) if r.exit_code is not None]
            rest = replace(whole.rest, ends=dict(ends))
            whole = replace(whole, rest=rest, exit_code=max(codes, default=None))
            state.put(whole)
        living = state.arrays.get(number, Counter[JobState]())
        if whole.rest is not None and whole.rest.left:
            _fill(state, whole, whole.rest, living[JobState.PENDING], now)
        elif not living:
            _end(state, whole, now)
        elif whole.is_waiting and not (living[JobState.PENDING] or living[JobState.HELD]):
            state.put(replace(whole, state=JobState.RUNNING, started=now))
            has_started(state, whole)


def _fill(state: State, whole: JobRecord, rest: ArrayRest, pending: int, now: float) -> None:
    """Make the next members where few are left."""
    if whole.state is not JobState.PENDING or 2 * pending >= WINDOW:
        return
    _make(state, whole, *Indices.read(rest.indices).split(min(BATCH, WINDOW - pending)), now)
    if 2 * (pending + BATCH) < WINDOW:
        state.out.append(Wake(at=now))


def _make(state: State, whole: JobRecord, taken: list[int], left: Indices, now: float) -> None:
    assert whole.rest is not None
    state.put(replace(whole, rest=replace(whole.rest, indices=str(left), left=len(left))))
    for index in taken:
        record = _member(whole, whole.array, index)
        state.put(record)
        state.emit(now, EventKind.JOB_SUBMITTED, record.id, user=record.user, name=record.name)
    state.rounds.job_arrived(state.pending.jobs, state.pending.procs)


def _member(whole: JobRecord, number: str, index: int) -> JobRecord:
    job = f"{number}_{index}"
    job_of = replace(whole.job, id=job)
    return replace(whole, id=job, job=job_of, rest=None, array_index=index, exit_code=None)


def _end(state: State, whole: JobRecord, now: float) -> None:
    """All of an array has ended: well, if all its members have."""
    assert whole.rest is not None
    ends = whole.rest.ends
    failed = ends.keys() - {JobState.COMPLETED, JobState.CANCELLED}
    cancelled = JobState.CANCELLED if JobState.CANCELLED in ends else JobState.COMPLETED
    end = JobState.FAILED if failed else cancelled
    detail = ", ".join(f"{count} {state}" for state, count in ends.items())
    detail = f"of {whole.rest.members} members {detail}"
    state.put(replace(whole, state=end, ended=now, detail=detail))
    state.emit(now, EventKind.JOB_ENDED, whole.id, state=str(end), detail=detail)
    whose = {"user": whole.user, "name": whole.name}
    state.log("job_ended", job=whole.id, **whose, state=str(end), detail=detail)
    release_dependents(state, whole.id, now)
