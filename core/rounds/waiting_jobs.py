"""A waiting job as a snapshot shows it: what is left of it, and where it may start from when."""

from __future__ import annotations

from collections.abc import Collection

from coalloc.core.base.composites import ChunkPool, WorkflowState, is_stopping
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.jobs.dependencies import delayed, open_needs, plain
from coalloc.core.jobs.offers import Offers
from coalloc.core.starts.negotiation import others
from coalloc.core.starts.waits import is_crowded
from coalloc.model.jobs import DivisibleJob, Job, Started, WorkflowJob
from coalloc.model.ranges import EVENT
from coalloc.model.values import replace


def waiting_view(
    record: JobRecord, state: State, seen: Collection[str], now: float, offers: Offers
) -> Job | None:
    """A waiting job as the planner sees it; None where nothing of it is to be planned.

    `seen` is what is in the snapshot, as far as the job may wait for it.
    """
    job: Job | None = record.job
    is_composite = record.id in state.composites
    if is_composite and isinstance(job, WorkflowJob):
        job = rest_of(record, state, now)
    elif is_composite and isinstance(job, DivisibleJob):
        job = chunks_left(record, state, now)
    unmet = _unmet(record, state, seen)
    if job is None or unmet is None:
        return None
    changes: dict[str, object] = {}
    if unmet:
        changes["after"] = tuple(unmet)
    if record.state is JobState.HELD:
        changes["held"] = True
    if job.submitted > now:  # The clock was set back since.
        changes["submitted"] = now
    offer = offers.of(record)
    earliest = max(record.not_before, record.opens(now), offer.earliest, delayed(state, record))
    if earliest != job.earliest:
        changes["earliest"] = earliest
    if passed := state.findings.passed_over.get(record.id, 0):
        changes["passed_over"] = passed
    late = tuple(name for name in record.late if is_crowded(state, name))
    named = others(state, record, late) if late else None
    named = job.clusters if named is None else named
    if offer.mark:
        changes["features"] = (*job.features, offer.mark)
    taking = state.clusters.keys() - record.barred.keys() - offer.refusing.keys()
    if named is None and len(taking) < len(state.clusters):
        changes["clusters"] = tuple(sorted(taking))
    elif named is not None and (named != job.clusters or not taking.issuperset(named)):
        changes["clusters"] = tuple(name for name in named if name in taking)
    return replace(job, **changes) if changes else job  # type: ignore[arg-type]


def _unmet(record: JobRecord, state: State, seen: Collection[str]) -> list[str] | None:
    """Unmet dependencies of a job, by ids in the snapshot; None where one is not there.

    What of a workflow or a divisible job is placed runs under ids of its own.
    """
    unmet = []
    for kind, needed in open_needs(state, record):
        if plain(kind) == "after" or kind.endswith("?"):
            return None  # It may start once that one has, or one of several, which is not planned.
        flow = state.composites.get(needed)
        parts = () if flow is None else map(flow.job_of, flow.placed)
        there = [name for name in (needed, *parts) if name in seen]
        if not there:
            return None
        unmet += there
    return unmet


def chunks_left(record: JobRecord, state: State, now: float) -> DivisibleJob | None:
    """Chunks left of a divisible job: those of no piece, and of pieces to be tried again."""
    job, pool = record.job, state.composites[record.id]
    assert isinstance(job, DivisibleJob)
    assert isinstance(pool, ChunkPool)
    left = 0 if is_stopping(record, pool) else pool.left(now)
    if not left:
        return None
    return job if left == pool.total else replace(job, work=left * job.chunk_s)


def rest_of(record: JobRecord, state: State, now: float) -> WorkflowJob | None:
    """Rest of a workflow: the tasks to be placed, and the places of their data.

    Tasks that rest after a failure are left out with all that needs them.
    """
    job, flow = record.job, state.composites[record.id]
    assert isinstance(job, WorkflowJob)
    assert isinstance(flow, WorkflowState)
    if is_stopping(record, flow):
        return None
    if len(flow.open) == len(flow.tasks) and not flow.resting:
        return job
    left = dict.fromkeys(flow.plannable(now))
    if not left:
        return None
    started: dict[str, Started | None] = {}
    edges = []
    for task in left:
        for edge in flow.parents[task]:
            if edge.parent not in left and edge.parent not in started:
                begun = state.jobs.get(flow.job_of(edge.parent))
                started[edge.parent] = None if begun is None else _started(begun, state, now)
            if edge.parent in left or started[edge.parent] is not None:
                edges.append(edge)
    return replace(
        job,
        tasks=tuple(flow.tasks[task] for task in left),
        edges=tuple(edges),
        started=tuple(one for one in started.values() if one is not None),
    )


def _started(record: JobRecord, state: State, now: float) -> Started | None:
    """A task that runs or has run; None where it did on clusters that are no longer there."""
    places = tuple(part.cluster for part in record.parts if part.cluster in state.clusters)
    if not places:
        return None
    start = now if record.started is None else min(record.started, now)
    # Its end is by its nodes' clock, which may be ahead of ours.
    end = max(start + record.planned, now) if record.ended is None else min(record.ended, now)
    end = min(end, EVENT.high)
    return Started(task=record.task, clusters=places, end=end)
