"""Runs of a replay: a job is one, and of a workflow each task.

Notes
-----
A trace has a row for each run. A task's row is that of a job of its own, rigid or moldable, which
was submitted with its workflow and takes by its estimate as long as its workflow's job in the log.

What a user waits for is the end of the whole: `wholes` joins the tasks of a workflow again. The
*length* of a workflow is its critical path, by the run times and allotments that it had; its *wait*
is what passed beyond that between its submission and its end. Of a job with one run these are its
run time and its wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.speedup import AmdahlSpeedup
from coalloc.model.values import replace
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Floats, Ints, Workload


def runs_of(workload: Workload) -> Workload:
    """The workload of the runs; the same one where no job is a workflow."""
    if all(one.flow is None for one in workload.jobs):
        return workload
    runs: list[LoggedJob] = []
    for one in workload.jobs:
        tasks = () if one.flow is None else one.flow.tasks
        runs += [_task(one, number, task) for number, task in enumerate(tasks, 1)] or [one]
    return replace(workload, jobs=tuple(runs))


def _task(logged: LoggedJob, number: int, task: Task) -> LoggedJob:
    """A task as a job of its own."""
    name, share = f"{logged.job.id}:{number}", logged.run_s / logged.job.base_time
    low, high = task.min_procs, task.max_procs
    speedup = AmdahlSpeedup(time_1=task.work, parallel_fraction=task.parallel_fraction)
    seconds = speedup.time(low)
    whole = logged.job
    kept: dict[str, Any] = {
        "weight": whole.weight,
        "submitted": whole.submitted,
        "earliest": whole.earliest,
        "clusters": whole.clusters,
    }
    job = RigidJob(id=name, procs=low, base_time=seconds, **kept)
    moldable = None
    if high > low:
        moldable = MoldableJob(id=name, speedup=speedup, min_procs=low, max_procs=high, **kept)
    real = seconds if logged.is_exact else seconds * share
    return replace(logged, job=job, run_s=real, moldable=moldable, task=task.id)


@dataclass(frozen=True, kw_only=True)
class Wholes:
    """The jobs as their users see them; NaN where one did not run, or not to its end."""

    submit: Floats
    begin: Floats
    """Start; of a workflow, its end less its length."""
    end: Floats
    length: Floats
    """Run time; of a workflow, its critical path."""
    is_flow: NDArray[np.bool_]
    first: Ints
    """Its runs are first .. last - 1 of those of the trace."""
    last: Ints


def wholes(trace: Trace) -> Wholes:
    """Join the tasks of each workflow of a trace."""
    runs = trace.workload.jobs
    bounds = _bounds(runs)
    first, last = bounds[:-1], bounds[1:]
    is_flow = np.array([bool(runs[n].task) for n in first.tolist()], dtype=np.bool_)
    begin, end = trace.start[first].copy(), trace.end[first].copy()
    length = end - begin
    for number in np.flatnonzero(is_flow).tolist():
        a, b = int(first[number]), int(last[number])
        flow = runs[a].flow
        assert flow is not None
        end[number] = trace.end[a:b].max()
        length[number] = critical_path(flow, trace.end[a:b] - trace.start[a:b])
        begin[number] = end[number] - length[number]
    return Wholes(
        submit=trace.workload.submit[first] if len(first) else np.zeros(0),
        begin=begin,
        end=end,
        length=length,
        is_flow=is_flow,
        first=first,
        last=last,
    )


def _bounds(runs: Sequence[LoggedJob]) -> Ints:
    """First run of each job, and the number of runs at the end."""
    out = [
        n
        for n, one in enumerate(runs)
        if not one.task or n == 0 or runs[n - 1].flow is not one.flow
    ]
    return np.array([*out, len(runs)], dtype=np.int64)


def critical_path(flow: WorkflowJob, seconds: Sequence[float] | Floats) -> float:
    """The longest path of a workflow whose tasks take so long, data not counted."""
    time = dict(zip((task.id for task in flow.tasks), map(float, seconds), strict=True))
    parents: dict[str, list[str]] = {task: [] for task in time}
    for edge in flow.edges:
        parents[edge.child].append(edge.parent)
    end: dict[str, float] = {}
    for task in TopologicalSorter(parents).static_order():
        end[task] = time[task] + max((end[parent] for parent in parents[task]), default=0.0)
    return max(end.values(), default=0.0)


def as_it_was(runs: Sequence[LoggedJob], procs: Sequence[int]) -> WorkflowJob:
    """A workflow with the real run times of its tasks, on as many processes as they had."""
    flow = runs[0].flow
    assert flow is not None
    real: Mapping[str, Task] = {
        task.id: replace(
            task,
            work=one.real_time(count),
            parallel_fraction=0.0,
            min_procs=count,
            max_procs=count,
        )
        for task, one, count in zip(flow.tasks, runs, procs, strict=True)
    }
    return replace(flow, tasks=tuple(real[task.id] for task in flow.tasks))
