"""Dependencies between jobs: what they are on, when they are met, and when they never will be."""

from __future__ import annotations

from collections.abc import Mapping

from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Refused
from coalloc.core.base.state import State
from coalloc.model.jobs import DEPENDENCY_KINDS

Needs = tuple[tuple[str, str], ...]

_MET_BY_ANY_END = frozenset({"after", "afterany", "singleton"})
_MET_BY_SUCCESS = frozenset({"afterok", "aftercorr"})


def is_open(kind: str, needed: JobRecord) -> bool:
    """Test if a job still waits for this one."""
    if kind == "after" and needed.state is JobState.RUNNING:
        return False
    return not needed.is_ended


def cannot_be_met(kind: str, needed: JobRecord) -> str:
    """Reason why a dependency on this job will never be met; empty if it is, or may be."""
    if not needed.is_ended or kind in _MET_BY_ANY_END:
        return ""
    if (kind in _MET_BY_SUCCESS) is (needed.state is JobState.COMPLETED):
        return ""
    return f"{kind}:{needed.id} cannot be met: job {needed.id} is {needed.state}"


def has_started(state: State, record: JobRecord) -> None:
    """Have those that wait for the start of this job planned as if they had just arrived."""
    waiting = state.dependents.get(record.id, ())
    if any(("after", record.id) in state.jobs[job].needs for job in waiting):
        state.rounds.job_arrived(state.pending.jobs, state.pending.procs)


def open_needs(state: State, record: JobRecord) -> list[tuple[str, str]]:
    """Of a job's dependencies, those that are not met yet."""
    return [
        (kind, job)
        for kind, job in record.needs
        if job in state.jobs and is_open(kind, state.jobs[job])
    ]


def members_of(state: State, number: str) -> list[str]:
    """Ids of the jobs of the array of this number."""
    return [name for name in state.jobs if name.startswith(f"{number}_")]


def resolved(
    state: State, needs: Needs, *, user: str, name: str, array: tuple[int | None, ...] = (None,)
) -> Mapping[int | None, Needs] | Refused:
    """Dependencies as submitted, as those on single jobs, for each member of an array.

    Parameters
    ----------
    needs : tuple of (kind, id)
        The id of an array stands for each of its members; of `singleton` it means nothing.
    user, name : str
        Of the job that depends on others.
    array : tuple of int
        Its indices; of a job that is no array, one None.
    """
    common: list[tuple[str, str]] = []
    arrays: list[str] = []
    for kind, job in needs:
        if kind not in DEPENDENCY_KINDS:
            message = f"dependency: {kind!r} is not one of {', '.join(DEPENDENCY_KINDS)}"
            return Refused(code="bad_request", message=message)
        if kind == "singleton":
            if len(array) > 1:
                message = (
                    "dependency: an array is no singleton; --array=...%1 runs one member at a time"
                )
                return Refused(code="bad_request", message=message)
            common += ((kind, other) for other in _of_the_name(state, user, name))
            continue
        members = [job] if job in state.jobs else members_of(state, job)
        if not members:
            return Refused(code="not_found", message=f"dependency: there is no job {job}")
        if kind == "aftercorr":
            arrays.append(job)
            continue
        common += ((kind, member) for member in members)
    out = {}
    for index in array:
        own = [("aftercorr", f"{number}_{index}") for number in arrays]
        absent = next((job for _, job in own if job not in state.jobs), None)
        if absent is not None:
            return Refused(code="not_found", message=f"dependency: aftercorr: no job {absent}")
        out[index] = (*common, *own)
        for kind, needed in out[index]:
            if why := cannot_be_met(kind, state.jobs[needed]):
                return Refused(code="wrong_state", message=f"dependency: {why}")
    return out


def _of_the_name(state: State, user: str, name: str) -> list[str]:
    """Jobs of a user with a name that have not ended; tasks and pieces apart."""
    return [
        record.id
        for record in state.jobs.values()
        if record.user == user and record.name == name and not (record.is_ended or record.flow)
    ]


def circle(state: State, job: str, changed: Mapping[str, Needs]) -> str:
    """The job among a job's new needs that would wait for it, directly or not; empty if none.

    Parameters
    ----------
    changed : mapping of id to needs
        Of the job, and of all that are changed with it.
    """
    for _, first in changed[job]:
        ahead, seen = [first], {first}
        while ahead:
            at = ahead.pop()
            if at == job:
                return first
            record = state.jobs.get(at)
            needs = changed.get(at, () if record is None else record.needs)
            more = {needed for _, needed in needs} - seen
            seen |= more
            ahead += more
    return ""
