"""Rows of how well expected starts and planned run times held."""

from __future__ import annotations

from msgspec import Struct


class StartAccuracy(Struct, frozen=True, kw_only=True):
    """Accuracy of the expected starts of one kind with one band of lead times."""

    kind: str
    """``first``: the first expected start of each job; ``later``: those while it waited."""
    lead: str
    """How far ahead, in words, or ``all``."""
    starts: int
    """Expected starts whose jobs have started."""
    intervals: int
    """Those of them that had an interval."""
    held: float | None
    """Share of the intervals that had the start in them, 0..1."""
    width_s: float | None
    """Median width of the intervals, seconds."""
    error_s: float
    """Median distance of the start from the expected one, seconds."""
    error_width_s: float
    """From the 5th to the 95th percentile of the start less the expected one, seconds: the interval
    that one would lay around each instant afterwards, knowing all of them."""


class RunTimeAccuracy(Struct, frozen=True, kw_only=True):
    """Accuracy of planned run times."""

    runs: int
    error: float
    """Median distance of real by planned run times from 1."""
    low: float
    """5th percentile of real by planned run times."""
    median: float
    """50th percentile of the same."""
    high: float
    """95th percentile of the same."""
