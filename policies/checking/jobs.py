"""The checker's families on one placement at a time: who, where and how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import numpy as np

from coalloc.model.cost import base_time, edge_delay, piece_time, run_time, task_time
from coalloc.model.jobs import DivisibleJob, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.speedup import TableSpeedup
from coalloc.policies.checking.sheet import RELATIVE, Flags, Floats, Sheet, Unit, shown


def processes(sheet: Sheet) -> Iterator[str]:
    """Rigid: n = procs. Moldable: n is offered. Task: min_procs <= n <= max_procs. Piece: any."""
    for unit, procs in zip(sheet.units, sheet.procs.tolist(), strict=True):
        fault = _wrong_processes(unit, procs)
        if fault:
            yield f"{unit.name}: {fault}"


def _wrong_processes(unit: Unit, procs: int) -> str | None:
    job = unit.job
    if unit.task is not None:
        low, high = unit.task.min_procs, unit.task.max_procs
    elif isinstance(job, RigidJob):
        low = high = job.procs
    elif isinstance(job, MoldableJob):
        low, high = job.min_procs, job.max_procs
    elif isinstance(job, DivisibleJob):
        low, high = 1, job.chunks
    else:
        return None
    if not low <= procs <= high:
        return f"has {procs} processes, needs {low if low == high else f'{low}..{high}'}"
    if (
        isinstance(job, MoldableJob)
        and isinstance(job.speedup, TableSpeedup)
        and procs not in job.speedup.procs
    ):
        return f"has {procs} processes, a count its table does not list"
    return None


def pieces(sheet: Sheet) -> Iterator[str]:
    """Of each placed divisible job: sum of chunks = ceil(work / chunk_s)."""
    sums: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for unit, chunks in zip(sheet.units, sheet.chunks, strict=True):
        job = unit.job
        if isinstance(job, DivisibleJob):
            sums[job.id] = sums.get(job.id, 0) + chunks
            wanted[job.id] = job.chunks
    for name, found in sums.items():
        if found != wanted[name]:
            yield f"job {name}: its pieces have {found} chunks, it has {wanted[name]}"


def layouts(sheet: Sheet) -> Iterator[str]:
    """Shapes: min_nodes <= nodes <= max_nodes, on each n <= procs_per_node; per_job is there.

    Each cluster used has what `per_job` names, or the site has it.
    """
    clusters = {cluster.name: cluster.resources for cluster in sheet.snapshot.clusters}
    used = np.bincount(sheet.row, minlength=1).tolist()
    for row, shape in sheet.shapes.items():
        name, most = sheet.units[row].name, shape.procs_per_node or inf
        low, high = shape.min_nodes, shape.max_nodes or inf
        if not low <= used[row] <= high:
            needs = f"{low}..{high}" if high < inf else f"at least {low}"
            yield f"{name}: is on {used[row]} nodes, needs {low if low == high else needs}"
        counts = sheet.count[sheet.first[row] : sheet.first[row] + used[row]]
        if (largest := int(counts.max())) > most:
            yield f"{name}: has {largest} processes on a node, at most {most} may be there"
        for wanted in shape.per_job.keys() - sheet.snapshot.resources.keys():
            lacking = [k for k in sheet.inside[row] if wanted not in clusters[k]]
            if lacking:
                yield f"{name}: {wanted} is nowhere on {', '.join(lacking)}, nor at the site"


def slowdowns(sheet: Sheet) -> Iterator[str]:
    """1 <= sc <= saturation_threshold (option, default 1)."""
    threshold = number_option(sheet.options, "saturation_threshold", 1.0)
    for row in _where((sheet.sc < 1.0) | (sheet.sc > threshold * (1.0 + RELATIVE))):
        yield f"{sheet.units[row].name}: sc {shown(sheet.sc[row])} is outside 1..{threshold:g}"


def usable_nodes(sheet: Sheet) -> Iterator[str]:
    """Every node is up and its cluster is not stale."""
    for entry in _where(~sheet.nodes.usable[sheet.node]):
        yield f"{_at(sheet, entry)} is down, draining or of a stale cluster"


def features(sheet: Sheet) -> Iterator[str]:
    """Every node has all the features of the job."""
    wanted: dict[tuple[str, ...], list[int]] = {}
    for row, unit in enumerate(sheet.units):
        if unit.job.features:
            wanted.setdefault(unit.job.features, []).append(row)
    for names, rows in wanted.items():
        lacking = ~sheet.nodes.with_features(names)
        for entry in _where(np.isin(sheet.row, rows) & lacking[sheet.node]):
            yield f"{_at(sheet, entry)} lacks {', '.join(names)}"


def clusters(sheet: Sheet) -> Iterator[str]:
    """Every cluster is one that the job allows."""
    for unit, inside in zip(sheet.units, sheet.inside, strict=True):
        allowed = unit.job.clusters
        if allowed is None or inside.keys() <= set(allowed):
            continue
        wrong = [name for name in inside if name not in allowed]
        yield f"{unit.name}: may not run on cluster {', '.join(wrong)}"


def coallocation(sheet: Sheet) -> Iterator[str]:
    """Several clusters: not with coallocation=forbidden, moldable only where traffic is known."""
    forbidden = sheet.options.get("coallocation") == "forbidden"
    unknown_is_fine = sheet.options.get("coallocate_moldable") is True
    for unit, inside in zip(sheet.units, sheet.inside, strict=True):
        if len(inside) == 1:
            continue
        job = unit.job
        if forbidden:
            yield f"{unit.name}: is on {len(inside)} clusters, and co-allocation is forbidden"
        elif isinstance(job, RigidJob | MoldableJob) and job.one_cluster:
            yield f"{unit.name}: is on {len(inside)} clusters, and asks for one"
        elif isinstance(job, MoldableJob) and job.proc_gbps is None and not unknown_is_fine:
            yield f"{unit.name}: is on {len(inside)} clusters without proc_gbps"


def held(sheet: Sheet) -> Iterator[str]:
    """A held job has no start."""
    for unit in sheet.units:
        if unit.job.held:
            yield f"{unit.name}: is held, yet placed"


def starts(sheet: Sheet) -> Iterator[str]:
    """Start >= time, >= earliest, and >= free_at of every node."""
    time = sheet.snapshot.time
    earliest = np.array([unit.job.earliest for unit in sheet.units], dtype=np.float64)
    latest = sheet.start + sheet.tolerance(sheet.start)
    past = latest < time
    for row in _where(past):
        yield f"{_starts(sheet, row)}, before the snapshot's time {shown(time)} s"
    for row in _where((latest < earliest) & ~past):
        yield f"{_starts(sheet, row)}, before its earliest {shown(earliest[row])} s"
    free = sheet.nodes.free_at[sheet.node]
    for entry in _where((latest[sheet.row] < free) & ~past[sheet.row]):
        name = sheet.nodes.names[sheet.node[entry]]
        when = f"before node {name} is free at {shown(free[entry])} s"
        yield f"{_starts(sheet, sheet.row[entry])}, {when}"


def precedence(sheet: Sheet) -> Iterator[str]:
    """Start >= end of every job in `after`; one that is absent has ended."""
    snapshot = sheet.snapshot
    waiting = [row for row, unit in enumerate(sheet.units) if unit.job.after]
    if not waiting:
        return
    running = {r.id: r.busy_until(snapshot.time, snapshot.overrun_s) for r in snapshot.running}
    queued = {
        job.id: len(job.tasks) if isinstance(job, WorkflowJob) else 1 for job in snapshot.queue
    }
    begun = {
        job.id: [one.end for one in job.started]
        for job in snapshot.queue
        if isinstance(job, WorkflowJob)
    }
    rows = sheet.rows_of_jobs()
    latest = (sheet.start + sheet.tolerance(sheet.start)).tolist()
    for row in waiting:
        for name in sheet.units[row].job.after:
            placed = rows.get(name, [])
            if len(placed) < queued.get(name, 0):
                yield f"{_starts(sheet, row)}, yet job {name} before it has no end"
                continue
            ends = [float(sheet.end[i]) for i in placed]
            ends += [running[name]] if name in running else []
            ends += begun.get(name, [])
            if ends and latest[row] < max(ends):
                yield f"{_starts(sheet, row)}, before job {name} ends at {shown(max(ends))} s"


def edges(sheet: Sheet) -> Iterator[str]:
    """Start of the child >= end of the parent, placed or started before, + delay of the edge."""
    tasks: dict[str, dict[str, int]] = {}
    flows: dict[str, WorkflowJob] = {}
    for row, unit in enumerate(sheet.units):
        if unit.task is not None and isinstance(unit.job, WorkflowJob):
            flows[unit.job.id] = unit.job
            tasks.setdefault(unit.job.id, {})[unit.task.id] = row
    by_name = {cluster.name: cluster for cluster in sheet.snapshot.clusters}
    latest = (sheet.start + sheet.tolerance(sheet.start)).tolist()
    for job in flows.values():
        placed = tasks[job.id]
        started = {one.task: one for one in job.started}
        for edge in job.edges:
            child, parent = placed.get(edge.child), placed.get(edge.parent)
            if child is None:
                continue
            if edge.parent in started:
                one = started[edge.parent]
                end, used = one.end, one.clusters
            elif parent is None:
                yield f"{_starts(sheet, child)}, yet task {edge.parent} before it has no end"
                continue
            else:
                end, used = float(sheet.end[parent]), tuple(sheet.inside[parent])
            ready = end + edge_delay(edge, used, sheet.inside[child], by_name)
            if latest[child] < ready:
                yield f"{_starts(sheet, child)}, task {edge.parent} allows {shown(ready)} s"


def run_times(sheet: Sheet) -> Iterator[str]:
    """End = start + run time by the cost model on the weakest node, power in steps.

    No run is longer than its time limit, nor planned so.
    """
    if not sheet.units:
        return
    power = stepped(sheet.nodes.power, number_option(sheet.options, "power_step", 0.0))
    weakest = np.minimum.reduceat(power[sheet.node], sheet.first).tolist()
    by_name = {cluster.name: cluster for cluster in sheet.snapshot.clusters}
    allowed = sheet.tolerance(sheet.end).tolist()
    start, end, sc = sheet.start.tolist(), sheet.end.tolist(), sheet.sc.tolist()
    procs = sheet.procs.tolist()
    for row, unit in enumerate(sheet.units):
        job = unit.job
        if _wrong_processes(unit, procs[row]):
            continue
        if unit.task is not None:
            seconds = task_time(unit.task, sheet.inside[row], weakest[row], by_name)
        elif isinstance(job, RigidJob | MoldableJob):
            seconds = run_time(base_time(job, procs[row]), job.sigma, weakest[row], sc[row])
        elif isinstance(job, DivisibleJob):
            if procs[row] > sheet.chunks[row]:
                yield f"{unit.name}: has {procs[row]} processes for {sheet.chunks[row]} chunks"
            seconds = piece_time(job.chunk_s, sheet.chunks[row], procs[row], weakest[row])
        limit = inf if job.time_limit is None else job.time_limit
        planned = min(seconds, limit) if seconds < inf else inf
        if not abs(start[row] + planned - end[row]) <= allowed[row]:
            found, wanted = shown(end[row] - start[row]), shown(planned)
            says = "its time limit ends it after" if planned < seconds else "the cost model says"
            yield f"{unit.name}: runs for {found} s, {says} {wanted} s"


def stepped(power: Floats, step: float) -> Floats:
    """Power rounded down to a multiple of the step; below one, of its largest fitting half."""
    if step <= 0.0:
        return power
    # A power or a step near the smallest double overflows on the way, and stays as it is.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        halvings = np.ceil(np.log2(step / (power * (1.0 + RELATIVE))))
        fitting = step / np.exp2(np.maximum(halvings, 0.0))
        return np.fmin(power, np.floor(power / fitting + RELATIVE) * fitting)


def options_valid(sheet: Sheet) -> Iterator[str]:
    """The options that change what is allowed are well formed."""
    for key, low in (("saturation_threshold", 1.0), ("power_step", 0.0)):
        value = sheet.options.get(key)
        if value is not None and not _is_number(value, low):
            yield f"options.{key}: {value!r} is not a number of at least {low:g}"


def number_option(options: Mapping[str, Any], key: str, default: float) -> float:
    """A numeric option, its default where absent or malformed (`options_valid` reports that)."""
    value = options.get(key)
    return float(value) if value is not None and _is_number(value, default) else default


def _is_number(value: Any, low: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= low


def _where(found: Flags) -> list[int]:
    return [int(i) for i in np.flatnonzero(found)]


def _at(sheet: Sheet, entry: int) -> str:
    return f"{sheet.units[sheet.row[entry]].name}: node {sheet.nodes.names[sheet.node[entry]]}"


def _starts(sheet: Sheet, row: int) -> str:
    return f"{sheet.units[row].name}: starts at {shown(float(sheet.start[row]))} s"
