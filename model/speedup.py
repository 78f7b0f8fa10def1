"""Speed-up models: run time of a moldable job by its number of processes.

Notes
-----
Every model answers ``time(n)``, seconds on n dedicated full-speed nodes. A table gives
only the counts it lists; Amdahl and Downey are closed forms.

References
----------
G. Amdahl, AFIPS 1967. A. Downey, "A model for speedup of parallel programs",
UCB/CSD-97-933, 1997 (A: average parallelism, sigma: its variance).
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from coalloc.model.ranges import Parallelism, Procs, Share, Span, Variance

LADDER = 45
"""About how many allotments of a closed form are offered to a search."""


class SpeedupFields(
    Struct, frozen=True, kw_only=True, tag_field="model", forbid_unknown_fields=True
):
    """Base of the models: `model` tells them apart in JSON."""


class AmdahlSpeedup(
    SpeedupFields, frozen=True, kw_only=True, tag="amdahl", rename={"time_1": "time"}
):
    """t(n) = time * (1 - f + f / n)."""

    time_1: Span
    """Time on one process, s."""
    parallel_fraction: Share
    """Share that scales."""

    def time(self, procs: int) -> float:
        fraction = self.parallel_fraction
        return self.time_1 * (1.0 - fraction + fraction / procs)


class DowneySpeedup(
    SpeedupFields,
    frozen=True,
    kw_only=True,
    tag="downey",
    rename={"time_1": "time", "parallelism": "A", "variance": "sigma"},
):
    """Downey's two-parameter model."""

    time_1: Span
    """Time on one process, s."""
    parallelism: Parallelism
    """Average parallelism."""
    variance: Variance
    """Variance of parallelism (Downey's sigma)."""

    def speedup(self, procs: int) -> float:
        """S(n), equations (low variance, then high variance) of Downey 1997."""
        a, s, n = self.parallelism, self.variance, float(procs)
        if s <= 1.0:
            if n <= a:
                return a * n / (a + s * (n - 1.0) / 2.0)
            if n <= 2.0 * a - 1.0:
                return a * n / (s * (a - 0.5) + n * (1.0 - s / 2.0))
            return a
        if n <= a + a * s - s:
            return n * a * (s + 1.0) / (s * (n + a - 1.0) + a)
        return a

    def time(self, procs: int) -> float:
        return self.time_1 / self.speedup(procs)


class TableSpeedup(SpeedupFields, frozen=True, kw_only=True, tag="table"):
    """Measured times at some process counts; counts rise, times do not (see `repaired`).

    Only the listed counts are offered; between them `time` answers by the nearest smaller.
    """

    procs: Annotated[tuple[Procs, ...], Meta(min_length=1)]
    """Rising process counts."""
    times: Annotated[tuple[Span, ...], Meta(min_length=1)]
    """Their times, s."""

    def time(self, procs: int) -> float:
        """Seconds on `procs` processes; `procs` is at least the smallest count."""
        return self.times[max(bisect_right(self.procs, procs) - 1, 0)]


Speedup = AmdahlSpeedup | DowneySpeedup | TableSpeedup


def repaired(procs: tuple[int, ...], times: tuple[float, ...]) -> tuple[TableSpeedup, list[int]]:
    """Answer a count at which the time rises or the work falls by the nearest smaller one.

    Every count stays listed, and a repaired table is repaired no further: a count that is
    answered by a smaller one takes no part in later comparisons of work. Returns also the counts
    at which the time rose or the work fell.
    """
    answers, dropped = [times[0]], []
    best_time, best_work = times[0], times[0] * procs[0]
    for count, time in zip(procs[1:], times[1:], strict=True):
        if time < best_time and time * count >= best_work * (1.0 - 1e-9):
            best_time, best_work = time, time * count
        elif time != best_time:
            dropped.append(count)
        answers.append(best_time)
    return TableSpeedup(procs=procs, times=tuple(answers)), dropped


def allotments(speedup: Speedup, low: int, high: int) -> tuple[tuple[int, float], ...]:
    """Process counts worth offering, with their times, by rising count.

    Tables give exactly the counts they list inside `low`..`high`. Closed forms give a
    geometric ladder of about `LADDER` counts that contains both ends.
    """
    if isinstance(speedup, TableSpeedup):
        counts = [n for n in speedup.procs if low <= n <= high]
    elif high - low < LADDER:
        counts = list(range(low, high + 1))
    else:
        ratio = (high / low) ** (1.0 / (LADDER - 1))
        counts = sorted({round(low * ratio**step) for step in range(LADDER)} | {low, high})
    modes = [(n, speedup.time(n)) for n in counts]
    # A longer allotment that is no faster only wastes slots.
    return (modes[0], *(b for a, b in pairwise(modes) if b[1] < a[1])) if modes else ()
