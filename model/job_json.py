"""Jobs from JSON and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from coalloc.model import ranges, tables
from coalloc.model.decoded import array, shown
from coalloc.model.errors import InputError
from coalloc.model.fields import Table, chosen, read_fields, widened
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
from coalloc.model.speedup import (
    AmdahlSpeedup,
    DowneySpeedup,
    Speedup,
    TableSpeedup,
    repaired,
)
from coalloc.model.workflow_graph import Graph, read_graph

KINDS = {
    "rigid": tables.RIGID,
    "moldable": tables.MOLDABLE,
    "workflow": tables.WORKFLOW,
    "divisible": tables.DIVISIBLE,
}


class _Tables(NamedTuple):
    """Tables for reading jobs."""

    kinds: Mapping[str, Table]
    task: Table
    edge: Table
    started: Table
    speedups: Mapping[str, Table]


_ADMITTED = _Tables(KINDS, tables.TASK, tables.EDGE, tables.STARTED, tables.SPEEDUPS)
_STORED = _Tables(
    {kind: widened(table) for kind, table in KINDS.items()},
    widened(tables.TASK),
    widened(tables.EDGE),
    widened(tables.STARTED),
    {model: widened(table) for model, table in tables.SPEEDUPS.items()},
)
"""An earlier release may have admitted more."""

_LISTS = ("clusters", "features", "after")


def read_job(value: Any, where: str, time: float, *, stored: bool = False) -> tuple[Job, list[str]]:
    """Read one job; `time` is the default of ``submitted``.

    Parameters
    ----------
    stored : bool
        It was admitted before: amounts outside today's ranges are read as well.

    Returns
    -------
    job : Job
    warnings : list of str
        Repairs of its speed-up, each naming the job.

    Raises
    ------
    InputError
    """
    by = _STORED if stored else _ADMITTED
    kind = chosen(value, "kind", KINDS, where)
    fields = read_fields(value, by.kinds[kind], where)
    del fields["kind"]
    fields.setdefault("submitted", time)
    fields.setdefault("earliest", fields["submitted"])
    match kind:
        case "rigid":
            return _rigid(fields, where), []
        case "moldable":
            return _moldable(fields, where, by)
        case "workflow":
            return _workflow(fields, where, by), []
        case _:
            return _divisible(fields, where), []


def _divisible(fields: dict[str, Any], where: str) -> DivisibleJob:
    if fields["work"] > MOST_CHUNKS * fields["chunk_s"]:
        raise InputError(f"{where}.chunk_s", f"cuts the work into more than {MOST_CHUNKS} chunks")
    return DivisibleJob(**fields)


def restore_job(value: dict[str, Any]) -> Job:
    """The job that `write_job` wrote; a rigid one without checking again what was checked."""
    if value["kind"] != "rigid":
        return read_job(value, "job", value["submitted"], stored=True)[0]
    fields = dict(value)
    del fields["kind"]
    for key in _LISTS:
        if fields.get(key) is not None:
            fields[key] = tuple(fields[key])
    fields.setdefault("earliest", fields["submitted"])
    return RigidJob(**fields)


def outside(job: Job) -> str:
    """The first amount of a job that is outside its range, in words; empty if all are inside."""
    if isinstance(job, RigidJob) and _is_inside(job):
        return ""
    try:
        read_job(write_job(job), "job", job.submitted)
    except InputError as error:
        return str(error).removeprefix("job.")
    return ""


def _is_inside(job: RigidJob) -> bool:
    """Most jobs of a long queue are found to be inside without being written and read."""
    return (
        ranges.SPAN.holds(job.base_time)
        and (job.time_limit is None or ranges.SPAN.holds(job.time_limit))
        and ranges.INSTANT.holds(job.submitted)
        and ranges.INSTANT.holds(job.earliest)
        and ranges.WEIGHT.holds(job.weight)
        and ranges.GBPS.holds(job.proc_gbps)
        and ranges.MEMORY_MB.holds(job.memory_mb_per_proc)
    )


def _rigid(fields: dict[str, Any], where: str) -> RigidJob:
    if "base_time" not in fields:
        limit = fields.get("time_limit")
        if limit is None:
            raise InputError(
                f"{where}.base_time", "is missing, and there is no time_limit to stand in"
            )
        fields["base_time"] = limit
    return RigidJob(**fields)


def _moldable(fields: dict[str, Any], where: str, by: _Tables) -> tuple[MoldableJob, list[str]]:
    times, model = fields.pop("times", None), fields.pop("speedup", None)
    if (times is None) == (model is None):
        raise InputError(where, "needs either times or speedup")
    dropped: list[int] = []
    high: int | None
    if times is not None:
        if not times:
            raise InputError(f"{where}.times", "is empty")
        speedup: Speedup
        speedup, dropped = repaired(tuple(range(1, len(times) + 1)), times)
        low, high = 1, len(times)
    else:
        speedup, low, high, dropped = read_speedup(model, f"{where}.speedup", by.speedups)
    lowest = fields.setdefault("min_procs", low)
    highest = fields.setdefault("max_procs", high)
    if highest is None:
        raise InputError(f"{where}.max_procs", "is missing")
    if lowest > highest:
        raise InputError(f"{where}.min_procs", f"{lowest} is above max_procs {highest}")
    if isinstance(speedup, TableSpeedup) and not any(lowest <= n <= highest for n in speedup.procs):
        raise InputError(
            f"{where}.min_procs", f"no listed process count lies in {lowest}..{highest}"
        )
    warnings = []
    if dropped:
        listed = ", ".join(map(str, dropped[:5])) + (", ..." if len(dropped) > 5 else "")
        what = f"time rises or work falls at {listed} processes"
        warnings = [f"job {fields['id']}: {what}; the nearest smaller allotment is used"]
    return MoldableJob(speedup=speedup, **fields), warnings


def read_speedup(
    value: Any, where: str, by: Mapping[str, Table] = tables.SPEEDUPS
) -> tuple[Speedup, int, int | None, list[int]]:
    """Read a speed-up model; returns it with its default range and the repaired counts."""
    model = chosen(value, "model", tables.SPEEDUPS, where)
    fields = read_fields(value, by[model], where)
    match model:
        case "amdahl":
            amdahl = AmdahlSpeedup(
                time_1=fields["time"], parallel_fraction=fields["parallel_fraction"]
            )
            return amdahl, 1, None, []
        case "downey":
            downey = DowneySpeedup(
                time_1=fields["time"], parallelism=fields["A"], variance=fields["sigma"]
            )
            return downey, 1, None, []
        case _:
            procs, times = fields["procs"], fields["times"]
            if not procs or len(procs) != len(times):
                raise InputError(where, f"{len(procs)} procs but {len(times)} times")
            if any(a >= b for a, b in pairwise(procs)):
                raise InputError(f"{where}.procs", "must rise")
            table, dropped = repaired(procs, times)
            return table, procs[0], procs[-1], dropped


def _workflow(fields: dict[str, Any], where: str, by: _Tables) -> WorkflowJob:
    given = fields.pop("tasks"), fields.pop("edges", ())
    read = read_graph(*given) if by is _ADMITTED else None
    tasks, edges = graph_by_key(*given, where, by) if read is None else read
    started = []
    for i, item in enumerate(array(fields.pop("started", ()), f"{where}.started")):
        begun = Started(**read_fields(item, by.started, f"{where}.started[{i}]"))
        if not begun.clusters:
            raise InputError(f"{where}.started[{i}].clusters", "is empty")
        started.append(begun)
    if started or not are_in_order(tasks, edges):
        check_graph(tasks, edges, where, started)
    return WorkflowJob(tasks=tasks, edges=edges, started=tuple(started), **fields)


def graph_by_key(tasks: Any, edges: Any, where: str, by: _Tables = _ADMITTED) -> Graph:
    """Tasks and edges from JSON, key by key.

    Raises
    ------
    InputError
    """
    vertices = []
    for i, item in enumerate(array(tasks, f"{where}.tasks")):
        place = f"{where}.tasks[{i}]"
        task = read_fields(item, by.task, place)
        lowest = task.setdefault("min_procs", 1)
        if task.setdefault("max_procs", lowest) < lowest:
            raise InputError(
                f"{place}.max_procs", f"{task['max_procs']} is below min_procs {lowest}"
            )
        vertices.append(Task(**task))
    if not vertices:
        raise InputError(f"{where}.tasks", "is empty")
    arcs = []
    for i, item in enumerate(array(edges, f"{where}.edges")):
        edge = read_fields(item, by.edge, f"{where}.edges[{i}]")
        arcs.append(Edge(parent=edge["from"], child=edge["to"], gb=edge.get("gb", 0.0)))
    return tuple(vertices), tuple(arcs)


def are_in_order(tasks: Collection[Task], edges: Iterable[Edge]) -> bool:
    """Every task comes once, and after its parents: so there is no cycle, and no end is missing.

    True of most files; where it is not, `check_graph` says what there is.
    """
    place = {task.id: n for n, task in enumerate(tasks)}
    if len(place) < len(tasks):
        return False
    missing = len(place)
    return all(place.get(e.parent, missing) < place.get(e.child, -1) for e in edges)


def check_graph(
    tasks: Sequence[Task], edges: Sequence[Edge], where: str, started: Sequence[Started] = ()
) -> None:
    """Refuse duplicate ids, unknown ends of an edge, and cycles, naming the task."""
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


_DEFAULTS = {
    "weight": 1.0,
    "time_limit": None,
    "sigma": 1.0,
    "clusters": None,
    "features": (),
    "memory_mb_per_proc": 0,
    "after": (),
    "held": False,
    "passed_over": 0,
    "priority": 0.0,
}


def write_job(job: Job) -> dict[str, Any]:
    """The job as a JSON object; what equals its default is left out."""
    out: dict[str, Any] = {"id": job.id, "kind": "", "submitted": job.submitted}
    if job.earliest != job.submitted:
        out["earliest"] = job.earliest
    for key, default in _DEFAULTS.items():
        value = getattr(job, key)
        if value != default:
            out[key] = list(value) if isinstance(value, tuple) else value
    match job:
        case RigidJob():
            out |= {
                "kind": "rigid",
                "procs": job.procs,
                "base_time": job.base_time,
                "proc_gbps": job.proc_gbps,
            }
            if job.one_cluster:
                out["one_cluster"] = True
        case MoldableJob():
            out |= {"kind": "moldable", "speedup": write_speedup(job.speedup)}
            out |= {"min_procs": job.min_procs, "max_procs": job.max_procs}
            if job.proc_gbps is not None:
                out["proc_gbps"] = job.proc_gbps
            if job.one_cluster:
                out["one_cluster"] = True
        case WorkflowJob():
            out |= {"kind": "workflow", "tasks": [_write_task(task) for task in job.tasks]}
            out["edges"] = [{"from": e.parent, "to": e.child, "gb": e.gb} for e in job.edges]
            if job.started:
                out["started"] = [
                    {"task": s.task, "clusters": list(s.clusters), "end": s.end}
                    for s in job.started
                ]
        case DivisibleJob():
            out |= {"kind": "divisible", "work": job.work, "chunk_s": job.chunk_s}
    return out


def write_speedup(speedup: Speedup) -> dict[str, Any]:
    """The speed-up model as a JSON object."""
    match speedup:
        case AmdahlSpeedup():
            return {
                "model": "amdahl",
                "time": speedup.time_1,
                "parallel_fraction": speedup.parallel_fraction,
            }
        case DowneySpeedup():
            shape = {"A": speedup.parallelism, "sigma": speedup.variance}
            return {"model": "downey", "time": speedup.time_1, **shape}
        case TableSpeedup():
            return {"model": "table", "procs": list(speedup.procs), "times": list(speedup.times)}


def _write_task(task: Task) -> Mapping[str, Any]:
    return {
        "id": task.id,
        "work": task.work,
        "parallel_fraction": task.parallel_fraction,
        "min_procs": task.min_procs,
        "max_procs": task.max_procs,
        "comm_gb": task.comm_gb,
    }
