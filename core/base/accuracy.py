"""Accuracy of expected starts, their intervals and planned run times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from statistics import median

from msgspec import Struct

from coalloc.core.base.start_intervals import StartError

HOUR_S = 3600.0
BANDS: tuple[tuple[str, float], ...] = (
    ("up to 10 min", 600.0),
    ("up to 1 h", HOUR_S),
    ("up to 6 h", 6.0 * HOUR_S),
    ("up to 1 d", 24.0 * HOUR_S),
    ("more", inf),
)
"""Lead times in words, and up to how many seconds they are."""
ALL = "all"


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


def start_accuracy(errors: Sequence[StartError]) -> tuple[StartAccuracy, ...]:
    """A row for each kind, then one for each band of it in which a job has started."""
    rows = []
    for kind in dict.fromkeys(error.kind for error in sorted(errors, key=lambda e: e.kind)):
        mine = [error for error in errors if error.kind == kind]
        rows.append(_row(kind, ALL, mine))
        above = 0.0
        for lead, most in BANDS:
            inside = [error for error in mine if above < error.lead_s <= most]
            if inside:
                rows.append(_row(kind, lead, inside))
            above = most
    return tuple(rows)


def run_time_accuracy(ratios: Iterable[float]) -> RunTimeAccuracy | None:
    """Of real by planned run times; None where there are none."""
    ordered = sorted(ratios)
    if not ordered:
        return None
    return RunTimeAccuracy(
        runs=len(ordered),
        error=median(abs(ratio - 1.0) for ratio in ordered),
        low=_at(ordered, 0.05),
        median=median(ordered),
        high=_at(ordered, 0.95),
    )


def _row(kind: str, lead: str, errors: Sequence[StartError]) -> StartAccuracy:
    """One row, of at least one error."""
    with_interval = [e for e in errors if e.held is not None]
    widths = [e.width_s for e in with_interval if e.width_s is not None]
    late = sorted(error.late_s for error in errors)
    return StartAccuracy(
        kind=kind,
        lead=lead,
        starts=len(errors),
        intervals=len(with_interval),
        held=sum(bool(e.held) for e in with_interval) / len(with_interval) if widths else None,
        width_s=median(widths) if widths else None,
        error_s=median(map(abs, late)),
        error_width_s=_at(late, 0.95) - _at(late, 0.05),
    )


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]
