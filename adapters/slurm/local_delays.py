"""By how much local jobs wait longer since nodes are kept for us.

Notes
-----
Counted from one reading to the next. With the nodes that are idle and those that are kept for us,
some of the local jobs that wait could run, taken in the order of their submission; those of them
that the idle nodes alone would not take wait for us, and the time between the readings is added
to their delay. It is an estimate from above: another rule of Slurm's may keep them too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

from coalloc.adapters.slurm.records import QueueEntry

WINDOW_S = 3600.0
LONGEST_GAP_S = 60.0
"""Between two readings; of a longer time it is not known who has waited."""
STARTABLE = frozenset({"None", "Priority", "Resources", "ReqNodeNotAvail", "Reserved"})
"""Reasons of a job that only nodes are missing to."""


@dataclass(slots=True)
class _Wait:
    submitted: float
    delay_s: float = 0.0


class Delays(Struct, frozen=True, kw_only=True):
    """Delays of the local jobs of the last hour.

    Attributes
    ----------
    jobs, delayed : int
        That waited, and that waited for us.
    mean_s, max_s : float
        Over all that waited.
    ratio : float
        Part of their waiting that is owed to us, 0..1.
    worst : str
        Of those that still wait, the one that we have delayed most; empty: none.
    worst_s : float
    """

    jobs: int = 0
    delayed: int = 0
    mean_s: float = 0.0
    max_s: float = 0.0
    ratio: float = 0.0
    worst: str = ""
    worst_s: float = 0.0


class LocalDelays:
    """Watches the local queue of one cluster."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Wait] = {}
        self._over: deque[tuple[float, float, float]] = deque()
        self._looked = 0.0

    def take(self, now: float, waiting: Iterable[QueueEntry], idle: int, kept: int) -> None:
        """Count the time since the last look.

        Parameters
        ----------
        waiting : iterable of QueueEntry
            Local jobs that wait, and could run on nodes that are kept for us.
        idle, kept : int
            Nodes that anybody may have, and nodes that only we may have or do have.
        """
        passed = min(max(0.0, now - self._looked), LONGEST_GAP_S) if self._looked else 0.0
        self._looked = now
        jobs = {entry.id: entry for entry in waiting}
        for gone in self._waiting.keys() - jobs.keys():
            wait = self._waiting.pop(gone)
            self._over.append((now, now - wait.submitted, wait.delay_s))
        while self._over and self._over[0][0] < now - WINDOW_S:
            self._over.popleft()
        free, room = idle, idle + kept
        for entry in sorted(jobs.values(), key=lambda e: (e.submitted or now, e.id)):
            wait = self._waiting.setdefault(entry.id, _Wait(submitted=entry.submitted or now))
            if entry.reason not in STARTABLE or entry.node_count > room:
                continue
            room -= entry.node_count
            if entry.node_count <= free:
                free -= entry.node_count
            else:
                wait.delay_s += passed

    def sum(self, now: float) -> Delays:
        """Sum of what was counted in the last hour."""
        rows = [(wait, delay) for _, wait, delay in self._over]
        rows += [(now - wait.submitted, wait.delay_s) for wait in self._waiting.values()]
        if not rows:
            return Delays()
        delays = [delay for _, delay in rows]
        waited = sum(max(wait, delay) for wait, delay in rows)
        worst = max(self._waiting, key=lambda job: self._waiting[job].delay_s, default="")
        return Delays(
            jobs=len(rows),
            delayed=sum(delay > 0.0 for delay in delays),
            mean_s=sum(delays) / len(delays),
            max_s=max(delays),
            ratio=sum(delays) / waited if waited else 0.0,
            worst=worst,
            worst_s=self._waiting[worst].delay_s if worst else 0.0,
        )
