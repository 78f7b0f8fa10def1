"""The load that arrivals offer, remembered from round to round in the policy's notes.

Notes
-----
Work (slots times seconds of the smallest allotment, on the strongest nodes a job may use) and gaps
between submissions are summed with weights that fall by a factor of 1 - 1/50 with each arrival.
Their ratio by the slots that exist is the offered load. Two imagined arrivals at load .5 stand in
for what is not known yet. A gap that is longer than usual counts before the next arrival ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

KEPT = 1.0 - 1.0 / 50.0
"""Weight of what is known, when one more arrives."""
IMAGINED, IMAGINED_LOAD = 2.0, 0.5
"""Arrivals that stand in for what is not known, and the load they offer."""

KEYS = ("work", "gap", "count", "last", "seen")


@dataclass(slots=True, kw_only=True)
class Arrivals:
    """Statistics of the jobs that have arrived so far."""

    work: float = 0.0
    """Weighted sum, slot-seconds."""
    gap: float = 0.0
    """Weighted sum of the time between two submissions, seconds."""
    count: float = 0.0
    """Sum of the weights."""
    last: float | None = None
    """The latest submission, on the axis of the daemon's snapshots, seconds."""
    seen: float = -inf
    """Time of the latest snapshot: what was submitted later is new."""

    @classmethod
    def read(cls, notes: Mapping[str, Any], now: float) -> Arrivals:
        """Read notes; those that are no notes of ours, or of a later time, are as none."""
        values: dict[str, Any] = {key: notes.get(key) for key in KEYS}
        known = all(isinstance(v, int | float) and isfinite(v) for v in values.values())
        if not known or values["seen"] > now or values["count"] < 0.0:
            return cls()
        return cls(**values)

    def write(self) -> dict[str, float]:
        """The notes to read in the next round."""
        if self.last is None:
            return {}
        return {key: getattr(self, key) for key in KEYS}

    def take(self, jobs: Iterable[tuple[float, float]], now: float) -> None:
        """Count the jobs that are new.

        `jobs` (iterable of (float, float)): when each was submitted, and its work.
        `now`: time of the snapshot they wait in.
        """
        for submitted, work in sorted(job for job in jobs if job[0] > self.seen):
            if self.last is not None:  # the first one ends no gap, and tells no rate
                self.work = KEPT * self.work + work
                self.gap = KEPT * self.gap + max(submitted - self.last, 0.0)
                self.count = KEPT * self.count + 1.0
            self.last = submitted if self.last is None else max(submitted, self.last)
        self.seen = now

    def load(self, slots: int) -> float:
        """Offered load: work by what so many slots could do; above 1 is more than they can."""
        if self.last is None or slots <= 0 or self.count <= 0.0 or self.work <= 0.0:
            return IMAGINED_LOAD
        mean = self.work / self.count
        since = self.seen - self.last
        gap = self.gap + (since if since > self.gap / self.count else 0.0)
        offered = self.work + IMAGINED * IMAGINED_LOAD * mean
        return offered / (slots * gap + IMAGINED * mean)
