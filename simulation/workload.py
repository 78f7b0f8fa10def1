"""Workload of a replay: the jobs of a log on the slots of a platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.sacct_log import read_log
from coalloc.adapters.formats.swf_jobs import JobRule, LoggedJob, make_jobs
from coalloc.adapters.formats.workflow import is_workflow
from coalloc.model.errors import InputError
from coalloc.model.shape import ONE_SLOT
from coalloc.model.values import replace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _floats(of: Callable[[LoggedJob], float]) -> cached_property[Floats]:
    """An array of what each job of a workload has."""
    return cached_property(lambda workload: np.array(list(map(of, workload.jobs)), np.float64))


class Workload(Struct, frozen=True, kw_only=True, dict=True):
    """Jobs by rising submit time."""

    name: str
    jobs: tuple[LoggedJob, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What the rule for logs did."""
    adjusted: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the reader repaired, one line per log."""
    earlier: tuple[LoggedJob, ...] = ()
    """Jobs that ended before the first submission, by rising end: the history that a site's daemon
    would have."""

    @cached_property
    def is_rigid(self) -> bool:
        """Whether every job is rigid."""
        return all(logged.moldable is None and logged.flow is None for logged in self.jobs)

    @cached_property
    def needs_counting(self) -> bool:
        """Whether a job asks for more than slots."""
        jobs = (logged.job for logged in self.jobs)
        return any(job.memory_mb_per_proc or job.shape != ONE_SLOT for job in jobs)

    submit = _floats(lambda logged: logged.job.submitted)
    """Submit times, s."""
    estimate = _floats(lambda logged: logged.job.base_time)
    """Base times as planning sees them, s."""
    run = _floats(lambda logged: logged.run_s)
    """Real base times, s."""
    sigma = _floats(lambda logged: logged.job.sigma)
    """Weights of processing."""
    gbps = _floats(lambda logged: logged.job.proc_gbps)
    """Bandwidth of one process, Gbit/s."""

    @cached_property
    def procs(self) -> Ints:
        """Processes that the log names."""
        return np.array([logged.job.procs for logged in self.jobs], np.int64)


def read_workload(
    paths: Sequence[str | Path], rule: JobRule | None = None, limit: int | None = None
) -> Workload:
    """Read job logs; several are merged on one axis of time, each from its first submission.

    Logs are SWF or of ``sacct -P``, and may be packed. With a limit, the earliest jobs are kept.

    Raises `InputError`.
    """
    names, made, notes = [], [], []
    for path in paths:
        if is_workflow(path):
            what = "is a workflow: plan it with coalloc snapshot --workload and coalloc solve"
            raise InputError(str(path), what)
        log = read_log(path)
        try:
            made.append(make_jobs(log, rule))
        except InputError as error:
            raise InputError(f"{path}: {error.where}", error.what) from error
        names.append(Path(path).name.partition(".")[0])
        notes.append(f"{Path(path).name}: {log.summary.describe()}")
    left_out, adjusted = Counter[str](), Counter[str]()
    for part in made:
        left_out.update(part.left_out)
        adjusted.update(part.adjusted)
    jobs = made[0].jobs if len(made) == 1 else _merged(names, [part.jobs for part in made])
    if not jobs:
        raise InputError(", ".join(map(str, paths)), "has no job that can be replayed")
    return Workload(
        name="+".join(names),
        jobs=jobs[:limit],
        left_out=left_out,
        adjusted=adjusted,
        notes=tuple(notes),
    )


def piece_of(logged: Sequence[LoggedJob], first: int, jobs: int, name: str) -> Workload:
    """Some consecutive jobs of a log; times start at the first submission.

    What had ended in the log before is `earlier`, so that policies which predict run times know of
    it what a site's daemon would.
    """
    begin = logged[first].job.submitted
    ended = [one for one in logged[:first] if one.logged_end <= begin]
    return Workload(
        name=name,
        jobs=tuple(_moved(one, begin) for one in logged[first : first + jobs]),
        earlier=tuple(_moved(one, begin) for one in sorted(ended, key=lambda one: one.logged_end)),
    )


def _moved(logged: LoggedJob, begin: float) -> LoggedJob:
    """The job on an axis of time that begins there."""
    time = logged.job.submitted - begin
    return replace(logged, job=replace(logged.job, submitted=time, earliest=time))


def _merged(names: Sequence[str], logs: Sequence[tuple[LoggedJob, ...]]) -> tuple[LoggedJob, ...]:
    """Merge logs by submit time; ids get their log in front."""
    jobs = []
    for number, (name, log) in enumerate(zip(names, logs, strict=True), 1):
        of = name if names.count(name) == 1 else f"{name}-{number}"
        jobs += [
            replace(logged, job=replace(logged.job, id=f"{of}-{logged.job.id}")) for logged in log
        ]
    jobs.sort(key=lambda logged: logged.job.submitted)
    return tuple(jobs)


class SlotMap(Struct, frozen=True, kw_only=True, dict=True):
    """Every slot of a platform has a number: cluster by cluster, node by node."""

    platform: Platform
    cluster_first: Ints
    """First slot of each cluster, and the number of slots at the end."""
    node_first: Ints
    """First slot of each node, and the number of slots at the end."""
    node_names: tuple[str, ...]
    node_cluster: Ints

    @property
    def slots(self) -> int:
        """Slots of all clusters."""
        return int(self.cluster_first[-1])


def map_slots(platform: Platform) -> SlotMap:
    """Number the slots of a platform."""
    counts = [cluster.slots for cluster in platform.clusters]
    nodes = [node for cluster in platform.clusters for node in cluster.nodes]
    homes = [k for k, cluster in enumerate(platform.clusters) for _ in cluster.nodes]
    return SlotMap(
        platform=platform,
        cluster_first=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        node_first=np.concatenate(([0], np.cumsum([n.slots for n in nodes]))).astype(np.int64),
        node_names=tuple(node.name for node in nodes),
        node_cluster=np.array(homes, np.int64),
    )
