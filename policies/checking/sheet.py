"""Placements as columns: what the checker's families read.

A placement that cannot be read at all (unknown job, task or node, no process, a time that
is not a number, a second placement of the same job) is reported while the sheet is made
and left out of it, so that the families never meet it.

Notes
-----
P placements, E entries of their node maps, N nodes. A *unit* is what is placed as a whole:
a job, or one task of a workflow.

Times compare with a tolerance of 1e-6 s plus 1e-9 of the distance from the snapshot's
time, plus the rounding of a double at that time. Where intervals are swept, each ends
earlier by that much, yet never before its middle: so a short job is still seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf, isfinite
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Placement
from coalloc.model.platform import NodeState
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import TableSpeedup

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TIME_S = 1e-6
RELATIVE = 1e-9
ROUNDING = 1e-15
ONE: tuple[None, ...] = (None,)


class Unit(Struct, frozen=True, kw_only=True, gc=False):
    """A job, or a task of a workflow."""

    job: Job
    task: Task | None

    @property
    def name(self) -> str:
        """Its name in a violation."""
        return named(self.job.id, None if self.task is None else self.task.id)

    @property
    def shape(self) -> Shape:
        """Its own, or its job's."""
        own = None if self.task is None else self.task.shape
        return self.job.shape if own is None else own

    @property
    def fewest(self) -> int | None:
        """Processes with which it can run; None: a table offers none."""
        match self.task or self.job:
            case RigidJob() as job:
                return job.procs
            case MoldableJob(speedup=TableSpeedup() as table) as job:
                offered = [n for n in table.procs if job.min_procs <= n <= job.max_procs]
                return min(offered, default=None)
            case MoldableJob() | Task() as other:
                return other.min_procs
            case _:
                return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeColumns:
    """The nodes of a snapshot, one row each, in snapshot order."""

    names: tuple[str, ...]
    index: Mapping[str, int]
    slots: Ints
    cpus: Ints
    core: Ints
    """CPUs of a core."""
    memory_mb: Floats
    """MiB, infinite where not limited."""
    sizes: Mapping[str, Ints]
    """Of each counted resource, on each node."""
    power: Floats
    free_at: Floats
    """Seconds."""
    usable: Flags
    """Up, on a cluster that is not stale."""
    cluster: Ints
    """Index into the snapshot's clusters."""
    kind: Ints
    """Index into `kinds`, the distinct sets of features."""
    kinds: tuple[frozenset[str], ...]

    def with_features(self, features: Iterable[str]) -> Flags:
        """Mark the nodes that have all these features, shape (N,)."""
        wanted = frozenset(features)
        return np.array([wanted <= kind for kind in self.kinds], dtype=np.bool_)[self.kind]

    def most(self, shape: Shape, memory_mb_per_proc: int) -> Floats:
        """Processes that each node holds when it is empty, shape (N,)."""
        each = shape.cpus_per_proc
        room = self.cpus // self.core * self.core // each if each else self.slots
        left = self.memory_mb - shape.memory_mb_per_node
        most = np.where(left >= 0.0, room.astype(np.float64), 0.0)
        if memory_mb_per_proc:
            most = np.minimum(most, np.floor(left / memory_mb_per_proc))
        on_node, per_proc = asked(shape.per_node), asked(shape.per_proc)
        for name in on_node.keys() | per_proc.keys():
            spare = self.sizes.get(name, np.zeros_like(self.slots)) - on_node.get(name, 0)
            most = np.minimum(most, spare // per_proc[name] if name in per_proc else most)
            most = np.where(spare >= 0, most, 0.0)
        most = np.minimum(most, shape.procs_per_node or inf)
        return np.maximum(most, 0.0)


def asked(
    amounts: Mapping[str, int], together: Callable[[int, int], int] = add
) -> Mapping[str, int]:
    """Takings of each name: a type, ``gpu:a100``, counts in its family, ``gpu``, too."""
    typed: dict[str, int] = {}
    for name, count in amounts.items():
        if ":" in name:
            family = name.split(":")[0]
            typed[family] = typed.get(family, 0) + count
    return {**amounts, **{f: together(n, amounts.get(f, 0)) for f, n in typed.items()}}


sized = partial(asked, together=max)
"""Sizes of each name: a family is at least as large as its types."""


def node_columns(snapshot: Snapshot) -> NodeColumns:
    """Read the nodes of a snapshot into columns."""
    nodes = [node for cluster in snapshot.clusters for node in cluster.nodes]
    counts = [len(cluster.nodes) for cluster in snapshot.clusters]
    stale = np.array([cluster.stale for cluster in snapshot.clusters], dtype=np.bool_)
    kinds: dict[tuple[str, ...], int] = {}
    sizes: dict[str, Ints] = {}
    for i, node in enumerate(nodes):
        for name, size in sized(node.resources).items() if node.resources else ():
            sizes.setdefault(name, np.zeros(len(nodes), dtype=np.int64))[i] = size
    return NodeColumns(
        names=tuple([node.name for node in nodes]),
        index={node.name: i for i, node in enumerate(nodes)},
        slots=np.array([node.slots for node in nodes], dtype=np.int64),
        cpus=np.array([node.cpus or node.slots for node in nodes], dtype=np.int64),
        core=np.array([node.cpus_per_core for node in nodes], dtype=np.int64),
        sizes=sizes,
        memory_mb=np.array(
            [inf if node.memory_mb is None else node.memory_mb for node in nodes],
            dtype=np.float64,
        ),
        power=np.array([node.power for node in nodes], dtype=np.float64),
        free_at=np.array([node.free_at for node in nodes], dtype=np.float64),
        usable=np.array([node.state is NodeState.UP for node in nodes], dtype=np.bool_)
        & ~np.repeat(stale, counts),
        cluster=np.repeat(np.arange(len(counts)), counts),
        kind=np.array(
            [kinds.setdefault(node.features, len(kinds)) for node in nodes], dtype=np.int64
        ),
        kinds=tuple(map(frozenset, kinds)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Readable placements in columns."""

    snapshot: Snapshot
    options: Mapping[str, Any]
    nodes: NodeColumns
    units: Sequence[Unit]
    shapes: Mapping[int, Shape]
    """Of the units that have one."""
    start: Floats
    """Seconds, seconds, slowdown."""
    end: Floats
    swept_end: Floats
    """`end` less the tolerance: where a sweep takes the placement to have ended."""
    sc: Floats
    procs: Ints
    chunks: Sequence[int]
    """Of the pieces of divisible jobs; 0 of other placements."""
    inside: Sequence[Mapping[str, int]]
    row: Ints
    """Of each entry: its placement, its node, its processes. Rows rise."""
    node: Ints
    count: Ints
    slots: Ints
    """And what it needs there: slots, whatever else the node has."""
    first: Ints
    """The first entry of each placement."""

    def per_entry(self, of: Callable[[Unit], float]) -> Floats:
        """A figure of each entry's unit."""
        return np.array([of(unit) for unit in self.units], dtype=np.float64)[self.row]

    def exclusive(self) -> Flags:
        """Mark the entries whose node is to have nothing else."""
        rows = [row for row, shape in self.shapes.items() if shape.exclusive]
        return np.isin(self.row, rows)

    def tolerance(self, times: Floats) -> Floats:
        """Tolerance of times, seconds."""
        return tolerance(times, self.snapshot.time)

    def rows_of_jobs(self) -> dict[str, list[int]]:
        """The rows of each job: one, or one for each placed task or piece."""
        rows: dict[str, list[int]] = {}
        for row, unit in enumerate(self.units):
            rows.setdefault(unit.job.id, []).append(row)
        return rows


def tolerance(times: Floats, origin: float) -> Floats:
    """Tolerance of times, seconds."""
    return TIME_S + RELATIVE * np.abs(times - origin) + ROUNDING * np.abs(times)


def swept_ends(start: Floats, end: Floats, origin: float) -> Floats:
    """Ends less the tolerance, yet not before the middle."""
    return np.maximum(end - tolerance(end, origin), start + (end - start) / 2.0)


def units_of(snapshot: Snapshot) -> dict[tuple[str, str | None], Unit]:
    """Everything that a plan must answer, by job and task id."""
    return {
        (job.id, None if task is None else task.id): Unit(job=job, task=task)
        for job in snapshot.queue
        for task in (job.tasks if isinstance(job, WorkflowJob) else ONE)
    }


def named(job: str, task: str | None) -> str:
    """Name of a job or a task in a violation."""
    return f"job {job}" if task is None else f"job {job} task {task}"


def make_sheet(
    snapshot: Snapshot,
    placements: Sequence[Placement],
    options: Mapping[str, Any],
    nodes: NodeColumns,
    units: Mapping[tuple[str, str | None], Unit],
    estimates: bool = False,
) -> tuple[Sheet, list[str]]:
    """Put placements into columns; what cannot be read is reported and left out.

    `estimates`: left out is also what starts later and names no nodes.
    """
    faults: list[str] = []
    kept: list[tuple[Unit, Placement]] = []
    seen: set[tuple[str, str | None]] = set()
    for placement in placements:
        key = placement.job, placement.task
        unit = units.get(key)
        is_read = placement.nodes or not estimates or placement.start <= snapshot.time
        if is_read or unit is None:
            fault = _unreadable(placement, unit, nodes)
        else:
            fault = None
        if fault is None and key in seen and placement.chunks is None:
            fault = "is placed twice"
        if fault is None and unit is not None:
            seen.add(key)
            if is_read:
                kept.append((unit, placement))
        else:
            faults.append(f"{named(*key)}: {fault}")
    rows = [placement for _, placement in kept]
    sizes = np.array([len(p.nodes) for p in rows], dtype=np.int64)
    entries = int(sizes.sum())
    names = chain.from_iterable(p.nodes for p in rows)
    start = np.array([p.start for p in rows], dtype=np.float64)
    end = np.array([p.end for p in rows], dtype=np.float64)
    row = np.repeat(np.arange(len(rows), dtype=np.int64), sizes)
    node = np.fromiter(map(nodes.index.__getitem__, names), dtype=np.int64, count=entries)
    counts = chain.from_iterable(p.nodes.values() for p in rows)
    count = np.fromiter(counts, dtype=np.int64, count=entries)
    first = np.cumsum(sizes) - sizes
    procs = np.add.reduceat(count, first) if rows else np.zeros(0, dtype=np.int64)
    shapes = {i: u.shape for i, (u, _) in enumerate(kept) if u.shape is not ONE_SLOT}
    sheet = Sheet(
        snapshot=snapshot,
        options=options,
        nodes=nodes,
        units=[unit for unit, _ in kept],
        shapes=shapes,
        start=start,
        end=end,
        swept_end=swept_ends(start, end, snapshot.time),
        sc=np.array([p.sc for p in rows], dtype=np.float64),
        procs=procs,
        chunks=[p.chunks or 0 for p in rows],
        inside=_inside(snapshot, nodes.cluster[node], count, row),
        row=row,
        node=node,
        count=count,
        slots=_slots(shapes, row, node, count, nodes) if shapes else count,
        first=first,
    )
    return sheet, faults


def _slots(
    shapes: Mapping[int, Shape], row: Ints, node: Ints, count: Ints, nodes: NodeColumns
) -> Ints:
    """⌈⌈n · cpus_per_proc / core⌉ · core · slots / cpus⌉; n where CPUs are not counted."""
    each = np.zeros(int(row[-1]) + 1, dtype=np.int64)
    each[list(shapes)] = [shape.cpus_per_proc for shape in shapes.values()]
    core = nodes.core[node]
    cpus = -(-count * each[row] // core) * core
    slots = -(-cpus * nodes.slots[node] // nodes.cpus[node])
    return np.where(each[row] > 0, slots, count)


def _unreadable(placement: Placement, unit: Unit | None, nodes: NodeColumns) -> str | None:
    """Reason why a placement cannot be read, or None."""
    if unit is None:
        return "is not in the queue"
    is_piece = isinstance(unit.job, DivisibleJob)
    if is_piece and (placement.chunks is None or placement.chunks < 1):
        return "a piece of a divisible job has a number of chunks"
    if placement.chunks is not None and not is_piece:
        return "has chunks, and is not divisible"
    for key, value in (("start", placement.start), ("end", placement.end), ("sc", placement.sc)):
        if not isfinite(value):
            return f"{key} {value} is not a finite number"
    if placement.end < placement.start:
        return f"ends at {shown(placement.end)} s, before its start {shown(placement.start)} s"
    if not placement.nodes:
        return "has no node"
    if not nodes.index.keys() >= placement.nodes.keys():
        unknown = next(name for name in placement.nodes if name not in nodes.index)
        return f"there is no node {unknown}"
    if min(placement.nodes.values()) < 1:
        name = min(placement.nodes, key=placement.nodes.__getitem__)
        return f"has {placement.nodes[name]} processes on node {name}"
    return None


def _inside(snapshot: Snapshot, cluster: Ints, count: Ints, row: Ints) -> list[dict[str, int]]:
    """Processes per cluster of each placement; `cluster`, `count` and `row` are per entry."""
    if not len(row):
        return []
    names = [one.name for one in snapshot.clusters]
    placements = int(row[-1]) + 1
    sums = np.bincount(row * len(names) + cluster, count, placements * len(names))
    table = sums.astype(np.int64).reshape(placements, len(names))
    inside: list[dict[str, int]] = [{} for _ in range(placements)]
    for i, k in zip(*(index.tolist() for index in np.nonzero(table)), strict=True):
        inside[i][names[k]] = int(table[i, k])
    return inside


def shown(number: float) -> str:
    """A number as a violation shows it."""
    return f"{number:.12g}"
