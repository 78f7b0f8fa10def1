"""Jobs as their events tell: what keeps them right between two answers of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coalloc.model.values import replace
from coalloc.wire.answers import Event
from coalloc.wire.job_rows import QueueRow

ENDED = frozenset({"completed", "failed", "cancelled", "timeout", "lost"})
ON_NODES = frozenset({"preparing", "starting", "running"})


def row_after(row: QueueRow | None, event: Event) -> QueueRow | None:
    """A job after one of its events; None: nothing is known of it.

    The first events of a job may be older than all that are kept.
    """
    change = CHANGES.get(event.kind)
    if change is None or not event.job:
        return row
    if row is None:
        if event.kind not in BEGINNINGS:
            return None
        row = QueueRow(
            id=event.job, name="", user="", state="pending", procs=0, submitted=event.time
        )
    return change(row, event)


def _submitted(row: QueueRow, event: Event) -> QueueRow:
    fields = event.fields
    return replace(
        row,
        name=row.name or _text(fields, "name"),
        user=row.user or _text(fields, "user"),
        submitted=event.time,
        origin=_text(fields, "cluster"),
        foreign=_text(fields, "job_there"),
    )


def _placed(row: QueueRow, event: Event) -> QueueRow:
    nodes, parts = event.fields.get("nodes"), event.fields.get("parts")
    known = dict(nodes) if isinstance(nodes, dict) else {}
    return replace(
        row,
        state="preparing",
        reason="",
        detail="",
        start_estimate=None,
        nodes=known,
        clusters=tuple(parts) if isinstance(parts, list) else (),
        procs=sum(known.values()) or row.procs,
    )


def _started(row: QueueRow, event: Event) -> QueueRow:
    skew = event.fields.get("skew_ms")
    skew_ms = float(skew) if isinstance(skew, int | float) else None
    return replace(row, state="running", started=row.started or event.time, skew_ms=skew_ms)


def _requeued(row: QueueRow, event: Event) -> QueueRow:
    detail = _text(event.fields, "detail")
    return replace(
        row, state="pending", started=None, nodes={}, clusters=(), reason="", detail=detail
    )


def _ended(row: QueueRow, event: Event) -> QueueRow:
    code = event.fields.get("exit_code")
    return replace(
        row,
        state=_text(event.fields, "state") or "completed",
        ended=event.time,
        exit_code=code if isinstance(code, int) else None,
        reason="",
        detail=_text(event.fields, "detail"),
        start_estimate=None,
    )


def _held(row: QueueRow, event: Event) -> QueueRow:
    return replace(row, state="held", reason="held")


def _released(row: QueueRow, event: Event) -> QueueRow:
    return replace(row, state="pending", reason="")


def _cancelling(row: QueueRow, event: Event) -> QueueRow:
    reason = _text(event.fields, "reason")
    detail = f"being ended: cancelled by {_text(event.fields, 'user')}"
    detail += f": {reason}" if reason else ""
    return replace(row, reason="cancelling", detail=detail)


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


CHANGES: Mapping[str, Callable[[QueueRow, Event], QueueRow]] = {
    "job_submitted": _submitted,
    "job_handed_over": _submitted,
    "job_placed": _placed,
    "job_started": _started,
    "job_requeued": _requeued,
    "job_moved": _requeued,
    "task_tried_again": _requeued,
    "piece_tried_again": _requeued,
    "job_held": _held,
    "job_released": _released,
    "job_cancelling": _cancelling,
    "job_ended": _ended,
}
BEGINNINGS = frozenset({"job_submitted", "job_handed_over", "job_placed"})
"""Events that say enough of a job to begin with."""
