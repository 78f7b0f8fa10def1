"""The arrays of the serial builder from what a planner has to place, and schedules from them.

The annealing of `workflow` and the mapping by earliest finish read the same arrays. Units, shapes
and what each entry is: `kernel.search.serial_state`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from coalloc.model.jobs import Started, WorkflowJob
from coalloc.model.split import TOLERANCE, low_side, split, split_task
from coalloc.policies.array_types import Ints, firsts
from coalloc.policies.kernel.instance.arrays import held
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.graph import Graph, compressed
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.record import copy_of, room_for
from coalloc.policies.kernel.search.serial_state import Items, Out, SerialDesk, Site
from coalloc.policies.kernel.state import Base, Outcome, Problem
from coalloc.policies.workflow.forms import Form


@dataclass(frozen=True, slots=True)
class StartedTasks:
    """Tasks that have started, numbered behind the items."""

    tasks: list[Started]
    parents: list[list[tuple[int, float]]]
    """Of each item, all that it waits for, with the Gbit of data; those below N are items."""


def begun_of(planner: Planner) -> StartedTasks:
    """The tasks that have started of the workflows that are planned."""
    items = planner.items
    parents = [list(item.parents) for item in items]
    place = {(i.number, i.task.id): n for n, i in enumerate(items) if i.task is not None}
    begun: list[Started] = []
    for number in sorted({item.number for item in items}):
        job = planner.snapshot.queue[number]
        if not isinstance(job, WorkflowJob) or not job.started:
            continue
        seen = {task.task: len(items) + len(begun) + x for x, task in enumerate(job.started)}
        begun += job.started
        for edge in job.edges:
            if edge.parent in seen:
                parents[place[number, edge.child]].append((seen[edge.parent], 8.0 * edge.gb))
    return StartedTasks(begun, parents)


def class_order(planner: Planner) -> Ints:
    """The planner's classes, cluster by cluster, each cluster's by falling power."""
    cluster = planner.compiled.problem.class_cluster
    return np.argsort(cluster, kind="stable").astype(np.int64)


def problem_of(planner: Planner, begun: StartedTasks) -> Problem:
    """The planner's problem as the serial builder takes it: see `kernel.search.serial_state`."""
    problem, order = planner.compiled.problem, class_order(planner)
    closed = [problem.closed[problem.closed_first[c] : problem.closed_first[c + 1]] for c in order]
    parent_first, parent, parent_gbit = compressed(begun.parents)
    return problem._replace(
        parent_first=parent_first,
        parent=parent,
        parent_gbit=parent_gbit,
        need=np.ascontiguousarray(problem.need[:, order]),
        group_class=np.argsort(order)[problem.group_class].astype(np.int64),
        class_cluster=problem.class_cluster[order],
        class_power=problem.class_power[order],
        class_grain=problem.class_grain[order],
        closed_first=firsts([c.size for c in closed]),
        closed=np.concatenate([*closed, np.zeros(0, dtype=np.int64)]).astype(np.int64),
    )


def site_of(planner: Planner, problem: Problem, base: Base) -> Site:
    """Free units over time before anything is listed.

    `problem`: of `problem_of`.
    `base`: in the planner's numbers of classes.
    """
    clusters, order = problem.link_gbps.size, class_order(planner)
    counts = np.bincount(problem.class_cluster, minlength=clusters)
    first = firsts(counts)
    bounds = np.unique(np.concatenate((base.time, problem.reserved.ravel())))
    bounds = bounds[bounds >= base.time[0]]
    at = np.searchsorted(base.time, bounds, side="right") - 1
    size = bounds.size + 2 * len(planner.items) + 4
    times = np.zeros((clusters, size))
    frees = np.zeros((clusters, size, max(int(counts.max(initial=0)), 1)), dtype=np.int32)
    loads = np.zeros((clusters, size), dtype=np.int64)
    rows = np.zeros(clusters, dtype=np.int64)
    for k in range(clusters):
        mine = order[first[k] : first[k + 1]]
        table = np.concatenate((base.free[at][:, mine], base.load[at, k : k + 1]), axis=1)
        closed_first = problem.closed_first[first[k : k + 2]]
        closed = np.unique(problem.closed[closed_first[0] : closed_first[1]])
        closes = np.isin(bounds, problem.reserved[closed])
        kept = np.concatenate(([True], (table[1:] != table[:-1]).any(axis=1) | closes[1:]))
        rows[k] = kept.sum()
        times[k, : rows[k]] = bounds[kept]
        frees[k, : rows[k], : mine.size] = table[kept, :-1]
        loads[k, : rows[k]] = table[kept, -1]
    most = planner.compiled.base.free[:, order].max(axis=0, initial=0).astype(np.int64)
    room = held(problem, most)
    return Site(first=first, rows=rows, time=times, free=frees, load=loads, room=room)


def items_of(
    planner: Planner, site: Site, graph: Graph, forms: Sequence[Form], overhead: float
) -> Items:
    """Read the items to be placed.

    Communication between clusters may take the share `overhead` of a task's time, where one cluster
    holds it.
    """
    problem, items = planner.compiled.problem, planner.items
    count, clusters = len(items), problem.link_gbps.size
    tables = [form.table for form in forms]
    table = [mode for modes in tables for mode in modes]
    room = site.room[problem.item_group]
    widest = room.max(axis=1, initial=0)
    wide = room.sum(axis=1)
    rule = planner.options.get("coallocation", "sooner")
    splits = np.zeros(count, dtype=np.int64)
    for n, item in enumerate(items):
        if item.task is not None:
            may = rule == "sooner" and clusters > 1 and forms[n].high > 1
            splits[n] = int(may or len(item.parts) > 0)
        elif item.splits:
            splits[n] = int(rule == "sooner" or forms[n].low > widest[n])
    low = np.array([form.low for form in forms], dtype=np.int64)
    high = np.array([form.high for form in forms], dtype=np.int64)
    high = np.minimum(high, np.where(splits > 0, wide, widest))
    power = float(problem.class_power.max(initial=1e-9))
    intra = float(problem.inverse_intra.min()) if clusters else 0.0
    shortest = np.array(
        [form.shortest(power, intra, int(n)) for form, n in zip(forms, high, strict=True)]
    )
    shortest = np.where(np.isfinite(shortest), np.minimum(shortest, problem.item_limit), 0.0)
    shortest *= 1.0 - 1e-12
    return Items(
        scaled=np.array([form.scaled for form in forms], dtype=np.float64).reshape(-1, 2),
        fixed=np.array([form.fixed for form in forms], dtype=np.float64).reshape(-1, 2),
        comm=np.array([form.comm for form in forms], dtype=np.float64),
        low=low,
        high=np.maximum(high, low),
        limit=problem.item_limit,
        table_first=firsts([len(modes) for modes in tables]),
        table_procs=np.array([mode[0] for mode in table], dtype=np.int64),
        table_scaled=np.array([mode[1] for mode in table], dtype=np.float64),
        table_fixed=np.array([mode[2] for mode in table], dtype=np.float64),
        splits=splits,
        weight=planner.weights,
        job=planner.numbers,
        tail=graph.bottom(shortest) - shortest,
        overhead=np.where(low > widest, inf, overhead),
        books=np.array([planner.options.get("workflow_links") != "idle"], dtype=np.int64),
    )


def spread(item: Item, procs: int, room: list[int], links: list[float]) -> list[int] | None:
    """Processes on each cluster of an item that none holds alone; None if there is no way."""
    if item.task is not None:
        return split_task(procs, room, links, item.task.comm_gb)
    low = [low_side(procs, item.proc_gbps, link, link * TOLERANCE) for link in links]
    return split(procs, room, low)


def desk_of(problem: Problem, site: Site, begun: StartedTasks, jobs: int) -> SerialDesk:
    """Working memory for a problem's items; nothing is listed on it."""
    clusters, size = problem.link_gbps.size, problem.item_group.size
    return room_for(
        SerialDesk,
        rows=np.array(site.rows),
        time=np.array(site.time),
        free=np.array(site.free),
        load=np.array(site.load),
        N=size,
        vertices=size + len(begun.tasks),
        jobs=jobs,
        C=problem.class_power.size,
        K=clusters,
    )


def out_of(planner: Planner, most: Ints, begun: StartedTasks) -> Out:
    """Room for the places of items of at most so many processes; of what has begun, its ends."""
    problem, size = planner.compiled.problem, most.size
    count = size + len(begun.tasks)
    number = {cluster.name: k for k, cluster in enumerate(planner.snapshot.clusters)}
    parts = np.zeros((count, problem.link_gbps.size), dtype=np.int64)
    for x, task in enumerate(begun.tasks):
        parts[size + x, [number[name] for name in task.clusters if name in number]] = 1
    pool = int(np.minimum(most, problem.class_power.size).sum()) + 1
    start = np.full(size, inf)
    end = np.concatenate((start, [task.end for task in begun.tasks]))
    return room_for(Out, N=size, pool=pool, start=start, end=end, parts=parts)


def outcome_of(planner: Planner, out: Out, base: Outcome, items: Ints) -> Outcome:
    """Places of some items as a decoder would say them, beside those that another has placed."""
    order, top = class_order(planner), used(base)
    made = copy_of(base)
    classes, procs = [base.use_class[:top]], [base.use_procs[:top]]
    for n in items.tolist():
        uses = slice(out.use_first[n], out.use_first[n] + out.use_count[n])
        made.start[n], made.end[n] = out.start[n], out.end[n]
        made.use_first[n], made.use_count[n] = top, out.use_count[n]
        classes.append(order[out.use_class[uses]])
        procs.append(out.use_procs[uses])
        top += int(out.use_count[n])
    return made._replace(
        use_class=np.concatenate(classes).astype(np.int64),
        use_procs=np.concatenate(procs).astype(np.int64),
    )


def used(outcome: Outcome) -> int:
    """Entries of the pool of uses that are taken."""
    placed = ~np.isnan(outcome.end)
    return int((outcome.use_first + outcome.use_count)[placed].max(initial=0))
