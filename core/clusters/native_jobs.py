"""Jobs that their users submitted in a cluster's own batch system, for us to order.

A reading lists all of them that have not begun. One that is new becomes a job of ours, bound to
its cluster: planned, prepared and started like any other, with the one difference that its
executor lets go a job that exists already. It is known for ever by its cluster, its id there and
the time it was submitted there, so that a reading that comes late, twice or after a restart
makes no second job of it.

Notes
-----
A reading is older than what the executor reports of parts, so it decides nothing about a job
that is placed, and an absence counts only where two readings in a row agree on it, neither of
them from before the daemon was restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.effects import SaveToken
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Submit
from coalloc.core.base.state import NOBODY, State
from coalloc.core.commands.admission import never_fits
from coalloc.core.commands.queue import numbered, submitted_job
from coalloc.core.jobs.after_restore import is_held
from coalloc.core.jobs.ends import dismiss, end_waiting
from coalloc.model.errors import InputError
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import Job
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import CANCELLED_THERE, Launch
from coalloc.model.sites.reading import ClusterReading, NativeJob
from coalloc.model.values import replace

WAITS_THERE = "waits_there"
INFEASIBLE = "infeasible"
HELD_FOR = frozenset({WAITS_THERE, INFEASIBLE})
"""Why we hold a handed job; `coalloc release` does not undo what the batch system says."""


def token_of(cluster: str, entry: NativeJob) -> str:
    """The permanent token of a native job."""
    return f"handed:{cluster}/{entry.id}/{entry.submitted:.0f}"


def taken_in(
    state: State, cluster: ClusterState, reading: ClusterReading, now: float, *, is_of_now: bool
) -> None:
    """Queue what is new, follow what has changed there, and end what has gone.

    `is_of_now`: it was read for this run of the daemon; an earlier one may have seen jobs since.
    """
    name = cluster.settings.name
    if not cluster.configured or cluster.settings.owner:
        return  # its owner's executor could name anybody as a job's user
    present = set()
    for entry in reading.handed:
        present.add(entry.id)
        token = token_of(name, entry)
        job = state.tokens.get((NOBODY, token))
        if job is None and (job := _known_as(state, name, entry)) is not None:
            # Its id is not used again while it lives: requeued, it counts as submitted anew.
            state.tokens[NOBODY, token] = job
            state.out.append(SaveToken(user=NOBODY, token=token, job=job))
        if job is None:
            _queue(state, name, entry, now)
        elif not entry.claimed and (record := state.jobs.get(job)) is not None:
            _follow(state, record, entry, now)
    if not is_of_now or name in state.presence.unreconciled:
        return
    known = state.native.jobs.get(name, {})
    absent = frozenset(
        there
        for there, job in known.items()
        if there not in present
        and job in state.waiting
        and not is_held(state.jobs[job])
        and not 0.0 < cluster.reading_at <= cluster.put_back.get(there, 0.0)
    )
    for there in sorted(absent & cluster.unseen):
        record = state.jobs[known[there]]
        why = f"no longer waits in {name}: cancelled or started there"
        end_waiting(state, record, now, JobState.CANCELLED, why, CANCELLED_THERE)
    cluster.unseen = absent


def _known_as(state: State, name: str, entry: NativeJob) -> str | None:
    """The job that this entry is: one that has not ended, or was cancelled here.

    A batch system may put a job back into its queue while we end it.
    """
    living = state.native.jobs.get(name, {}).get(entry.id)
    if living is not None:
        return living
    for record in (state.jobs[job] for job in reversed(state.ended)):
        # while it waited, or once it had been placed
        ended_here = record.state is JobState.CANCELLED and record.reason != CANCELLED_THERE
        is_that = (record.origin, record.foreign) == (name, entry.id)
        if is_that and (ended_here or record.cancelled_by):
            return record.id
    return None


def _planned(
    state: State, name: str, entry: NativeJob, now: float
) -> tuple[Job, Mapping[str, str]]:
    fields: dict[str, Any] = {"kind": "rigid", "procs": entry.procs, "clusters": [name]}
    if entry.time_limit is not None:
        fields["time_limit"] = entry.time_limit
    if entry.features:
        fields["features"] = list(entry.features)
    if entry.memory_mb_per_proc:
        fields["memory_mb_per_proc"] = entry.memory_mb_per_proc
    if entry.shape != ONE_SLOT:
        fields["shape"] = to_builtins(entry.shape)
    command = Submit(token=token_of(name, entry), job=fields, launch=_launch(entry))
    return submitted_job(state, entry.user, command, now)


def _launch(entry: NativeJob) -> Launch:
    return Launch(argv=(entry.name or entry.id,))


def _queue(state: State, name: str, entry: NativeJob, now: float) -> None:
    if entry.claimed:
        return  # a part that this daemon does not know has it: its store is an older copy
    try:
        job, sources = _planned(state, name, entry, now)
    except InputError as error:
        if (name, entry.id) not in state.native.refused:
            state.native.refused.add((name, entry.id))
            fields = {"cluster": name, "job_there": entry.id, "why": str(error)}
            state.log("handed_job_refused", level="warning", **fields)
        return
    number = numbered(state, NOBODY, token_of(name, entry), _launch(entry))
    record = JobRecord(
        id=number,
        job=replace(job, id=number),
        name=entry.name or entry.id,
        user=entry.user,
        uid=entry.uid,
        gid=entry.gid,
        command=entry.name,
        submitted=min(entry.submitted, now),
        clock_before_s=state.clock_set_s,
        sources=sources,
        origin=name,
        foreign=entry.id,
    )
    record = _held_or_not(state, record, entry)
    state.put(record)
    state.tell(
        now, EventKind.JOB_HANDED_OVER, number, user=entry.user, cluster=name, job_there=entry.id
    )
    if record.state is JobState.PENDING:
        state.rounds.job_arrived(state.pending.jobs, state.pending.procs)


def _held_or_not(state: State, record: JobRecord, entry: NativeJob) -> JobRecord:
    """Held while the batch system has a reason of its own, or the job can never run."""
    if entry.waits:
        why = f"{record.origin} says {entry.waits}"
        return replace(record, state=JobState.HELD, reason=WAITS_THERE, detail=why)
    if lacking := never_fits(state, record.job):
        return replace(record, state=JobState.HELD, reason=INFEASIBLE, detail=lacking)
    if record.state is JobState.HELD and record.reason in HELD_FOR:
        return replace(record, state=JobState.PENDING, reason="", detail="")
    return record


def _follow(state: State, record: JobRecord, entry: NativeJob, now: float) -> None:
    """Take over what was changed in the batch system while the job waits."""
    if record.state is JobState.CANCELLED and record.reason != CANCELLED_THERE:
        dismiss(state, record)  # it was cancelled here, and is still there
        return
    if not record.is_waiting:
        return
    changed = record
    if _differs(record, entry):
        try:
            job, sources = _planned(state, record.origin, entry, now)
        except InputError:
            return  # what it asks for now cannot be planned; it keeps what it asked for before
        kept = {"id": record.id, "submitted": record.job.submitted, "earliest": record.job.earliest}
        changed = replace(record, job=replace(job, **kept), sources=sources)  # type: ignore[arg-type]
    changed = _held_or_not(state, changed, entry)
    if changed != record:
        state.put(changed)
        if changed.state is JobState.PENDING and record.state is JobState.HELD:
            state.emit(now, EventKind.JOB_RELEASED, record.id, user=record.user)
            state.rounds.job_arrived(state.pending.jobs, state.pending.procs)


def _differs(record: JobRecord, entry: NativeJob) -> bool:
    job = record.job
    return (
        getattr(job, "procs", 0) != entry.procs
        or (
            job.time_limit != entry.time_limit
            and (entry.time_limit is not None or record.sources.get("time_limit") == "user")
        )
        or job.features != entry.features
        or job.memory_mb_per_proc != entry.memory_mb_per_proc
        or job.shape != entry.shape
    )
