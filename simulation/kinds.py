"""Jobs of a log made moldable, or workflows or arrays of the same work.

Notes
-----
Logs tell one number of processors and one time of each job.
A job of a log that takes t on n processors becomes moldable on 1 to as many processors as the
platform has, with a speed-up S by which it takes t on n:

- ``amdahl:F``: S(k) = 1 / (1 - F + F / k); ``amdahl:LOW,HIGH``: F ~ U(LOW, HIGH) for each job;
- ``downey:A,SIGMA``: Downey's model; ``downey``: sigma ~ U(0, 2) and log2(A / n) ~ U(-1, 1), so
  that what the user asked for is within a factor of two of the average parallelism A.

How much longer the estimate is than the real time stays the same on every number of processors.

Three numbers are drawn for every job, used or not: so a job's do not depend on the others, nor on
the share of jobs that are made moldable. These distributions are our assumption.

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

References
----------
A. Downey, "A model for speedup of parallel programs", UCB/CSD-97-933, 1997.
W. Cirne, F. Berman, "A model for moldable supercomputer jobs", IPDPS 2001.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np

from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.adapters.formats.workflow import read_workflow
from coalloc.model.errors import InputError
from coalloc.model.jobs import Edge, JobFields, MoldableJob, Task, WorkflowJob
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, Speedup
from coalloc.model.values import fields_of, replace
from coalloc.simulation.flow_runs import critical_path
from coalloc.simulation.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rule by which jobs become moldable."""

    model: str
    """``amdahl`` or ``downey``."""
    values: tuple[float, ...]
    """F, or LOW and HIGH; A and SIGMA, or nothing where they are drawn."""
    share: float = 1.0
    """Of the jobs, 0..1."""


def read_shape(text: str, share: float = 1.0, where: str = "--moldable") -> Shape:
    """Read ``amdahl:0.8,1``, ``downey:16,0.5`` or ``downey``. Raises `InputError`."""
    model, colon, rest = text.partition(":")
    if model not in ("amdahl", "downey"):
        raise InputError(where, f"{model!r} is not one of amdahl, downey")
    try:
        values = tuple(float(part) for part in rest.split(",")) if colon else ()
    except ValueError:
        raise InputError(where, f"{rest!r} is not a list of numbers") from None
    if not 0.0 <= share <= 1.0:
        raise InputError(f"{where}-share", f"{share:g} is outside 0..1")
    if model == "amdahl":
        if len(values) not in (1, 2) or not all(0.0 <= v <= 1.0 for v in values):
            raise InputError(where, f"{text!r} is not amdahl:F or amdahl:LOW,HIGH within 0..1")
        if values[0] > values[-1]:
            raise InputError(where, f"{values[0]:g} is above {values[-1]:g}")
    elif values and not (len(values) == 2 and 1.0 <= values[0] < inf and 0.0 <= values[1] < inf):
        raise InputError(where, f"{text!r} is not downey:A,SIGMA with A >= 1 and SIGMA >= 0")
    return Shape(model=model, values=values, share=share)


def make_moldable(
    workload: Workload, shape: Shape, slots: int, seed: int = 0, draw: int = 0
) -> Workload:
    """Make jobs of a workload moldable up to the slots of the platform, or to the log's width.

    Numbers are drawn by `seed` and `draw` together.
    """
    rng = np.random.default_rng([seed, 0x301D, draw])
    draws = rng.random((len(workload.jobs), 3)).tolist()
    jobs = tuple(
        _made(logged, shape, slots, draw) if draw[0] < shape.share else logged
        for logged, draw in zip(workload.jobs, draws, strict=True)
    )
    made = sum(logged.moldable is not None for logged in jobs)
    adjusted = {**workload.adjusted, "made moldable": made}
    return replace(workload, jobs=jobs, adjusted=adjusted)


def _made(logged: LoggedJob, shape: Shape, slots: int, draw: list[float]) -> LoggedJob:
    job = logged.job
    moldable = MoldableJob(
        **fields_of(job, JobFields),
        proc_gbps=job.proc_gbps,
        speedup=_speedup(shape, job.procs, job.base_time, draw),
        min_procs=1,
        max_procs=max(slots, job.procs),
    )
    return replace(logged, moldable=moldable)


def _speedup(shape: Shape, procs: int, seconds: float, draw: list[float]) -> Speedup:
    """The speed-up by which a job takes so many seconds on so many processes."""
    if shape.model == "amdahl":
        low, high = shape.values[0], shape.values[-1]
        fraction = low + (high - low) * draw[1]
        alone = AmdahlSpeedup(time_1=1.0, parallel_fraction=fraction)
        return replace(alone, time_1=seconds / alone.time(procs))
    parallelism, variance = shape.values or (
        max(procs * 2.0 ** (2.0 * draw[1] - 1.0), 1.0),
        2.0 * draw[2],
    )
    model = DowneySpeedup(time_1=1.0, parallelism=parallelism, variance=variance)
    return replace(model, time_1=seconds / model.time(procs))


LEAST_S = 600.0
PARALLEL = (0.8, 0.98)
SPREAD = 0.5
SHORTEST_S = 1.0
MEMBERS = (2, 10)
REAL = ("Montage_25", "CyberShake_30", "Epigenomics_24", "Inspiral_30", "Sipht_30")
"""Files whose graphs are used, of the folder of DAX workflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
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


def make_workflows(
    workload: Workload, mix: Mix, folder: Path, seed: int = 0, draw: int = 0
) -> Workload:
    """Make jobs of a workload workflows, of the DAX files in a folder, or arrays.

    Numbers are drawn by `seed` and `draw` together.
    """
    jobs: list[LoggedJob] = []
    flows = arrays = 0
    for number, logged in enumerate(workload.jobs):
        rng = np.random.default_rng([seed, number, 0xF10, draw])
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


def _chain(rng: np.random.Generator) -> Graph:
    count = int(rng.integers(3, 9))
    return _drawn(rng, count, list(pairwise(range(count))))


def _fork_join(rng: np.random.Generator) -> Graph:
    width = int(rng.integers(3, 21))
    inner = range(1, width + 1)
    return _drawn(rng, width + 2, [(0, n) for n in inner] + [(n, width + 1) for n in inner])


def _layered(rng: np.random.Generator) -> Graph:
    edges: list[tuple[int, int]] = []
    above, count = range(0), 0
    for _ in range(int(rng.integers(3, 7))):
        layer = range(count, count + int(rng.integers(2, 9)))
        for n in layer if above else ():
            few = min(int(rng.integers(1, 4)), len(above))
            edges += [(p, n) for p in sorted(rng.choice(above, few, replace=False).tolist())]
        above, count = layer, layer.stop
    return _drawn(rng, count, edges)


def _drawn(rng: np.random.Generator, count: int, edges: Sequence[tuple[int, int]]) -> Graph:
    return Graph(shares=tuple(rng.lognormal(0.0, SPREAD, count).tolist()), edges=tuple(edges))


Draw = Callable[[np.random.Generator], Graph]
DRAWN: tuple[Draw, ...] = (_chain, _fork_join, _layered)


@cache
def _real(folder: Path) -> tuple[Draw, ...]:
    return tuple(_read_graph(folder / f"{name}.xml") for name in REAL)


def _read_graph(path: Path) -> Draw:
    if not path.exists():
        raise InputError(str(path), "is absent; the scenarios of workflows take shapes from it")
    flow = read_workflow(path).job
    number = {task.id: n for n, task in enumerate(flow.tasks)}
    shape = Graph(
        shares=tuple(task.work for task in flow.tasks),
        edges=tuple((number[edge.parent], number[edge.child]) for edge in flow.edges),
    )
    return lambda _: shape


def _flow(
    logged: LoggedJob, shape: Graph, malleable: bool, rng: np.random.Generator
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
