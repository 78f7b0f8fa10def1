"""Jobs from JSON and back, as files have them: what other keys give may be left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

from msgspec import Meta, Struct

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.formats.structs import read_json, written
from coalloc.model.jobs import (
    MOST_CHUNKS,
    DivisibleJob,
    Edge,
    Job,
    MoldableJob,
    RigidJob,
    Started,
    Task,
    WorkflowJob,
)
from coalloc.model.ranges import Span
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.speedup import Speedup, TableSpeedup, repaired
from coalloc.model.values import replace

Times = Annotated[
    tuple[Span, ...], Meta(min_length=1, description="Times on 1, 2, ... processes, s.")
]
"""Of a moldable job, instead of its speed-up."""


def read_job(value: Any, where: str, time: float) -> tuple[Job, list[str]]:
    """Read a job, submitted by default at `time`; returns also the repairs of its speed-up."""
    job: Job = read_json(completed(value, where, time), Job, where, amounts)
    return checked(job, where)


def completed(value: Any, where: str, time: float) -> Any:
    """A job's JSON with what its other keys, or the snapshot's time, give.

    Refused are keys that exclude or need each other; anything else that is wrong is the reader's.
    """
    if not isinstance(value, dict):
        return value
    submitted = value.get("submitted", time)
    out = {"submitted": submitted, "earliest": submitted, **value}
    match value.get("kind"):
        case "rigid" if "base_time" not in value:
            limit = value.get("time_limit")
            if limit is None:
                raise InputError(
                    f"{where}.base_time", "is missing, and there is no time_limit to stand in"
                )
            out["base_time"] = limit
        case "moldable":
            _complete_moldable(out, where)
        case "workflow" if isinstance(value.get("tasks"), list | tuple):
            out["tasks"] = [_completed_task(task) for task in value["tasks"]]
    return out


def _complete_moldable(out: dict[str, Any], where: str) -> None:
    if ("times" in out) == ("speedup" in out):
        raise InputError(where, "needs either times or speedup")
    if "times" in out:
        times: tuple[float, ...] = read_json(out.pop("times"), Times, f"{where}.times")
        counts = list(range(1, len(times) + 1))
        out["speedup"] = {"model": "table", "procs": counts, "times": times}
    speedup = out["speedup"]
    listed = speedup.get("procs") if isinstance(speedup, dict) else None
    if isinstance(listed, list | tuple) and listed:
        out.setdefault("min_procs", listed[0])
        out.setdefault("max_procs", listed[-1])
    else:
        out.setdefault("min_procs", 1)


def _completed_task(task: Any) -> Any:
    if not isinstance(task, dict) or "max_procs" in task or "min_procs" not in task:
        return task
    return {**task, "max_procs": task["min_procs"]}


def amounts(job: Job) -> Iterator[Struct]:
    """The structs of a job whose amounts may be 0 (`coalloc.model.formats.structs.read_json`)."""
    yield job
    if isinstance(job, MoldableJob):
        yield job.speedup
    elif isinstance(job, WorkflowJob):
        yield from job.tasks


def checked(job: Job, where: str) -> tuple[Job, list[str]]:
    """A job whose fields agree with each other, and what was repaired. Raises `InputError`."""
    match job:
        case RigidJob():
            _check_shape(job, job.shape, job.procs, job.procs, where)
        case MoldableJob():
            _check_shape(job, job.shape, job.min_procs, job.max_procs, where)
            return _checked_moldable(job, where)
        case WorkflowJob():
            for i, task in enumerate(job.tasks):
                if task.max_procs < task.min_procs:
                    what = f"{task.max_procs} is below min_procs {task.min_procs}"
                    raise InputError(f"{where}.tasks[{i}].max_procs", what)
                own, place = task.shape, where if task.shape is None else f"{where}.tasks[{i}]"
                _check_shape(job, own or job.shape, task.min_procs, task.max_procs, place)
            check_graph(job.tasks, job.edges, where, job.started)
        case DivisibleJob():
            if job.work > MOST_CHUNKS * job.chunk_s:
                what = f"cuts the work into more than {MOST_CHUNKS} chunks"
                raise InputError(f"{where}.chunk_s", what)
            for key in WHOLE_JOBS:
                if getattr(job.shape, key) != getattr(ONE_SLOT, key):
                    raise InputError(f"{where}.shape.{key}", "is not for divisible jobs")
    return job, []


def _check_shape(job: Job, shape: Shape, fewest: int, most: int, where: str) -> None:
    """Refuse what no nodes can give."""
    low, high, each = shape.min_nodes, shape.max_nodes, shape.procs_per_node
    if high is not None and low > high:
        raise InputError(f"{where}.shape.min_nodes", f"{low} is above max_nodes {high}")
    if low > most:
        raise InputError(f"{where}.shape.min_nodes", f"{low} nodes are more than {most} processes")
    if high is not None and each is not None and fewest > high * each:
        what = f"{high} nodes of {each} processes hold fewer than {fewest}"
        raise InputError(f"{where}.shape.max_nodes", what)
    for key, amount in (
        ("memory_mb_per_node", shape.memory_mb_per_node),
        ("memory_mb_per_proc", job.memory_mb_per_proc),
    ):
        if shape.all_memory and amount:
            raise InputError(f"{where}.shape.all_memory", f"excludes {key}")


WHOLE_JOBS = ("min_nodes", "max_nodes", "per_node", "per_job", "exclusive", "all_memory")
"""Of shapes: not for jobs whose pieces are where there is room."""


def _checked_moldable(job: MoldableJob, where: str) -> tuple[MoldableJob, list[str]]:
    speedup, dropped = _repaired(job.speedup, f"{where}.speedup")
    low, high = job.min_procs, job.max_procs
    if low > high:
        raise InputError(f"{where}.min_procs", f"{low} is above max_procs {high}")
    if isinstance(speedup, TableSpeedup) and not any(low <= n <= high for n in speedup.procs):
        raise InputError(f"{where}.min_procs", f"no listed process count lies in {low}..{high}")
    if not dropped:
        return job, []
    listed = ", ".join(map(str, dropped[:5])) + (", ..." if len(dropped) > 5 else "")
    what = f"time rises or work falls at {listed} processes"
    warning = f"job {job.id}: {what}; the nearest smaller allotment is used"
    return replace(job, speedup=speedup), [warning]


def read_speedup(value: Any, where: str) -> Speedup:
    """Read a speed-up model. Raises `InputError`."""
    speedup: Speedup = read_json(value, Speedup, where, lambda read: (read,))
    return _repaired(speedup, where)[0]


def _repaired(speedup: Speedup, where: str) -> tuple[Speedup, Sequence[int]]:
    """The model, and the counts of a table that are answered by smaller ones."""
    if not isinstance(speedup, TableSpeedup):
        return speedup, ()
    counts, times = speedup.procs, speedup.times
    if len(counts) != len(times):
        raise InputError(where, f"{len(counts)} procs but {len(times)} times")
    if any(a >= b for a, b in pairwise(counts)):
        raise InputError(f"{where}.procs", "must rise")
    return repaired(counts, times)


def write_job(job: Job) -> dict[str, Any]:
    """The job as a JSON object; what equals its default is left out."""
    out: dict[str, Any] = {"id": job.id, "kind": "", "submitted": job.submitted}
    if job.earliest != job.submitted:
        out["earliest"] = job.earliest
    fields = written(job, "submitted")
    fields.pop("earliest", None)
    out |= fields
    match job:
        case RigidJob():
            one_cluster = out.pop("one_cluster", None)
            out["proc_gbps"] = job.proc_gbps
            if one_cluster:
                out["one_cluster"] = one_cluster
        case MoldableJob():
            out["speedup"] = write_speedup(job.speedup)
        case WorkflowJob():
            for task in out["tasks"]:
                if task["shape"] is None:
                    del task["shape"]  # which readers before shapes do not know
            out["edges"] = out.get("edges", [])
            if job.started:
                del out["started"]
                out["started"] = [written(one) for one in job.started]
    return out


def write_speedup(speedup: Speedup) -> dict[str, Any]:
    """The speed-up model as a JSON object."""
    return written(speedup)


def check_graph(
    tasks: Sequence[Task], edges: Sequence[Edge], where: str, started: Sequence[Started] = ()
) -> None:
    """Refuse duplicate ids, unknown ends of an edge, and cycles, naming the task."""
    if not started and _are_in_order(tasks, edges):
        return
    names: set[str] = set()
    for i, task in enumerate(tasks):
        if task.id in names:
            raise InputError(f"{where}.tasks[{i}].id", f"{shown(task.id)} is used twice")
        names.add(task.id)
    begun: set[str] = set()
    for i, one in enumerate(started):
        if one.task in names:
            raise InputError(f"{where}.started[{i}].task", f"{shown(one.task)} is among the tasks")
        if one.task in begun:
            raise InputError(f"{where}.started[{i}].task", f"{shown(one.task)} is named twice")
        begun.add(one.task)
    waits = dict.fromkeys(names, 0)
    children: dict[str, list[str]] = {name: [] for name in names}
    for i, edge in enumerate(edges):
        if edge.child in begun:
            raise InputError(f"{where}.edges[{i}].to", f"task {shown(edge.child)} has started")
        for end, name in (("from", edge.parent), ("to", edge.child)):
            if name not in names and not (end == "from" and name in begun):
                raise InputError(f"{where}.edges[{i}].{end}", f"there is no task {shown(name)}")
        if edge.parent in begun:
            continue
        waits[edge.child] += 1
        children[edge.parent].append(edge.child)
    ready = [task.id for task in tasks if not waits[task.id]]
    done = 0
    while ready:
        done += 1
        for child in children[ready.pop()]:
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    if done < len(tasks):
        stuck = next(task.id for task in tasks if waits[task.id])
        raise InputError(f"{where}.edges", f"task {shown(stuck)} lies on or behind a cycle")


def _are_in_order(tasks: Collection[Task], edges: Iterable[Edge]) -> bool:
    """Every task comes once, and after its parents: so there is no cycle, and no end is missing.

    True of most files; where it is not, `check_graph` says what there is.
    """
    place = {task.id: n for n, task in enumerate(tasks)}
    if len(place) < len(tasks):
        return False
    missing = len(place)
    return all(place.get(e.parent, missing) < place.get(e.child, -1) for e in edges)
