"""Moldable jobs that arrive over time: the families of the bi-criteria paper as a Poisson stream.

Notes
-----
Jobs are those of `moldable_instances`, of weight 1; a table offers about 45 counts of processors by
geometric steps in place of all. Gaps between submissions are exponential, with
the mean at which the jobs' work on one processor each offers the load: load * m processors would be
busy if every job ran sequentially. The paper has no on-line experiment; this set-up is ours.

A *request* is what a user asks a rigid scheduler for: the widest allotment whose efficiency
p(1) / (k p(k)) is at least a given one.
"""

from __future__ import annotations

import numpy as np

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.speedup import LADDER, TableSpeedup, allotments
from coalloc.model.values import replace
from coalloc.simulation.reproduce.moldable_instances import FAMILIES, moldable_instance
from coalloc.simulation.workload import Workload


def moldable_stream(
    family: str, jobs: int, procs: int, load: float, seed: int
) -> tuple[Workload, Platform]:
    """Draw a stream and the cluster for it.

    `family`: one of `FAMILIES`.
    `load`: offered load, above 0.
    """
    if not load > 0.0:
        raise ValueError(f"a load of {load:g} is not above 0")
    snapshot = moldable_instance(family, jobs, procs, seed)
    drawn = [job for job in snapshot.queue if isinstance(job, MoldableJob)]
    rng = np.random.default_rng([FAMILIES.index(family), jobs, procs, seed, round(1e6 * load)])
    mean = float(np.mean([job.speedup.time(1) for job in drawn]))
    submitted = np.cumsum(rng.exponential(mean / (load * procs), jobs)).tolist()
    logged = tuple(
        _logged(number, replace(_thinned(job), weight=1.0, submitted=time, earliest=time))
        for number, (job, time) in enumerate(zip(drawn, submitted, strict=True), 1)
    )
    name = f"{family}@{load:g}"
    return Workload(name=name, jobs=logged), Platform(name=name, clusters=snapshot.clusters)


def _thinned(job: MoldableJob) -> MoldableJob:
    if not isinstance(job.speedup, TableSpeedup):
        return job
    times = dict(zip(job.speedup.procs, job.speedup.times, strict=True))
    steps = np.geomspace(job.min_procs, job.max_procs, LADDER).round().astype(int)
    counts = sorted(set(steps.tolist()) & times.keys())
    table = TableSpeedup(procs=tuple(counts), times=tuple(times[n] for n in counts))
    return replace(job, speedup=table)


def _logged(number: int, job: MoldableJob) -> LoggedJob:
    alone = _rigid(job, 1)
    return LoggedJob(
        job=alone,
        run_s=alone.base_time,
        killed=False,
        number=number,
        line=number,
        moldable=job,
    )


def _rigid(job: MoldableJob, procs: int) -> RigidJob:
    return RigidJob(
        id=job.id,
        weight=job.weight,
        submitted=job.submitted,
        earliest=job.earliest,
        procs=procs,
        base_time=job.speedup.time(procs),
    )


def requested(workload: Workload, efficiency: float) -> Workload:
    """The same jobs, each as rigid as its user asks: the widest of this efficiency at least.

    An efficiency above 1 asks for the fewest processes.
    """
    return replace(workload, jobs=tuple(_requested(logged, efficiency) for logged in workload.jobs))


def _requested(logged: LoggedJob, efficiency: float) -> LoggedJob:
    job = logged.moldable
    if job is None:
        return logged
    modes = allotments(job.speedup, job.min_procs, job.max_procs)
    least = min(procs * seconds for procs, seconds in modes)
    wide = [n for n, seconds in modes if least >= efficiency * n * seconds * (1.0 - 1e-9)]
    procs = max(wide, default=job.min_procs)
    rigid = _rigid(job, procs)
    return replace(logged, job=rigid, run_s=rigid.base_time, moldable=None)


def shortest_times(workload: Workload) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Each job's time on its fastest allotment, seconds: what a stretch is measured by."""
    times = [
        logged.job.base_time
        if (job := logged.moldable) is None
        else min(seconds for _, seconds in allotments(job.speedup, job.min_procs, job.max_procs))
        for logged in workload.jobs
    ]
    return np.array(times, dtype=np.float64)
