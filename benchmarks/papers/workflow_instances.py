"""Workflows of Table 1's shapes, and DAS-3 in memory.

Notes
-----
The text names the numbers of tasks and levels, the share of tasks above MCA and the critical path,
which is about 96 a level whatever the width: so weights are bounded near 100, with a heavy task on
each level. What it leaves open is filled in here:

- tasks are dealt to the levels evenly, at random within a third of the mean; each waits for one to
  three tasks of the level before, the heavy one for the heavy one before it;
- work ~ U(`LIGHT`, 100) s at the reference power, that of the heavy task U(92, 100);
- parallel fractions ~ U(pf, 1), communication comm ~ work x U(0, 2 `chatter`) GB;
- a sequential task has no parallel fraction, a rigid one a fixed number of processes, 2 to 16.
- sequential tasks are scaled down by `SEQUENTIAL_SCALE`: as heavy as the others they decide every
  makespan alone, and all policies look equal.

References
----------
Stanzani, Sato, Netto, "Scheduling Workflows in Multi-Cluster Environments", Table 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coalloc.model.jobs import Edge, Task, WorkflowJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot

TABLE_1: Mapping[str, tuple[tuple[int, int], ...]] = {
    "few": ((21, 3), (29, 4), (37, 5), (46, 6), (55, 7)),
    "various": ((55, 6), (89, 8), (93, 9), (113, 10), (117, 11)),
    "many": ((39, 2), (56, 3), (56, 3), (92, 4), (133, 7)),
}
"""Tasks and levels of the five workflows of each set."""

DAS_3: tuple[tuple[str, int, float], ...] = (
    ("vu", 85, 2.4),
    ("leiden", 32, 2.6),
    ("uva", 41, 2.2),
    ("delft", 68, 2.4),
    ("uvamn", 46, 2.4),
)
"""Name, compute nodes and speed in GHz of each cluster."""

SEQUENTIAL, RIGID, MALLEABLE = "sequential", "rigid", "malleable"
WIDEST = 272
SEQUENTIAL_SCALE = 0.2
LIGHT = 30.0
"""Least work of a task that is not its level's heavy one, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Parameters from which a workflow is drawn."""

    tasks: int
    levels: int
    pf: float = 0.8
    """Least parallel fraction."""
    chatter: float = 0.02
    """Mean communication of a task, GB per second of work."""
    mix: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """Shares of sequential, rigid and malleable tasks."""
    edge_gb: float = 0.0
    """Most data on an edge, GB; the published workflows have none."""


def draw_workflow(shape: Shape, seed: int, name: str = "1") -> WorkflowJob:
    """Draw one workflow; the same shape and seed give the same one."""
    rng = np.random.default_rng([shape.tasks, shape.levels, round(shape.pf * 1000), seed])
    levels = _deal(shape, rng)
    tasks = [
        _task(shape, rng, number, heavy=number == level[0]) for level in levels for number in level
    ]
    edges: list[Edge] = []
    for above, level in pairwise(levels):
        for number in level:
            count = min(int(rng.integers(1, 4)), len(above))
            parents = set(rng.choice(above, count, replace=False).tolist())
            if number == level[0]:
                parents.add(above[0])
            edges += [
                Edge(
                    parent=f"t{parent}",
                    child=f"t{number}",
                    gb=float(rng.uniform(0.0, shape.edge_gb)) if shape.edge_gb > 0.0 else 0.0,
                )
                for parent in sorted(parents)
            ]
    return WorkflowJob(id=name, tasks=tuple(tasks), edges=tuple(edges))


def _deal(shape: Shape, rng: np.random.Generator) -> list[list[int]]:
    """Number the tasks of each level; the first is the heavy one."""
    if not 1 <= shape.levels <= shape.tasks:
        raise ValueError(f"{shape.tasks} tasks do not fill {shape.levels} levels")
    share = rng.uniform(2.0, 4.0, shape.levels)
    sizes = np.maximum(np.floor(share / share.sum() * shape.tasks).astype(int), 1)
    while sizes.sum() < shape.tasks:
        sizes[int(rng.integers(shape.levels))] += 1
    while sizes.sum() > shape.tasks:
        sizes[int(sizes.argmax())] -= 1
    bounds = np.concatenate(([0], np.cumsum(sizes))).tolist()
    return [list(range(a, b)) for a, b in pairwise(bounds)]


def _task(shape: Shape, rng: np.random.Generator, number: int, *, heavy: bool) -> Task:
    work = float(rng.uniform(92.0, 100.0) if heavy else rng.uniform(LIGHT, 100.0))
    kind = str(rng.choice([SEQUENTIAL, RIGID, MALLEABLE], p=shape.mix))
    fraction = float(rng.uniform(shape.pf, 1.0))
    comm = work * float(rng.uniform(0.0, 2.0 * shape.chatter))
    procs = int(rng.integers(2, 17))
    name = f"t{number}"
    if kind == SEQUENTIAL:
        return Task(id=name, work=work * SEQUENTIAL_SCALE)
    low, high = (procs, procs) if kind == RIGID else (1, WIDEST)
    return Task(
        id=name,
        work=work,
        parallel_fraction=fraction,
        min_procs=low,
        max_procs=high,
        comm_gb=comm,
    )


def das_3() -> tuple[Cluster, ...]:
    """The 272 compute nodes of DAS-3: 1 GB/s inside a cluster, 100 MB/s between clusters."""
    fastest = max(speed for _, _, speed in DAS_3)
    return tuple(
        Cluster(
            name=name,
            nodes=tuple(
                Node(name=f"{name}{n}", power=speed / fastest) for n in range(1, count + 1)
            ),
            link_gbps=0.8,
            intra_gbps=8.0,
        )
        for name, count, speed in DAS_3
    )


def table_1(name: str, seed: int, **fields: float) -> tuple[Snapshot, ...]:
    """The five workflows of one of the sets (few, various, many), each alone on DAS-3."""
    return tuple(
        Snapshot(
            clusters=das_3(),
            queue=(draw_workflow(Shape(tasks=tasks, levels=levels, **fields), seed * 10 + n),),  # type: ignore[arg-type]
        )
        for n, (tasks, levels) in enumerate(TABLE_1[name])
    )
