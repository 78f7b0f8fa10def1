"""Jobs of a log made moldable: logs tell one number of processors and one time of each job.

Notes
-----
A job of a log that takes t on n processors becomes moldable on 1 to as many processors as the
platform has, with a speed-up S by which it takes t on n:

- ``amdahl:F``: S(k) = 1 / (1 - F + F / k); ``amdahl:LOW,HIGH``: F ~ U(LOW, HIGH) for each job;
- ``downey:A,SIGMA``: Downey's model; ``downey``: sigma ~ U(0, 2) and log2(A / n) ~ U(-1, 1), so
  that what the user asked for is within a factor of two of the average parallelism A.

How much longer the estimate is than the real time stays the same on every number of processors.

Three numbers are drawn for every job, used or not: so a job's do not depend on the others, nor on
the share of jobs that are made moldable. These distributions are our assumption.

References
----------
A. Downey, "A model for speedup of parallel programs", UCB/CSD-97-933, 1997.
W. Cirne, F. Berman, "A model for moldable supercomputer jobs", IPDPS 2001.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.errors import InputError
from coalloc.model.jobs import MoldableJob
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, Speedup
from coalloc.model.values import replace
from coalloc.simulation.workload import Workload

SPEC = "--moldable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rule by which jobs become moldable."""

    model: str
    """``amdahl`` or ``downey``."""
    values: tuple[float, ...]
    """F, or LOW and HIGH; A and SIGMA, or nothing where they are drawn."""
    share: float = 1.0
    """Of the jobs, 0..1."""


def read_shape(text: str, share: float = 1.0) -> Shape:
    """Read ``amdahl:0.95``, ``amdahl:0.8,1``, ``downey:16,0.5`` or ``downey``.

    Raises `InputError`.
    """
    model, colon, rest = text.partition(":")
    if model not in ("amdahl", "downey"):
        raise InputError(SPEC, f"{model!r} is not one of amdahl, downey")
    try:
        values = tuple(float(part) for part in rest.split(",")) if colon else ()
    except ValueError:
        raise InputError(SPEC, f"{rest!r} is not a list of numbers") from None
    if not 0.0 <= share <= 1.0:
        raise InputError(f"{SPEC}-share", f"{share:g} is outside 0..1")
    if model == "amdahl":
        if len(values) not in (1, 2) or not all(0.0 <= v <= 1.0 for v in values):
            raise InputError(SPEC, f"{text!r} is not amdahl:F or amdahl:LOW,HIGH within 0..1")
        if values[0] > values[-1]:
            raise InputError(SPEC, f"{values[0]:g} is above {values[-1]:g}")
    elif values and not (len(values) == 2 and 1.0 <= values[0] < inf and 0.0 <= values[1] < inf):
        raise InputError(SPEC, f"{text!r} is not downey:A,SIGMA with A >= 1 and SIGMA >= 0")
    return Shape(model=model, values=values, share=share)


def make_moldable(workload: Workload, shape: Shape, slots: int, seed: int = 0) -> Workload:
    """Make jobs of a workload moldable.

    `slots`: of the platform: the most processes of a job, unless the log has more.
    """
    rng = np.random.default_rng([seed, 0x301D])
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
        id=job.id,
        weight=job.weight,
        submitted=job.submitted,
        earliest=job.earliest,
        sigma=job.sigma,
        clusters=job.clusters,
        memory_mb_per_proc=job.memory_mb_per_proc,
        shape=job.shape,
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
