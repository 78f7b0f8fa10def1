"""The checker's families on what is taken over time: slots, memory, resources, links.

Notes
-----
Every interval is half-open. Running work counts from the beginning of time until
max(end, time + overrun_s). Work that runs already may overload a node or a link by itself;
only instants at which a placement takes part are violations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf

import numpy as np
import numpy.typing as npt

from coalloc.model.cost import link_loads, task_loads
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.snapshot import Running
from coalloc.policies.checking.sheet import (
    RELATIVE,
    Flags,
    Floats,
    Ints,
    Sheet,
    asked,
    shown,
    sized,
    swept_ends,
)

NOTHING: Mapping[str, int] = {}


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
    held: Sequence[tuple[Running, str]]
    """Of the takings by running work, the last ones: whose, and the node's name."""


def occupation(sheet: Sheet) -> SlotOccupation:
    """Placements and running work as intervals."""
    placed = len(sheet.units)
    start, end = running_times(sheet)
    # A node that the snapshot does not have is not counted.
    held = [
        (i, job, name)
        for i, job in enumerate(sheet.snapshot.running)
        for name in job.nodes
        if name in sheet.nodes.index
    ]
    taken = [(placed + i, sheet.nodes.index[name], job.nodes[name]) for i, job, name in held]
    more = np.array(taken, dtype=np.int64).reshape(-1, 3)
    return SlotOccupation(
        start=np.concatenate([sheet.start, start]),
        end=np.concatenate([sheet.swept_end, end]),
        interval=np.concatenate([sheet.row, more[:, 0]]),
        node=np.concatenate([sheet.node, more[:, 1]]),
        count=np.concatenate([sheet.slots, more[:, 2]]),
        held=[(job, name) for _, job, name in held],
    )


def running_times(sheet: Sheet) -> tuple[Floats, Floats]:
    """Start and swept end of the running work, seconds."""
    snapshot = sheet.snapshot
    until = [job.busy_until(snapshot.time, snapshot.overrun_s) for job in snapshot.running]
    end = np.array(until, dtype=np.float64)
    now = np.full(len(end), snapshot.time)
    return np.full(len(end), -inf), swept_ends(now, end, snapshot.time)


def slots(sheet: Sheet, taken: SlotOccupation) -> Iterator[str]:
    """At every instant, on every node: sum of slots taken <= slots."""
    word = "slots of" if sheet.shapes else "processes on"
    return _overloaded(sheet, taken, taken.count, sheet.nodes.slots, word, "slots")


def memory(sheet: Sheet, taken: SlotOccupation) -> Iterator[str]:
    """At every instant, on every node: sum of memory_mb_per_node + memory_mb_per_proc * n <= all.

    `all_memory` takes all. Running work that does not tell what it takes counts
    floor(memory * its slots / slots).
    """
    limit = sheet.nodes.memory_mb
    total = np.where(np.isfinite(limit), limit, 0.0)
    need = sheet.per_entry(lambda unit: unit.job.memory_mb_per_proc) * sheet.count
    if sheet.shapes:
        need += sheet.per_entry(lambda unit: unit.shape.memory_mb_per_node)
        whole = sheet.per_entry(lambda unit: unit.shape.all_memory) > 0.0
        need = np.where(whole, total[sheet.node], need)
    need[~np.isfinite(limit)[sheet.node]] = 0.0
    if not need.any():
        return
    placed = len(need)
    share = np.floor(total[taken.node] * taken.count / sheet.nodes.slots[taken.node])
    share[:placed] = need
    for i, (work, name) in enumerate(taken.held, placed):
        share[i] = work.memory_mb.get(name, share[i])
    yield from _overloaded(sheet, taken, share, limit, "MiB of", "MiB")


def exclusive(sheet: Sheet, taken: SlotOccupation) -> Iterator[str]:
    """At every instant, on every node of an exclusive job: nobody else, running or placed."""
    alone = sheet.exclusive()
    if alone.any():
        # More than there are takings is only what includes one of these and another.
        amount = np.ones_like(taken.count)
        amount[: len(alone)][alone] = len(amount)
        limit = np.full_like(sheet.nodes.slots, len(amount))
        yield from _overloaded(sheet, taken, amount, limit, "is not left to its exclusive job")


def resources(sheet: Sheet, taken: SlotOccupation) -> Iterator[str]:
    """At every instant, of each name: on every node sum of per_node + per_proc * n <= its size.

    Of every cluster, and of the site, sum of per_job <= its size. On nodes a type counts in its
    family, too; of running work what it tells, of a family as much as of its types at least.
    """
    if not sheet.shapes:
        return
    others = [cluster.resources for cluster in sheet.snapshot.clusters]
    others.append(sheet.snapshot.resources)
    none = np.zeros_like(sheet.nodes.slots)
    for name, rows in _resource_takings(sheet, taken, others).items():
        table = np.array(rows, dtype=np.int64)
        mine = replace(taken, interval=table[:, 0], node=table[:, 1], count=table[:, 2])
        more = np.array([sizes.get(name, 0) for sizes in others], dtype=np.int64)
        limit = np.concatenate([sheet.nodes.sizes.get(name, none), more])
        yield from _overloaded(sheet, mine, mine.count, limit, f"{name} of", name)


def _resource_takings(
    sheet: Sheet, taken: SlotOccupation, others: Sequence[Mapping[str, int]]
) -> dict[str, list[tuple[int, int, int]]]:
    """Interval, place and amount by name. Places: the nodes, the clusters, the site."""
    takings: dict[str, list[tuple[int, int, int]]] = {}

    def take(interval: int, place: int, amounts: Mapping[str, int], times: int = 1) -> None:
        for name, amount in amounts.items():
            takings.setdefault(name, []).append((interval, place, amount * times))

    placed, nodes = len(sheet.units), len(sheet.nodes.names)
    entries = zip(sheet.row.tolist(), sheet.node.tolist(), sheet.count.tolist(), strict=True)
    for row, node, count in entries:
        if row in sheet.shapes:
            take(row, node, asked(sheet.shapes[row].per_node))
            take(row, node, asked(sheet.shapes[row].per_proc), count)
    for entry, (work, name) in enumerate(taken.held, len(sheet.row)):
        held = sized(work.resources.get(name, NOTHING))
        take(int(taken.interval[entry]), int(taken.node[entry]), held)
    of_jobs = {row: shape.per_job for row, shape in sheet.shapes.items()}
    of_jobs |= {placed + i: work.per_job for i, work in enumerate(sheet.snapshot.running)}
    clusters = sheet.nodes.cluster[taken.node].tolist()
    used = set(zip(taken.interval.tolist(), clusters, strict=True))
    used |= {(interval, len(others) - 1) for interval in of_jobs}
    for interval, k in sorted(used):
        mine = of_jobs.get(interval, NOTHING)
        take(interval, nodes + k, {name: n for name, n in mine.items() if name in others[k]})
    return takings


def overloads(
    sheet: Sheet,
    taken: SlotOccupation,
    amount: npt.NDArray[np.float64 | np.int64],
    limit: Floats | Ints,
) -> Iterator[tuple[int, int, float]]:
    """Sweep every node; yield the first instant at which placements overload it.

    An instant is the node, the interval whose start overloads it, and the sum then. Each taking
    asks its `amount` of its node. Behind the nodes may be clusters, and the site.
    """
    # The intervals are sorted once; the far longer list of takings then goes by one integer key.
    intervals = len(taken.start)
    _, rank = _in_time(taken.start, taken.end)
    lasting = (taken.start < taken.end)[taken.interval] & (amount > 0)
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


def _in_time(start: Floats, end: Floats) -> tuple[Ints, Ints]:
    """All starts, then all ends, in the order of time, ends first; and the place of each there."""
    order = np.lexsort((np.repeat([True, False], len(start)), np.concatenate([start, end])))
    return order, np.argsort(order)


def _overloaded(
    sheet: Sheet,
    taken: SlotOccupation,
    amount: Floats | Ints,
    limit: Floats | Ints,
    *words: str,
) -> Iterator[str]:
    """Each overload in words: two of the amount and of the limit, or one without them."""
    nodes, clusters = sheet.nodes.names, sheet.snapshot.clusters
    for place, interval, used in overloads(sheet, taken, amount, limit):
        at, name = float(taken.start[interval]), "the site"
        if place < len(nodes):
            name = f"node {nodes[place]}"
        elif place < len(nodes) + len(clusters):
            name = f"cluster {clusters[place - len(nodes)].name}"
        there = taken.interval[taken.node == place]
        who = _names(sheet, there[(taken.start[there] <= at) & (at < taken.end[there])])
        what = f"{used:.0f} {words[0]} {limit[place]:.0f} {words[1]}" if words[1:] else words[0]
        yield f"{name}: {what} at {shown(at)} s ({who})"


def _names(sheet: Sheet, intervals: Ints) -> str:
    placed = len(sheet.units)
    names = [
        sheet.units[i].name if i < placed else f"running {sheet.snapshot.running[i - placed].id}"
        for i in sorted(set(intervals.tolist()))
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
    others: dict[str, list[tuple[int, float]]] = {name: [] for name in links}
    for i, work in enumerate(sheet.snapshot.running):
        for name, load in work.link_gbps.items():
            if load and name in links:
                others[name].append((i, load))
    since, until = running_times(sheet)
    uses = []
    for cluster in sheet.snapshot.clusters:
        beside = others[cluster.name]
        rows = np.array([row for row, _ in loading[cluster.name]], dtype=np.int64)
        rows = rows[sheet.start[rows] < sheet.swept_end[rows]]
        live = set(rows.tolist())
        loads = [load for row, load in loading[cluster.name] if row in live]
        running = np.array([i for i, _ in beside], dtype=np.int64)
        start = np.concatenate([sheet.start[rows], since[running]])
        end = np.concatenate([sheet.swept_end[rows], until[running]])
        gbps = np.array(loads + [gbps for _, gbps in beside], dtype=np.float64)
        order, rank = _in_time(start, end)
        uses.append(
            LinkUse(
                name=cluster.name,
                capacity=cluster.link_gbps,
                rows=rows,
                start=start,
                end=end,
                load=gbps,
                level=np.cumsum(np.concatenate([gbps, -gbps])[order]),
                first=rank[: len(rows)],
                last=rank[len(start) : len(start) + len(rows)] - 1,
                times=np.concatenate([start, end])[order],
            )
        )
    return uses


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
