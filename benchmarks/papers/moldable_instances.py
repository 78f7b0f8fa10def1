"""The instances of the bi-criteria paper (section 4.1), with its gaps filled, and a stream of them.

Notes
-----
The text contradicts itself on X, and leaves open how it is drawn and what Cirne and Berman's
parameters are. Here:

- p(k + 1) = p(k) (X + k) / (1 + k) for k processors, so X = 0 is a linear speed-up. Highly parallel
  jobs are centred at X = .1, weakly parallel ones at .9 (the text has them the other way round,
  against every sentence of its section 4.2); standard deviation .2, redrawn outside 0..1, for every
  step anew, or once per job.
- *mixed*: 70 % small jobs, N(1, .5) and weakly parallel; the others N(10, 5) and highly parallel;
  redrawn while not positive.
- *cirne*: Downey's speed-up, log2 A ~ U(0, log2 m), sigma ~ U(0, 2), our assumption.
- Sequential times elsewhere ~ U(1, 10); weights ~ U(1, 10).

In the *stream* the same jobs, of weight 1, arrive over time; a table offers about 45 counts of
processors by geometric steps in place of all. Gaps between submissions are exponential, with the
mean at which the jobs' work on one processor each offers the load: load * m processors would be
busy if every job ran sequentially. The paper has no on-line experiment; this set-up is ours.

A *request* is what a user asks a rigid scheduler for: the widest allotment whose efficiency
p(1) / (k p(k)) is at least a given one.

References
----------
Dutot, Eyraud-Dubois, Mounie, Trystram, "Bi-criteria algorithm for scheduling jobs on cluster
platforms", SPAA 2004.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import JobFields, MoldableJob, RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import LADDER, DowneySpeedup, Speedup, TableSpeedup, allotments
from coalloc.model.values import fields_of, replace
from coalloc.policies.array_types import Floats
from coalloc.simulation.workload import Workload

FAMILIES = ("weakly", "highly", "mixed", "cirne")
WEAK, HIGH = 0.9, 0.1


def moldable_instance(family: str, jobs: int, procs: int, seed: int) -> Snapshot:
    """Draw one instance of a family: so many moldable jobs, and one cluster of equal nodes.

    Above 1,000 processors, tables list a ladder of counts instead of all.
    """
    if family not in FAMILIES:
        raise ValueError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    rng = np.random.default_rng([FAMILIES.index(family), jobs, procs, seed])
    queue = tuple(
        MoldableJob(
            id=str(number + 1),
            weight=float(rng.uniform(1.0, 10.0)),
            speedup=_speedup(family, procs, rng),
            min_procs=1,
            max_procs=procs,
        )
        for number in range(jobs)
    )
    nodes = tuple(Node(name=f"n{number + 1}") for number in range(procs))
    return Snapshot(clusters=(Cluster(name="alpha", nodes=nodes),), queue=queue)


def _speedup(family: str, procs: int, rng: np.random.Generator) -> Speedup:
    if family == "cirne":
        return DowneySpeedup(
            time_1=float(rng.uniform(1.0, 10.0)),
            parallelism=float(2.0 ** rng.uniform(0.0, np.log2(procs))),
            variance=float(rng.uniform(0.0, 2.0)),
        )
    if family == "mixed":
        is_small = bool(rng.random() < 0.7)
        first = _drawn(rng, 1.0, 0.5, 1) if is_small else _drawn(rng, 10.0, 5.0, 1)
        return _table(float(first[0]), WEAK if is_small else HIGH, procs, rng)
    first = rng.uniform(1.0, 10.0, 1)
    return _table(float(first[0]), WEAK if family == "weakly" else HIGH, procs, rng)


def _drawn(
    rng: np.random.Generator, mean: float, deviation: float, size: int, top: float = np.inf
) -> Floats:
    """Normal numbers in 0..top, those outside redrawn; 0 itself is outside where top is open."""
    out = rng.normal(mean, deviation, size)
    while (bad := (out < 0.0) | (out > top) | ((out == 0.0) & np.isinf(top))).any():
        out[bad] = rng.normal(mean, deviation, int(bad.sum()))
    return out


def _table(first: float, centre: float, procs: int, rng: np.random.Generator) -> TableSpeedup:
    steps = np.arange(1.0, procs)
    x: Any = _drawn(rng, centre, 0.2, procs - 1, top=1.0)
    times = first * np.concatenate(([1.0], np.cumprod((x + steps) / (1.0 + steps))))
    counts = np.arange(1, procs + 1)
    if procs > 1000:
        counts = np.unique(np.geomspace(1, procs, LADDER).round().astype(int))
    return TableSpeedup(procs=tuple(counts.tolist()), times=tuple(times[counts - 1].tolist()))


def moldable_stream(
    family: str, jobs: int, procs: int, load: float, seed: int
) -> tuple[Workload, Platform]:
    """Draw a stream of this offered load, and the cluster for it."""
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
    return RigidJob(**fields_of(job, JobFields), procs=procs, base_time=job.speedup.time(procs))


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
