"""Clusters that will not take a job: it goes elsewhere, or is held with their reasons.

A refusal that lasts (no association, a partition or a QOS that is forbidden) is not tried again.
One that may be owed to the moment as well (over a limit of accounts) counts as lasting when it has
been given `TRIES` times. `release` lets a job try every cluster again.
"""

from __future__ import annotations

from dataclasses import replace

from coalloc.core.admission import never_fits
from coalloc.core.effects import Wake
from coalloc.core.records import JobRecord, JobState
from coalloc.core.state import State
from coalloc.model.refusals import LASTING, OVER_LIMIT

TRIES = 3
NOT_ACCEPTED = "not_accepted"
"""Why a job is held: no cluster takes it."""


def bar(
    state: State, record: JobRecord, now: float, cluster: str, reason: str, detail: str
) -> bool:
    """Take in a refusal of a part; whether it lasts, and was seen to here.

    Tasks, pieces and jobs that were handed over are left to their back-off.
    """
    lasts = reason in LASTING or (reason == OVER_LIMIT and record.refusals + 1 >= TRIES)
    if not lasts or record.flow or record.foreign:
        return False
    barred = {**record.barred, cluster: detail or reason}
    allowed = record.job.clusters
    names = state.clusters if allowed is None else allowed
    left = tuple(name for name in names if name not in barred and name in state.clusters)
    lacking = never_fits(state, replace(record.job, clusters=left)) if left else ""
    told = "; ".join(f"{name}: {why}" for name, why in barred.items())
    record = replace(
        record,
        refusals=0,
        not_before=now,
        parts=(),
        link_gbps={},
        deadline=None,
        started=None,
        queued=False,
        arranged=False,
        late=(),
        behind="",
        barred=barred,
    )
    if left and not lacking:
        detail = f"{cluster}: {detail or reason}"
        state.put(replace(record, state=JobState.PENDING, reason="backing_off", detail=detail))
        state.record(now, "job_requeued", record.id, detail=detail, pause_s=0.0)
        state.note("cluster_barred", level="warning", job=record.id, cluster=cluster, why=detail)
        state.backing_off.add(record.id)
        state.out.append(Wake(at=now))
        return True
    why = f"{told}; without {', '.join(barred)} it {lacking}" if lacking else told
    state.put(replace(record, state=JobState.HELD, reason=NOT_ACCEPTED, detail=why))
    state.record(now, "job_held", record.id, why=why)
    state.note("job_held", level="warning", job=record.id, why=why)
    return True
