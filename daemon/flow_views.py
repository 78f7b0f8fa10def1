"""Answers about workflows: progress, and where each task is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from coalloc.core.flows import Flow
from coalloc.core.records import ENDED, PLACED, JobRecord, JobState
from coalloc.core.state import State
from coalloc.core.workflows import first_record
from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Plan

NOT_RUN = "not_run"
"""The state of a task that has never been placed, and never will be."""
NEVER_RUN = "never runs: what it needs failed, or its workflow has ended"


def progress(record: JobRecord, state: State) -> dict[str, int] | None:
    """How many tasks a workflow has, and how many have completed, run, failed; None for others."""
    if not isinstance(record.job, WorkflowJob):
        return None
    flow = state.flows.get(record.id)
    if flow is None:
        total = len(record.job.tasks)
        known = (state.jobs.get(f"{record.id}.{number}") for number in range(1, total + 1))
        return tally((str(task.state) for task in known if task is not None), total)
    return {
        "total": len(flow.tasks),
        "completed": len(flow.completed),
        "running": len(flow.placed),
        "failed": len(flow.failed),
    }


def tally(states: Iterable[str], total: int) -> dict[str, int]:
    """Progress from the states of the tasks that were ever placed."""
    counts = Counter(states)
    done, placed = counts[JobState.COMPLETED], sum(counts[state] for state in PLACED)
    bad = sum(counts[state] for state in ENDED) - done
    return {"total": total, "completed": done, "running": placed, "failed": bad}


def occupied(flow: Flow, state: State) -> tuple[dict[str, int], list[str]]:
    """Nodes with processes, and clusters, that the tasks of a workflow occupy now."""
    nodes: dict[str, int] = {}
    clusters: dict[str, None] = {}
    for task in flow.placed:
        for part in state.jobs[flow.job_of(task)].parts:
            clusters[part.cluster] = None
            for node, count in part.nodes.items():
                nodes[node] = nodes.get(node, 0) + count
    return nodes, list(clusters)


def expectation(record: JobRecord, state: State) -> tuple[float | None, str, str]:
    """Of a workflow that runs: what went wrong, or why nothing of it runs at the moment."""
    outlook = state.outlook.get(record.id)
    if record.reason or state.flows[record.id].placed or outlook is None:
        return None, record.reason, record.detail
    if outlook.start is not None:
        return outlook.start, "planned", "none of its tasks runs now; the next is planned"
    return None, outlook.reason, outlook.detail


def task_rows(
    workflow: JobRecord, known: Mapping[str, JobRecord], state: State
) -> list[dict[str, Any]]:
    """Every task in the order of the file.

    Parameters
    ----------
    known : mapping of task to JobRecord
        Those that were ever placed.
    """
    assert isinstance(workflow.job, WorkflowJob)
    rows = []
    for number, task in enumerate(workflow.job.tasks, 1):
        record = known.get(task.id) or first_record(workflow, task.id, number)
        start, reason, detail = task_expectation(record, workflow, state)
        rows.append(
            {
                "id": record.id,
                "task": task.id,
                "state": NOT_RUN if reason == NOT_RUN else str(record.state),
                "attempt": record.attempt,
                "failures": record.failures,
                "nodes": {n: c for part in record.parts for n, c in part.nodes.items()},
                "clusters": [part.cluster for part in record.parts],
                "started": record.started,
                "ended": record.ended,
                "exit_code": record.exit_code,
                "planned": record.planned,
                "start_estimate": start,
                "reason": reason,
                "detail": detail,
            }
        )
    return rows


def not_run(record: JobRecord, workflow: JobRecord) -> JobRecord:
    """The record of a task that its workflow ended without."""
    return replace(
        record, state=JobState.CANCELLED, ended=workflow.ended, reason=NOT_RUN, detail=NEVER_RUN
    )


def task_expectation(
    record: JobRecord, workflow: JobRecord, state: State
) -> tuple[float | None, str, str]:
    """When a task that waits is expected to start, why it waits, and the same in words."""
    flow = state.flows.get(workflow.id)
    if not record.is_waiting:
        return None, record.reason, record.detail
    if flow is None or record.task in flow.dropped:
        return None, NOT_RUN, NEVER_RUN
    if record.reason:
        return None, record.reason, record.detail
    planned = None if state.lanes is None else state.lanes.placements.get((flow.id, record.task))
    start = None if planned is None else planned.start
    if flow.unmet[record.task]:
        left = [e.parent for e in flow.parents[record.task] if e.parent not in flow.completed]
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        return start, "parents", f"waits for {', '.join(left[:3])}{more}"
    if start is not None:
        return start, "planned", "its parents have ended; it waits for its turn"
    return None, "next_round", "its parents have ended; the next round decides"


def edges_of(plan: Plan, state: State) -> dict[str, list[tuple[str, str]]]:
    """Of each workflow in a plan, parents with their children; for its critical path."""
    out: dict[str, list[tuple[str, str]]] = {}
    for job in {placement.job for placement in plan.placements if placement.task is not None}:
        record = state.jobs.get(job)
        if record is not None and isinstance(record.job, WorkflowJob):
            out[job] = [(edge.parent, edge.child) for edge in record.job.edges]
    return out
