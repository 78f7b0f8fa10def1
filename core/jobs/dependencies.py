"""Dependencies between jobs: what they are on, when they are met, and when they never will be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf

from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import RequestError
from coalloc.core.base.state import State, whole_id
from coalloc.model.jobs import DEPENDENCY_KINDS

Needs = tuple[tuple[str, str], ...]

_MET_BY_ANY_END = frozenset({"after", "afterany", "singleton"})
_MET_BY_SUCCESS = frozenset({"afterok", "aftercorr"})


def plain(kind: str) -> str:
    """A kind without the minutes of ``after+5`` and the mark of ``afterok?``."""
    return kind.removesuffix("?").partition("+")[0]


def is_open(kind: str, needed: JobRecord) -> bool:
    """Test if a job still waits for this one."""
    if plain(kind) == "after" and needed.state is JobState.RUNNING:
        return False
    return not needed.is_ended


def cannot_be_met(kind: str, needed: JobRecord) -> str:
    """Reason why a dependency on this job will never be met; empty if it is, or may be."""
    if not needed.is_ended or plain(kind) in _MET_BY_ANY_END:
        return ""
    if (plain(kind) in _MET_BY_SUCCESS) is (needed.state is JobState.COMPLETED):
        return ""
    return f"{kind}:{needed.id} cannot be met: job {needed.id} is {needed.state}"


def has_started(state: State, record: JobRecord) -> None:
    """Have those that wait for the start of this job planned as if they had just arrived."""
    waiting = state.dependents.get(record.id, ())
    needs = (need for job in waiting for need in state.jobs[job].needs)
    if any(plain(kind) == "after" and needed == record.id for kind, needed in needs):
        state.rounds.job_arrived(state.pending.jobs, state.pending.procs)


def open_needs(state: State, record: JobRecord) -> list[tuple[str, str]]:
    """Of a job's dependencies, those that are not met yet."""
    if not record.needs:
        return []
    found = [(kind, job, state.jobs.get(job)) for kind, job in record.needs]
    still = [(k, job) for k, job, needed in found if needed is not None and is_open(k, needed)]
    if any(
        kind.endswith("?")
        and (needed is None or not (is_open(kind, needed) or cannot_be_met(kind, needed)))
        for kind, _, needed in found
    ):
        return [(kind, job) for kind, job in still if not kind.endswith("?")]
    return still


def never_met(state: State, needs: Needs) -> str:
    """Reason why a job with these dependencies can never run; empty if it may."""
    whys = [
        (kind, cannot_be_met(kind, state.jobs[job])) for kind, job in needs if job in state.jobs
    ]
    is_lost = all(why for kind, why in whys if kind.endswith("?"))
    return next((why for kind, why in whys if why and (is_lost or not kind.endswith("?"))), "")


def delayed(state: State, record: JobRecord) -> float:
    """Earliest start by minutes behind the starts of others, or ends without one; -inf: none."""
    starts = [-inf]
    for kind, job in record.needs:
        needed, minutes = state.jobs.get(job), kind.removesuffix("?").partition("+")[2]
        if minutes and needed is not None:
            begun = needed.ended if needed.started is None else needed.started
            starts.append(-inf if begun is None else begun + int(minutes) * 60.0)
    return max(starts)


def members_of(state: State, number: str) -> list[str]:
    """Ids of the jobs of the array of this number."""
    return [name for name in state.jobs if name.startswith(f"{number}_")]


def resolved(
    state: State, needs: Needs, *, user: str, name: str, array: Sequence[int | None] = (None,)
) -> Mapping[int | None, Needs]:
    """Dependencies as submitted, as those on single jobs, for each member of an array.

    Of the kinds with a question mark one is enough; ``after+5`` is five minutes later. The id of an
    array stands for each of its members; of `singleton` it means nothing. User, name and indices
    are of the job that depends on others; where it is no array, its index is None.
    """
    common: list[tuple[str, str]] = []
    arrays: list[str] = []
    for kind, job in needs:
        if why := _no_kind(kind):
            raise RequestError("bad_request", f"dependency: {why}")
        if kind == "singleton":
            if len(array) > 1:
                why = "an array is no singleton; --array=...%1 runs one member at a time"
                raise RequestError("bad_request", f"dependency: {why}")
            alike = (r for r in state.jobs.values() if r.user == user and r.name == name)
            common += ((kind, r.id) for r in alike if not (r.is_ended or r.flow))
            continue
        whole = whole_id(job)  # which ends as its members do
        one = whole if kind != "aftercorr" and whole in state.jobs else job
        members = [one] if one in state.jobs else members_of(state, job)
        if not members:
            raise RequestError("not_found", f"dependency: there is no job {job}")
        if kind.endswith("?") and len(members) > 1:
            message = f"dependency: {kind} is for single jobs; {job} is an array"
            raise RequestError("bad_request", message)
        if kind == "aftercorr":
            arrays.append(job)
            continue
        common += ((kind, member) for member in members)
    out = {}
    for index in array:
        own = [("aftercorr", f"{number}_{index}") for number in arrays]
        absent = next((job for _, job in own if job not in state.jobs), None)
        if absent is not None:
            raise RequestError("not_found", f"dependency: aftercorr: no job {absent}")
        out[index] = (*common, *own)
        if why := never_met(state, out[index]):
            raise RequestError("wrong_state", f"dependency: {why}")
    return out


def _no_kind(kind: str) -> str:
    """The fault of a kind of dependency; empty: none."""
    name, plus, minutes = kind.removesuffix("?").partition("+")
    if name not in DEPENDENCY_KINDS:
        return f"{name!r} is not one of {', '.join(DEPENDENCY_KINDS)}"
    if plus and not (name == "after" and re.fullmatch("[0-9]{1,9}", minutes)):
        return f"{kind!r}: minutes are for after, as in after+5"
    if kind.endswith("?") and name in {"aftercorr", "singleton"}:
        return f"{name} is not one of several"
    return ""


def circle(state: State, job: str, changed: Mapping[str, Needs]) -> str:
    """The job among a job's new needs that would wait for it, directly or not; empty if none.

    `changed` has the needs of the job, and of all that are changed with it. A long array waits for
    each of its members.
    """
    own = {job, whole_id(job.partition("_")[0])}
    for _, first in changed[job]:
        ahead, seen = [first], {first}
        while ahead:
            at = ahead.pop()
            if at in own:
                return first
            record = state.jobs.get(at)
            needs = changed.get(at, () if record is None else record.needs)
            more = {needed for _, needed in needs} - seen
            seen |= more
            ahead += more
    return ""
