"""Time limits of jobs that have been placed: changed by a command, or in a batch system.

The executors carry a change out (`Limit`); Slurm may refuse it, which a report says. What people
change there is followed, and the other parts are told.
"""

from __future__ import annotations

from typing import Any

from coalloc.core.base.messages import LIMIT, Limit
from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.core.base.state import State
from coalloc.core.commands.admission import never_fits
from coalloc.core.jobs.eligibility import owner_of
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.sites.parts import PART_ENDED, PartReport
from coalloc.model.values import replace

BEGUN = frozenset({JobState.STARTING, JobState.RUNNING})
LONGEST_S = 10 * 365 * 86_400.0


def refusal(state: State, record: JobRecord, limit: object, *, operator: bool) -> str:
    """Reason why a placed job cannot be given this limit; empty where it can."""
    job, most = record.job, record.run_limit
    if record.flow or not isinstance(job, RigidJob | MoldableJob):
        return f"job {record.id} is {record.state}; its limit stays"
    if record.foreign:
        return f"job {record.id} is {record.origin}'s own job {record.foreign}; change it there"
    if record.pack:
        return f"job {record.id} was taken ahead with others of its array; its limit stays"
    if not isinstance(limit, int | float) or not 0.0 < limit <= LONGEST_S:
        return f"job {record.id} is {record.state}, and needs a time limit"
    if record.state in BEGUN and not operator and (most is None or limit > most):
        return f"job {record.id} is {record.state}; only an operator extends it"
    if not are_able(state, record):
        return f"the executor of {', '.join(record.clusters)} is older, and cannot change a limit"
    wanted = replace(job, time_limit=float(limit))
    return "" if operator else never_fits(state, wanted, owner_of(record))


def are_able(state: State, record: JobRecord) -> bool:
    """Whether every executor that has a part of a job knows the order."""
    return all(_is_able(state, cluster) for cluster in record.clusters)


def ordered(state: State, record: JobRecord, limit: float, now: float, user: str) -> None:
    """Have every part of a job run no longer than this."""
    _tell(state, record, limit)
    changes = f"time_limit={limit:g}"
    state.tell(now, EventKind.JOB_UPDATED, record.id, user=user, changes=changes)
    state.put(_with(record, limit))


def followed(
    state: State, record: JobRecord, part: PartRecord, report: PartReport, now: float
) -> JobRecord:
    """The job with the limit that a part has by the will of others than the daemon."""
    limit = report.time_limit
    if limit == part.time_limit or not isinstance(record.job, RigidJob | MoldableJob):
        return record
    parts = tuple(replace(p, time_limit=limit) if p is part else p for p in record.parts)
    record = replace(record, parts=parts)
    if limit is not None and limit != record.job.time_limit:
        is_its_own = bool(record.siblings) and len(parts) > 1
        if not report.limit_refused and not is_its_own:
            _tell(state, record, limit, but=part.cluster)
        record = record if is_its_own else _with(record, limit)
        fields: dict[str, Any] = {"cluster": part.cluster, "time_limit": limit}
        fields["refused"] = report.limit_refused
        state.tell(now, EventKind.JOB_LIMIT_CHANGED, record.id, **fields)
    state.put(record)
    return record


def _tell(state: State, record: JobRecord, limit: float, but: str = "") -> None:
    for part in record.parts:
        if part.cluster != but and part.state not in PART_ENDED and _is_able(state, part.cluster):
            before = record.run_limit
            order = Limit(
                job=record.id, attempt=record.attempt, time_limit=limit, instead_of=before
            )
            state.send(part.cluster, order)


def _is_able(state: State, cluster: str) -> bool:
    return LIMIT in (state.clusters[cluster].abilities or ())


def _with(record: JobRecord, limit: float) -> JobRecord:
    """The job with another limit; where its run time was taken from that, it is as long."""
    is_guess = record.sources.get("base_time") == "time_limit"
    job = replace(record.job, time_limit=limit)
    return replace(record, job=job, planned=limit if is_guess else record.planned)
