"""Usage of users and projects: decayed for the shares, by day for the limits of a window.

A slot held for a second at time t counts as 2^(-(now - t) / h) processor-seconds now, h the
half-life. The ended jobs of a user in a project are one number, and the time for which it holds;
what runs is counted from its records. Both by the same integral, so that nothing jumps when a job
ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import NamedTuple

from coalloc.core.base.projects import DAY_S
from coalloc.core.base.records import JobRecord, PartRecord

ProjectUser = tuple[str, str]
"""Project and user."""


class Usage(NamedTuple):
    """Decayed usage, processor-seconds, and the time it was counted at."""

    proc_s: float
    at: float

    def now(self, now: float, half_life_s: float) -> float:
        """The same at a later time."""
        return self.proc_s * decay(now - self.at, half_life_s)


def decay(elapsed_s: float, half_life_s: float) -> float:
    """Share of usage that is left after so many seconds."""
    return float(2.0 ** (-max(elapsed_s, 0.0) / half_life_s))


def decayed_proc_s(procs: int, start: float, end: float, now: float, half_life_s: float) -> float:
    """Usage of processes that ran from `start` to `end`, as it counts at `now` >= `end`."""
    if end <= start:
        return 0.0
    mean_s = half_life_s / log(2.0)
    return procs * mean_s * (decay(now - end, half_life_s) - decay(now - start, half_life_s))


def added(usage: Usage | None, proc_s: float, now: float, half_life_s: float) -> Usage:
    """Usage with some more that counts at `now`."""
    before = 0.0 if usage is None else usage.now(now, half_life_s)
    return Usage(before + proc_s, now)


def by_day(start: float, end: float) -> Iterator[tuple[int, float]]:
    """Days of UTC since 1970 that an interval touches, with the seconds in each."""
    if end <= start:
        return
    day = int(start // DAY_S)
    while day * DAY_S < end:
        seconds = min(end, (day + 1) * DAY_S) - max(start, day * DAY_S)
        if seconds > 0.0:
            yield day, seconds
        day += 1


def spans(record: JobRecord, now: float) -> Iterator[tuple[PartRecord, int, float, float]]:
    """The parts of a job that have run until now, each with its slots, start and end."""
    for part in record.parts:
        start = part.started if part.started is not None else record.started
        end = part.ended if part.ended is not None else record.ended
        end = now if end is None else end
        if start is not None and end > start:
            yield part, sum(part.held.values()), start, end
