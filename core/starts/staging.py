"""Data of jobs on clusters: there before the claim, brought back after the end, and removed.

What is wanted is said with every ping, and every ping is answered with how far that is: nothing of
a copy under way has to be remembered. The record has the clusters on which there may be a folder.
"""

from __future__ import annotations

from collections.abc import Iterator

from coalloc.core.base.messages import STAGES
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.commands.admission import bar
from coalloc.core.jobs.dependencies import open_needs
from coalloc.core.jobs.eligibility import is_open_to, owner_of, verdict_of
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.staging import Phase, Stage
from coalloc.model.values import replace

MOST_AT_ONCE = 8
"""Wishes for one cluster's executor, which copies for one job at a time, in their order."""
NOT_BEGUN = {True: "not begun", False: "its executor is not there"}


def wishes(state: State, name: str) -> Iterator[Stage]:
    """The data that jobs want on a cluster and do not have there yet, or no longer want."""
    for record in (state.jobs[job] for job in state.marked.staging):
        if phase := _phase(record, name):
            copies = {"in": record.stage_in, "out": record.stage_out}.get(phase, ())
            yield Stage(job=record.id, user=record.user, phase=phase, copies=copies)


def begin(state: State, name: str) -> None:
    """Have the data of waiting jobs copied to a cluster that may run them, in their order."""
    cluster = state.clusters[name]
    if not state.marked.staging or STAGES not in (cluster.abilities or ()):
        return
    left = MOST_AT_ONCE - sum(1 for _ in wishes(state, name))
    for record in [state.jobs[job] for job in state.marked.staging]:
        if (
            left > 0
            and record.state is JobState.PENDING
            and name not in {*record.staged, *record.barred}
            and is_open_to(name, cluster, record.job, record.user)
            and not verdict_of(cluster, record.job, owner_of(record)).never
            and not open_needs(state, record)
        ):
            state.put(replace(record, staged={**record.staged, name: ""}))
            left -= 1


def taken_in(state: State, cluster: str, said: Stage, now: float) -> None:
    """Take in how far a cluster's executor is with a job's data."""
    record = state.jobs.get(said.job)
    if record is None or said.phase != _phase(record, cluster) or not said.state:
        return
    if said.phase == "in" and said.state == "done":
        state.put(replace(record, staged={**record.staged, cluster: said.folder}))
        state.rounds.want("data_copied")
    elif said.phase == "in" and record.is_waiting:
        bar(state, record, now, cluster, "not_permitted", said.detail)
    elif said.phase != "in":
        left = {name: folder for name, folder in record.staged.items() if name != cluster}
        detail = record.detail
        if said.state == "failed":
            why = f"{cluster}: not copied back, {said.detail}; kept there in {said.folder}"
            detail = "; ".join(filter(None, (detail, why)))
            state.log("stage_out_failed", level="warning", job=record.id, cluster=cluster, why=why)
        state.put(replace(record, staged=left, detail=detail))
        if record.is_ended and not left:
            state.emit(now, EventKind.JOB_COPIED, record.id, detail=detail)


def _phase(record: JobRecord, name: str) -> Phase | None:
    """Wish of a job on a cluster; None: nothing is to be done."""
    if name not in record.staged:
        return None
    if record.is_ended:
        ran = any(part.cluster == name and part.started is not None for part in record.parts)
        return "out" if ran and record.stage_out else "gone"
    if name in record.barred:
        return "gone"
    return None if record.staged[name] else "in"


def in_words(state: State, record: JobRecord) -> str:
    """Progress of a job's copies, by cluster, in words; empty: nothing is to be done."""
    told = []
    for name in filter(lambda name: _phase(record, name), record.staged):
        cluster = state.clusters.get(name)
        is_there = cluster is not None and cluster.connected
        said = cluster.stages.get(record.id) if cluster is not None else None
        told.append(f"{name}: {said.detail if said and is_there else NOT_BEGUN[is_there]}")
    is_new = record.is_staged and record.is_waiting and not record.staged
    return "; ".join(told) or (NOT_BEGUN[True] if is_new else "")
