"""Notices of events to operators, in words; pure functions of what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.records import JobRecord, JobState
from coalloc.daemon.monitoring.figures import Survey
from coalloc.model.event_kinds import EventKind
from coalloc.model.settings import NotifiedEvent, NotifyConfig

GOOD_ENDS = frozenset({JobState.COMPLETED, JobState.CANCELLED})
ENOUGH_AGAIN = 1.1
"""The disk is no longer low with so many times the limit, so that it is told once."""


class Notice(Struct, frozen=True, kw_only=True):
    """One event that is told."""

    event: str
    time: float
    """Seconds since 1970."""
    text: str
    """One line."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs."""
    to: tuple[str, ...] = ()
    """Addresses of a user's mail; empty: it is for operators."""


def job_notice(
    event: AppendEvent, record: JobRecord | None, wanted: tuple[NotifiedEvent, ...]
) -> Notice | None:
    """The notice of a job's end; None: it is not wanted, or a task's or a piece's."""
    if event.kind is not EventKind.JOB_ENDED or record is None or record.flow:
        return None
    is_failure = record.state not in GOOD_ENDS
    kind: NotifiedEvent = "job_failed" if is_failure and "job_failed" in wanted else "job_ended"
    if kind not in wanted:
        return None
    return notice_of(record, event.time, kind)


def notice_of(
    record: JobRecord, time: float, event: str, what: str = "", to: tuple[str, ...] = ()
) -> Notice:
    """The notice of what has happened to a job; where that is not said, of its end."""
    code = "" if record.exit_code is None else f", exit code {record.exit_code}"
    why = f": {record.detail}" if record.detail else ""
    what = what or f"{record.state}{code}{why}"
    return Notice(
        event=event,
        time=time,
        to=to,
        text=f"job {record.id} ({record.name}) of {record.user}: {what}",
        fields={
            "job": record.id,
            "name": record.name,
            "user": record.user,
            "state": str(record.state),
            "exit_code": record.exit_code,
            "detail": record.detail,
            "clusters": list(record.clusters),
            "submitted": record.submitted,
            "started": record.started,
            "ended": record.ended,
        },
    )


class Watch:
    """Tells from one look to the next which clusters were lost, which returned, and a full disk."""

    def __init__(self) -> None:
        self._down_since: dict[str, float] = {}
        self._lost: set[str] = set()
        self._is_low = False

    def changes(self, found: Survey, config: NotifyConfig) -> Iterator[Notice]:
        """Changes since the look before; a cluster never seen counts from the first look."""
        for name in (self._down_since.keys() | self._lost) - found.clusters.keys():
            self._down_since.pop(name, None)
            self._lost.discard(name)
        for name, cluster in found.clusters.items():
            if cluster.up:
                self._down_since.pop(name, None)
                if name in self._lost:
                    self._lost.discard(name)
                    yield _cluster(found, "cluster_returned", name, "is read again")
                continue
            since = self._down_since.setdefault(name, found.time)
            if name not in self._lost and found.time - since >= config.lost_after_s:
                self._lost.add(name)
                what = f"could not be read for {found.time - since:.0f} s"
                why = f": {cluster.why}" if cluster.why else ""
                yield _cluster(found, "cluster_lost", name, f"{what}{why}")
        if found.disk is not None:
            yield from self._disk(found, found.disk[1], config.disk_low_mb << 20)

    def _disk(self, found: Survey, free: int, limit: int) -> Iterator[Notice]:
        if free >= limit * ENOUGH_AGAIN:
            self._is_low = False
        elif free < limit and not self._is_low:
            self._is_low = True
            yield Notice(
                event="disk_low",
                time=found.time,
                text=f"{free >> 20} MiB free on the disk of the store, fewer than {limit >> 20}",
                fields={"free_bytes": free, "limit_bytes": limit},
            )


def _cluster(found: Survey, kind: NotifiedEvent, name: str, text: str) -> Notice:
    fields = {"cluster": name, "detail": text}
    return Notice(event=kind, time=found.time, text=f"cluster {name} {text}", fields=fields)
