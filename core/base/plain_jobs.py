"""Jobs that are planned as they were submitted, and the kinds of them that are offered the same.

Most jobs of a long queue are plain: a snapshot takes them as they are, and asks clusters for their
offers once for all of a kind (`core.rounds.snapshots`).
"""

from __future__ import annotations

from collections.abc import Hashable

from coalloc.core.base.records import JobRecord, JobState
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.shape import ONE_SLOT

Kind = tuple[tuple[str, str, str], Hashable]


def kind_of(record: JobRecord) -> Kind:
    """User, program and name, and all else by which clusters offer plain jobs other things.

    Time limits are left out, by which some clusters go.
    """
    job = record.job
    widest = getattr(job, "procs", 0) or getattr(job, "max_procs", 0)
    whole = getattr(job, "one_cluster", False) or getattr(job, "proc_gbps", None) is None
    who = record.uid, record.gid, record.stream, bool(record.foreign)
    shape = None if job.shape is ONE_SLOT else job.shape
    nodes = record.batch, job.features, job.memory_mb_per_proc, shape
    asked = (*who, *nodes, job.time_limit is None, widest, whole)
    return (record.user, record.command, record.name), asked


def is_plain(record: JobRecord) -> bool:
    """Tell if a job is planned as it was submitted, unless clusters offer its kind less."""
    return not (
        record.needs
        or record.not_before
        or record.barred
        or record.late
        or record.finish_by is not None
        or record.is_staged
        or record.state is JobState.HELD
        or record.batch.reservation
        or record.job.clusters is not None
        or record.job.earliest < 0.0
        or not isinstance(record.job, RigidJob | MoldableJob)
    )
