"""The outcome of a replay: when each job ran, on which slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalloc.core.base.start_intervals import StartError
from coalloc.simulation.workload import Floats, Ints, SlotMap, Workload


class Outcome(IntEnum):
    """End of a job of a replay."""

    COMPLETED = 0
    KILLED = 1
    """Ran until its estimate, where the log has it running longer."""
    REFUSED = 2
    """Can never run on this platform."""
    WAITING = 3
    """Still waiting when nothing could happen any more."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A finished replay."""

    workload: Workload
    """A task of a workflow is a job of its own, see `flow_runs`."""
    slot_map: SlotMap
    policy: str
    path: str
    """``stream`` or ``general``."""
    start: Floats
    """Seconds on the workload's axis; NaN where the job did not run."""
    end: Floats
    outcome: NDArray[np.int8]
    """`Outcome` of each job."""
    first: Ints
    """``first[i]:first[i + 1]`` are the ranges of slots of job i."""
    low: Ints
    """Ranges of slots, `high` exclusive; none crosses a cluster."""
    high: Ints
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Why it did not run."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    """Rounds, seconds of computing."""
    start_errors: Sequence[StartError] = ()
    """Of the expected starts that jobs were given, in the order of starts (general path only)."""

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Mask of the jobs that ran."""
        return self.outcome <= Outcome.KILLED

    @cached_property
    def procs(self) -> Ints:
        """Processes that each job ran on; those it asked for where it did not run."""
        counts = np.bincount(
            self.range_jobs(), weights=self.high - self.low, minlength=len(self.start)
        ).astype(np.int64)
        return np.where(self.ran, counts, self.workload.procs)

    def range_jobs(self) -> Ints:
        """Return the job of every range."""
        return np.repeat(np.arange(len(self.start), dtype=np.int64), np.diff(self.first))

    def range_clusters(self) -> Ints:
        """Return the cluster of every range."""
        return np.searchsorted(self.slot_map.cluster_first, self.low, side="right") - 1

    def cluster_counts(self) -> tuple[Ints, Ints, Ints]:
        """Job, cluster and number of processes, by rising job, then cluster."""
        clusters = len(self.slot_map.cluster_first) - 1
        keys = self.range_jobs() * clusters + self.range_clusters()
        unique, inverse = np.unique(keys, return_inverse=True)
        counts = np.zeros(len(unique), np.int64)
        np.add.at(counts, inverse, self.high - self.low)
        return unique // clusters, unique % clusters, counts

    def clusters_used(self) -> Ints:
        """Number of clusters that each job uses."""
        job, _, _ = self.cluster_counts()
        return np.bincount(job, minlength=len(self.start)).astype(np.int64)


def link_demands(trace: Trace) -> tuple[Ints, Ints, Floats]:
    """Load of every job on every link it uses: equation (4) of the cost model.

    Jobs, clusters, and Gbit/s above zero.
    """
    job, cluster, count = trace.cluster_counts()
    procs = trace.procs[job]
    inside = count.astype(np.float64)
    gbps = trace.workload.gbps[job] * inside * (procs - inside) / np.maximum(procs - 1, 1)
    loaded = gbps > 0.0
    return job[loaded], cluster[loaded], gbps[loaded]
