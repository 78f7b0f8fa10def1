"""Answer of the daemon about the accuracy of its estimates, in the words of docs/PROTOCOL.md."""

from __future__ import annotations

from msgspec import Struct

from coalloc.wire.answers import Answer


class StartAccuracyRow(Struct, frozen=True, kw_only=True):
    """Accuracy of expected starts of one kind with one band of lead times."""

    kind: str
    """``first``: the first expected start of each job; ``later``: those while it waited."""
    lead: str
    """The band in words, or ``all``."""
    starts: int
    """Expected starts whose jobs have started; those that had an interval."""
    intervals: int
    """Those of them that had an interval."""
    held: float | None
    """Share of the intervals that had the start in them, 0..1."""
    width_s: float | None
    """Median width of the intervals, seconds."""
    error_s: float
    """Median distance of the start from the expected one, seconds."""
    error_width_s: float
    """From the 5th to the 95th percentile of the start less the expected one, seconds."""


class RunTimeRow(Struct, frozen=True, kw_only=True):
    """Real run times by planned ones."""

    runs: int
    error: float
    """Median distance of real by planned run times from 1."""
    low: float
    """5th, 50th and 95th percentile of the ratio."""
    median: float
    high: float
    """95th percentile."""


class AccuracyAnswer(Answer, frozen=True, kw_only=True, tag="estimates"):
    """Accuracy of the estimates on this site."""

    wanted: float
    """Share of the starts that is to be in its interval, 0..1."""
    starts: tuple[StartAccuracyRow, ...]
    run_times: RunTimeRow | None = None
    """Null: no run is remembered."""
    time: float = 0.0
    """The daemon's clock."""
