"""Answers about workflows and divisible jobs: progress, and where each task or piece is."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping

from coalloc.core.base.composites import ChunkPool, Flow, WorkflowState
from coalloc.core.base.records import ENDED, PLACED, JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.jobs.workflows import first_record
from coalloc.model.jobs import DivisibleJob, WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.values import fields_of, replace
from coalloc.wire.job_rows import MemberRow, PieceRow, Progress, TaskRow

CHUNKS = "chunks"
"""What progress counts of a divisible job; of a workflow, tasks."""
NOT_RUN = "not_run"
"""The state of a task that has never been placed, and never will be."""
NEVER_RUN = "never runs: what it needs failed, or its workflow has ended"


def progress(record: JobRecord, state: State) -> Progress | None:
    """Counts of a job's tasks or chunks, in all and by what became of them; None: it has none."""
    flow = state.composites.get(record.id)
    if isinstance(record.job, DivisibleJob):
        total = record.job.chunks
        if isinstance(flow, ChunkPool):
            done, runs, lost = flow.done, flow.running(), flow.lost()
            return Progress(total=total, completed=done, running=runs, failed=lost, unit=CHUNKS)
        ids = (f"{record.id}.{number}" for number in itertools.count(1))
        numbers = itertools.takewhile(state.jobs.__contains__, ids)
        return chunk_tally((state.jobs[piece] for piece in numbers), total)
    if not isinstance(record.job, WorkflowJob):
        return None
    if not isinstance(flow, WorkflowState):
        total = len(record.job.tasks)
        known = (state.jobs.get(f"{record.id}.{number}") for number in range(1, total + 1))
        return tally((str(task.state) for task in known if task is not None), total)
    return Progress(
        total=len(flow.tasks),
        completed=len(flow.completed),
        running=len(flow.placed),
        failed=len(flow.failed),
    )


def tally(states: Iterable[str], total: int) -> Progress:
    """Progress from the states of the tasks that were ever placed."""
    counts = Counter(states)
    done, placed = counts[JobState.COMPLETED], sum(counts[state] for state in PLACED)
    bad = sum(counts[state] for state in ENDED) - done
    return Progress(total=total, completed=done, running=placed, failed=bad)


def chunk_tally(pieces: Iterable[JobRecord], total: int) -> Progress:
    """Progress from all pieces of a divisible job that has ended."""
    counts: Counter[bool] = Counter()
    for piece in pieces:
        if not piece.is_waiting:
            counts[piece.state is JobState.COMPLETED] += piece.chunks
    return Progress(total=total, completed=counts[True], failed=counts[False], unit=CHUNKS)


def piece_rows(pieces: Iterable[JobRecord]) -> tuple[PieceRow, ...]:
    """Every piece of a divisible job, in the order of their numbers."""
    return tuple(
        PieceRow(
            **fields_of(piece, MemberRow),
            first=piece.chunk_first,
            chunks=piece.chunks,
            not_before=piece.not_before if piece.is_waiting else None,
        )
        for piece in pieces
    )


def occupied(flow: Flow, state: State) -> tuple[dict[str, int], tuple[str, ...]]:
    """Nodes with processes, and clusters, that tasks or pieces occupy now."""
    nodes: dict[str, int] = {}
    clusters: dict[str, None] = {}
    for task in flow.placed:
        for part in state.jobs[flow.job_of(task)].parts:
            clusters[part.cluster] = None
            for node, count in part.nodes.items():
                nodes[node] = nodes.get(node, 0) + count
    return nodes, tuple(clusters)


def expectation(record: JobRecord, state: State) -> tuple[float | None, str, str]:
    """Of what has tasks or pieces: what went wrong, or why nothing of it runs at the moment."""
    outlook = state.findings.outlook.get(record.id)
    flow = state.composites[record.id]
    if record.reason or flow.placed or outlook is None:
        return None, record.reason, record.detail
    if outlook.start is not None:
        what = "pieces" if isinstance(flow, ChunkPool) else "tasks"
        return outlook.start, "planned", f"none of its {what} runs now; the next is planned"
    return None, outlook.reason, outlook.detail


def task_rows(
    workflow: JobRecord, known: Mapping[str, JobRecord], state: State
) -> tuple[TaskRow, ...]:
    """Every task in the order of the file; known are those that were ever placed."""
    assert isinstance(workflow.job, WorkflowJob)
    rows = []
    for number, task in enumerate(workflow.job.tasks, 1):
        record = known.get(task.id) or first_record(workflow, task.id, number)
        start, reason, detail = task_expectation(record, workflow, state)
        rows.append(
            TaskRow(
                **{
                    **fields_of(record, MemberRow),
                    "state": NOT_RUN if reason == NOT_RUN else record.state,
                    "reason": reason,
                    "detail": detail,
                },
                task=task.id,
                start_estimate=start,
            )
        )
    return tuple(rows)


def not_run(record: JobRecord, workflow: JobRecord) -> JobRecord:
    """The record of a task that its workflow ended without."""
    return replace(
        record, state=JobState.CANCELLED, ended=workflow.ended, reason=NOT_RUN, detail=NEVER_RUN
    )


def task_expectation(
    record: JobRecord, workflow: JobRecord, state: State
) -> tuple[float | None, str, str]:
    """Expected start of a task that waits, the reason why it waits, and the same in words."""
    flow = state.composites.get(workflow.id)
    if not record.is_waiting:
        return None, record.reason, record.detail
    if not isinstance(flow, WorkflowState) or record.task in flow.dropped:
        return None, NOT_RUN, NEVER_RUN
    if record.reason:
        return None, record.reason, record.detail
    order = state.schedule.order
    planned = None if order is None else order.placements.get((flow.id, record.task))
    start = None if planned is None else planned.start
    if flow.unmet[record.task]:
        left = [e.parent for e in flow.parents[record.task] if e.parent not in flow.completed]
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        return start, "parents", f"waits for {', '.join(left[:3])}{more}"
    if start is not None:
        return start, "planned", "its parents have ended; it waits for its turn"
    return None, "next_round", "its parents have ended; the next round decides"


def edges_of(plan: Plan, state: State) -> dict[str, tuple[tuple[str, str], ...]]:
    """Of each workflow in a plan, parents with their children; for its critical path."""
    out: dict[str, tuple[tuple[str, str], ...]] = {}
    for job in {placement.job for placement in plan.placements if placement.task is not None}:
        record = state.jobs.get(job)
        if record is not None and isinstance(record.job, WorkflowJob):
            out[job] = tuple((edge.parent, edge.child) for edge in record.job.edges)
    return out
