"""Answer of the daemon about the accuracy of its estimates, in the words of docs/PROTOCOL.md."""

from __future__ import annotations

from coalloc.core.base.accuracy import RunTimeAccuracy, StartAccuracy
from coalloc.wire.answers import Answer


class AccuracyAnswer(Answer, frozen=True, kw_only=True, tag="estimates"):
    """Accuracy of the estimates on this site."""

    wanted: float
    """Share of the starts that is to be in its interval, 0..1."""
    starts: tuple[StartAccuracy, ...]
    """Below."""
    run_times: RunTimeAccuracy | None = None
    """Below; null: no run is remembered."""
    time: float = 0.0
    """The daemon's clock."""
