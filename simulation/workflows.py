"""Jobs of a log made workflows, or arrays, of the same work.

Notes
-----
A job that takes t by its estimate, on n processors, becomes a workflow of n t processor-seconds.
Its shape gives each task a share of them and the order between tasks: a chain of 3 to 8, a fork and
join of 3 to 20 between two single tasks, 3 to 6 layers of 2 to 8, each task behind one to three of
the layer before, or the graph of a real workflow file, with its run times. Shares of the drawn
shapes are lognormal (sigma 0.5).

With A the shape's shares by its critical path, which is how many tasks it keeps busy, tasks are
about n / A wide, so that the workflow takes about as long as its job did, where it gets as much:
each the nearest of 1..n to (n / A) 2^U(-1, 1). Where tasks are malleable, they may run on 1 to n
processors by Amdahl's law with a parallel fraction ~ U(`PARALLEL`), and take as long on that many.

Tasks run for the same share of their estimates as the job did. Data are not moved. Only jobs that
ran for `LEAST_S` or longer are made workflows: their tasks would be of seconds. These distributions
are our assumption.

An *array* is of 2 to 10 equal jobs, submitted at once, on as many processors as the job each, and
as many times shorter.

Numbers are drawn for each job from a generator of its own, so that a job's do not depend on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.adapters.formats.workflow import read_workflow
from coalloc.model.errors import InputError
from coalloc.model.jobs import Edge, Task, WorkflowJob
from coalloc.model.values import replace
from coalloc.simulation.flow_runs import critical_path
from coalloc.simulation.workload import Workload

LEAST_S = 600.0
PARALLEL = (0.8, 0.98)
SPREAD = 0.5
SHORTEST_S = 1.0
MEMBERS = (2, 10)
REAL = ("Montage_25", "CyberShake_30", "Epigenomics_24", "Inspiral_30", "Sipht_30")
"""Files whose graphs are used, of the folder of DAX workflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shares of the work, and who waits for whom, by number."""

    shares: tuple[float, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Shares of the jobs that become something else."""

    flows: float = 0.0
    """Of the jobs that ran for `LEAST_S` or longer."""
    malleable: bool = False
    """Tasks of workflows are."""
    arrays: float = 0.0
    """Of the same jobs, beside the workflows."""


def make_workflows(workload: Workload, mix: Mix, folder: Path, seed: int = 0) -> Workload:
    """Make jobs of a workload workflows, of the DAX files in a folder, or arrays."""
    jobs: list[LoggedJob] = []
    flows = arrays = 0
    for number, logged in enumerate(workload.jobs):
        rng = np.random.default_rng([seed, number, 0xF10])
        kind = rng.random() if logged.run_s >= LEAST_S and logged.moldable is None else 1.0
        if kind < mix.flows:
            shapes = DRAWN if rng.random() < 0.5 else _real(folder)
            shape = shapes[int(rng.integers(len(shapes)))](rng)
            jobs.append(replace(logged, flow=_flow(logged, shape, mix.malleable, rng)))
            flows += 1
        elif kind < mix.flows + mix.arrays:
            jobs += _members(logged, int(rng.integers(MEMBERS[0], MEMBERS[1] + 1)))
            arrays += 1
        else:
            jobs.append(logged)
    adjusted = {**workload.adjusted, "made workflows": flows, "made arrays": arrays}
    return replace(workload, jobs=tuple(jobs), adjusted=adjusted)


def _chain(rng: np.random.Generator) -> Shape:
    count = int(rng.integers(3, 9))
    return _drawn(rng, count, list(pairwise(range(count))))


def _fork_join(rng: np.random.Generator) -> Shape:
    width = int(rng.integers(3, 21))
    inner = range(1, width + 1)
    return _drawn(rng, width + 2, [(0, n) for n in inner] + [(n, width + 1) for n in inner])


def _layered(rng: np.random.Generator) -> Shape:
    edges: list[tuple[int, int]] = []
    above, count = range(0), 0
    for _ in range(int(rng.integers(3, 7))):
        layer = range(count, count + int(rng.integers(2, 9)))
        for n in layer if above else ():
            few = min(int(rng.integers(1, 4)), len(above))
            edges += [(p, n) for p in sorted(rng.choice(above, few, replace=False).tolist())]
        above, count = layer, layer.stop
    return _drawn(rng, count, edges)


def _drawn(rng: np.random.Generator, count: int, edges: Sequence[tuple[int, int]]) -> Shape:
    return Shape(shares=tuple(rng.lognormal(0.0, SPREAD, count).tolist()), edges=tuple(edges))


Draw = Callable[[np.random.Generator], Shape]
DRAWN: tuple[Draw, ...] = (_chain, _fork_join, _layered)


@cache
def _real(folder: Path) -> tuple[Draw, ...]:
    return tuple(_read(folder / f"{name}.xml") for name in REAL)


def _read(path: Path) -> Draw:
    if not path.exists():
        raise InputError(str(path), "is absent; the scenarios of workflows take shapes from it")
    flow = read_workflow(path).job
    number = {task.id: n for n, task in enumerate(flow.tasks)}
    shape = Shape(
        shares=tuple(task.work for task in flow.tasks),
        edges=tuple((number[edge.parent], number[edge.child]) for edge in flow.edges),
    )
    return lambda _: shape


def _flow(
    logged: LoggedJob, shape: Shape, malleable: bool, rng: np.random.Generator
) -> WorkflowJob:
    """A workflow of this shape in place of a job."""
    job, total = logged.job, sum(shape.shares)
    edges = tuple(Edge(parent=f"t{a + 1}", child=f"t{b + 1}") for a, b in shape.edges)
    bare = tuple(Task(id=f"t{n}", work=1.0) for n in range(1, len(shape.shares) + 1))
    path = critical_path(WorkflowJob(id=job.id, tasks=bare, edges=edges), shape.shares)
    wide = job.procs * path / total
    tasks = []
    for task, share in zip(bare, shape.shares, strict=True):
        stretch, drawn = 2.0 ** rng.uniform(-1.0, 1.0), rng.uniform(*PARALLEL)
        procs = min(max(round(wide * stretch), 1), job.procs)
        seconds = max(job.procs * job.base_time * share / total / procs, SHORTEST_S)
        fraction = drawn if malleable else 0.0
        work = seconds / (1.0 - fraction + fraction / procs)
        low, high = (1, job.procs) if malleable else (procs, procs)
        tasks.append(
            replace(task, work=work, parallel_fraction=fraction, min_procs=low, max_procs=high)
        )
    return WorkflowJob(
        id=job.id,
        weight=job.weight,
        submitted=job.submitted,
        earliest=job.earliest,
        clusters=job.clusters,
        tasks=tuple(tasks),
        edges=edges,
    )


def _members(logged: LoggedJob, count: int) -> list[LoggedJob]:
    """Equal jobs of the same work in all."""
    job = logged.job
    return [
        replace(
            logged,
            job=replace(job, id=f"{job.id}_{n}", base_time=job.base_time / count),
            run_s=logged.run_s / count,
        )
        for n in range(1, count + 1)
    ]
