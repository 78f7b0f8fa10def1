"""Holds of claims in their batch system, by a job's user or by an administrator.

A claim that waits alone stays there, and goes on when it is released there. Cancelled claims are
dealt with as any end of a part is (`core.starts.requeue`, `core.starts.siblings`).
"""

from __future__ import annotations

from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.commands.admission import has_other
from coalloc.core.jobs.ends import abort_parts
from coalloc.core.starts import siblings
from coalloc.core.starts.negotiation import WILL, words_of_hold
from coalloc.core.starts.requeue import give_back
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.parts import HELD_BY_ADMIN, HELD_BY_OWNER, PartReport
from coalloc.model.values import replace


def see_hold(state: State, record: JobRecord, cluster: str, report: PartReport, now: float) -> None:
    """Obey the hold of a claim, unless it just waits there until released.

    Its user's holds the job, which waits nowhere else. An administrator's bars the cluster if
    another one may take the job. The parts of a job on several clusters would hold nodes for the
    one that is held: the job is held here.
    """
    if report.reason not in WILL or record.flow or record.foreign:
        return
    why, is_admins = words_of_hold(report.reason, cluster), report.reason == HELD_BY_ADMIN
    several = len(record.parts) > 1
    if record.siblings and several:
        for part in record.parts:
            if (part.cluster == cluster) is is_admins:
                record = siblings.drop(state, record, part, now, report.reason, why)
    elif is_admins and (several or has_other(state, record, cluster)):
        give_back(state, record, now, cluster, HELD_BY_ADMIN, why)
    elif several:
        abort_parts(state, record, why)
        state.put(replace(record.unplaced(), state=JobState.HELD, reason=HELD_BY_OWNER, detail=why))
        state.tell(now, EventKind.JOB_HELD, record.id, why=why)
