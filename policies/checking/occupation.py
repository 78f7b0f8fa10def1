"""The checker's families on what is taken over time: slots, memory, reservations, links.

Notes
-----
Every interval is half-open. Running work counts from the beginning of time until
max(end, time + overrun_s). Work that runs already may overload a node or a link by itself;
only instants at which a placement takes part are violations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum, inf

import numpy as np
import numpy.typing as npt

from coalloc.model.cost import link_loads, task_loads
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.policies.checking.sheet import RELATIVE, Flags, Floats, Ints, Sheet, shown, swept_ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOccupation:
    """Intervals (placements first, then running work) and what each takes of which node."""

    start: Floats
    """Seconds; `end` as a sweep sees it."""
    end: Floats
    interval: Ints
    """Of each taking: its interval, its node, its slots."""
    node: Ints
    count: Ints


def occupation(sheet: Sheet) -> SlotOccupation:
    """Placements and running work as intervals."""
    placed = len(sheet.units)
    start, end = running_times(sheet)
    # A node that the snapshot does not have is not counted.
    taken = [
        (placed + i, sheet.nodes.index[name], slots)
        for i, job in enumerate(sheet.snapshot.running)
        for name, slots in job.nodes.items()
        if name in sheet.nodes.index
    ]
    more = np.array(taken, dtype=np.int64).reshape(-1, 3)
    return SlotOccupation(
        start=np.concatenate([sheet.start, start]),
        end=np.concatenate([sheet.swept_end, end]),
        interval=np.concatenate([sheet.row, more[:, 0]]),
        node=np.concatenate([sheet.node, more[:, 1]]),
        count=np.concatenate([sheet.count, more[:, 2]]),
    )


def running_times(sheet: Sheet) -> tuple[Floats, Floats]:
    """Start and swept end of the running work, seconds."""
    snapshot = sheet.snapshot
    until = [job.busy_until(snapshot.time, snapshot.overrun_s) for job in snapshot.running]
    end = np.array(until, dtype=np.float64)
    now = np.full(len(end), snapshot.time)
    return np.full(len(end), -inf), swept_ends(now, end, snapshot.time)


def slots(sheet: Sheet, taken: SlotOccupation) -> Iterator[str]:
    """At every instant, on every node: sum of processes <= slots."""
    for node, interval, used in overloads(sheet, taken, taken.count, sheet.nodes.slots):
        at = float(taken.start[interval])
        who = _present(sheet, taken, node, at)
        what = f"{used:.0f} processes on {sheet.nodes.slots[node]} slots"
        yield f"node {sheet.nodes.names[node]}: {what} at {shown(at)} s ({who})"


def memory(sheet: Sheet, taken: SlotOccupation) -> Iterator[str]:
    """At every instant, on every node: sum of memory_mb_per_proc * n <= memory_mb.

    What running work needs is not known: it counts floor(memory * its slots / slots).
    """
    need = np.array([unit.job.memory_mb_per_proc for unit in sheet.units], dtype=np.float64)
    limit = sheet.nodes.memory_mb
    if not need.any() or not np.isfinite(limit).any():
        return
    entries = len(sheet.row)
    limited = np.isfinite(limit[taken.node])
    total = np.where(limited, limit[taken.node], 0.0)
    share = np.floor(total * taken.count / sheet.nodes.slots[taken.node])
    share[:entries] = np.where(limited[:entries], need[sheet.row] * sheet.count, 0.0)
    for node, interval, used in overloads(sheet, taken, share, limit):
        at = float(taken.start[interval])
        who = _present(sheet, taken, node, at)
        what = f"{used:.0f} MiB of {limit[node]:.0f} MiB"
        yield f"node {sheet.nodes.names[node]}: {what} at {shown(at)} s ({who})"


def overloads(
    sheet: Sheet,
    taken: SlotOccupation,
    amount: npt.NDArray[np.float64 | np.int64],
    limit: Floats | Ints,
) -> Iterator[tuple[int, int, float]]:
    """Sweep every node; yield the first instant at which placements overload it.

    An instant is the node, the interval whose start overloads it, and the sum then. Each taking
    asks its `amount` of its node.
    """
    # The order of all starts and ends in time, ends first: one sort of the intervals, so that
    # the far longer list of takings is sorted by one integer key.
    intervals = len(taken.start)
    ending = np.repeat([False, True], intervals)
    order = np.lexsort((~ending, np.concatenate([taken.start, taken.end])))
    rank = np.empty(2 * intervals, dtype=np.int64)
    rank[order] = np.arange(2 * intervals)
    lasting = (taken.start < taken.end)[taken.interval]
    interval, node, amount = taken.interval[lasting], taken.node[lasting], amount[lasting]
    key = np.concatenate([rank[interval], rank[interval + intervals]])
    key += np.tile(node, 2) * (2 * intervals)
    sweep = np.argsort(key)
    change = np.concatenate([amount, -amount])[sweep]
    place = np.tile(node, 2)[sweep]
    used = np.cumsum(change)
    over = used > limit[place]
    if not over.any():
        return
    ours = np.tile(interval < len(sheet.units), 2)[sweep]
    over &= np.cumsum(np.where(ours, change, 0)) > 0
    found = np.flatnonzero(over)
    for node_index, at in zip(*np.unique(place[found], return_index=True), strict=True):
        event = found[at]
        yield int(node_index), int(np.tile(interval, 2)[sweep[event]]), float(used[event])


def _present(sheet: Sheet, taken: SlotOccupation, node: int, at: float) -> str:
    """The jobs on a node at an instant."""
    there = taken.interval[taken.node == node]
    return _names(sheet, there[(taken.start[there] <= at) & (at < taken.end[there])])


def _names(sheet: Sheet, intervals: Ints) -> str:
    placed = len(sheet.units)
    names = [
        sheet.units[i].name if i < placed else f"running {sheet.snapshot.running[i - placed].id}"
        for i in sorted(intervals.tolist())
    ]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def reservations(sheet: Sheet) -> Iterator[str]:
    """On a reserved node, in [start, end) of the reservation: only the jobs it lists."""
    if not sheet.snapshot.reservations or not sheet.units:
        return
    by_node = np.argsort(sheet.node, kind="stable")
    sorted_nodes = sheet.node[by_node]
    for kept in sheet.snapshot.reservations:
        nodes = np.array(
            [sheet.nodes.index[name] for name in kept.nodes if name in sheet.nodes.index],
            dtype=np.int64,
        )
        low = np.searchsorted(sorted_nodes, nodes, side="left")
        sizes = np.searchsorted(sorted_nodes, nodes, side="right") - low
        inside = np.repeat(low - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        entries = by_node[inside]
        rows = sheet.row[entries]
        until = kept.end - sheet.tolerance(np.array([kept.end]))[0]
        begin, end = sheet.start[rows], sheet.swept_end[rows]
        meets = (begin < until) & (end > kept.start) & (begin < end)
        for entry in np.sort(entries[meets]):
            unit = sheet.units[sheet.row[entry]]
            if unit.job.id not in kept.jobs:
                node = sheet.nodes.names[sheet.node[entry]]
                yield f"{unit.name}: node {node} is reserved ({kept.id}) from {shown(kept.start)} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The load on one cluster's link over time.

    `rows` are the placements that load it; `interval` has those, then the running work that loads
    it: index into `start`, `end`, `load`. `times` are the seconds of each event, `level` the Gbit/s
    after it. Placements run between the events `first` and `last`, both included.
    """

    name: str
    capacity: float
    rows: Ints
    start: Floats
    end: Floats
    load: Floats
    level: Floats
    first: Ints
    last: Ints
    times: Floats


def link_uses(sheet: Sheet) -> list[LinkUse]:
    """Loads of placements and of running work: of jobs by equation (4), of tasks by `task_loads`.

    The option ``workflow_links=idle`` leaves out tasks, as published mappings do.
    """
    loading: dict[str, list[tuple[int, float]]] = {c.name: [] for c in sheet.snapshot.clusters}
    links = {cluster.name: cluster.link_gbps for cluster in sheet.snapshot.clusters}
    books = sheet.options.get("workflow_links") != "idle"
    for row, (unit, inside) in enumerate(zip(sheet.units, sheet.inside, strict=True)):
        job, sent = unit.job, dict[str, float]()
        if len(inside) > 1 and unit.task is not None and books:
            sent = task_loads(unit.task, inside, links)
        elif len(inside) > 1 and isinstance(job, RigidJob | MoldableJob) and job.proc_gbps:
            sent = link_loads(job.proc_gbps, inside)
        for name, load in sent.items():
            loading[name].append((row, load))
    since, until = running_times(sheet)
    uses = []
    for cluster in sheet.snapshot.clusters:
        others = [
            (i, job.link_gbps[cluster.name])
            for i, job in enumerate(sheet.snapshot.running)
            if job.link_gbps.get(cluster.name)
        ]
        rows = np.array([row for row, _ in loading[cluster.name]], dtype=np.int64)
        rows = rows[sheet.start[rows] < sheet.swept_end[rows]]
        live = set(rows.tolist())
        loads = [load for row, load in loading[cluster.name] if row in live]
        running = np.array([i for i, _ in others], dtype=np.int64)
        uses.append(
            _link_use(
                cluster.name,
                cluster.link_gbps,
                rows,
                np.concatenate([sheet.start[rows], since[running]]),
                np.concatenate([sheet.swept_end[rows], until[running]]),
                np.array(loads + [load for _, load in others], dtype=np.float64),
            )
        )
    return uses


def _link_use(
    name: str, capacity: float, rows: Ints, start: Floats, end: Floats, load: Floats
) -> LinkUse:
    count = len(start)
    times = np.concatenate([start, end])
    starting = np.repeat([True, False], count)
    order = np.lexsort((starting, times))
    rank = np.empty(2 * count, dtype=np.int64)
    rank[order] = np.arange(2 * count)
    return LinkUse(
        name=name,
        capacity=capacity,
        rows=rows,
        start=start,
        end=end,
        load=load,
        level=np.cumsum(np.concatenate([load, -load])[order]),
        first=rank[: len(rows)],
        last=rank[count : count + len(rows)] - 1,
        times=times[order],
    )


def links(sheet: Sheet, uses: list[LinkUse]) -> Iterator[str]:
    """At every instant, for each placement that loads link k: sum of BW <= sc * capacity_k.

    A task's run time knows no slowdown: its sc counts as 1.
    """
    slowdown = np.where([unit.task is None for unit in sheet.units], sheet.sc, 1.0)
    for use in uses:
        if not len(use.rows) or use.capacity == inf:
            continue
        allowed = use.capacity * np.maximum(slowdown[use.rows], 1.0) * (1.0 + RELATIVE)
        peaks = range_maxima(use.level, use.first, use.last)
        for i in np.flatnonzero(peaks > allowed):
            span = slice(use.first[i], use.last[i] + 1)
            at = float(use.times[span][int(np.argmax(use.level[span]))])
            here = (use.start <= at) & (at < use.end)
            # The running sum has rounding errors; what is reported has none.
            total = fsum(use.load[here].tolist())
            if total <= allowed[i]:
                continue
            who = _names(sheet, use.rows[here[: len(use.rows)]])
            what = f"{total:.9g} Gbit/s on {shown(use.capacity)} Gbit/s"
            sc = float(slowdown[use.rows[i]])
            what += f" at sc {shown(sc)}" if sc > 1.0 else ""
            yield f"link {use.name}: {what} at {shown(at)} s ({who})"
            break


def range_maxima(level: Floats, first: Ints, last: Ints) -> Floats:
    """max(level[first..last]), both ends included, by a sparse table."""
    width = last - first + 1
    power = np.frexp(width.astype(np.float64))[1] - 1
    best = np.empty(len(first), dtype=np.float64)
    table = level
    for k in range(int(power.max()) + 1):
        chosen: Flags = power == k
        left, right = first[chosen], last[chosen] - (1 << k) + 1
        best[chosen] = np.maximum(table[left], table[right])
        table = np.maximum(table[: -(1 << k)], table[1 << k :])
    return best


def peak(use: LinkUse) -> float | None:
    """Largest load as a share of the capacity; None where the link has no limit."""
    if use.capacity == inf or use.capacity == 0.0:
        return None
    return max(float(use.level.max(initial=0.0)), 0.0) / use.capacity
