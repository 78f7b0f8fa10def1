"""Answer to the question how well estimates held."""

from __future__ import annotations

from coalloc.core.base.start_intervals import MISSES
from coalloc.core.base.state import State
from coalloc.core.learning.accuracy import run_time_accuracy, start_accuracy
from coalloc.wire.estimate_answers import AccuracyAnswer


def accuracy(state: State, now: float) -> AccuracyAnswer:
    """Of the newest starts and runs that are remembered."""
    runs = run_time_accuracy(value for values in state.learning.ratios.values() for value in values)
    return AccuracyAnswer(
        wanted=1.0 - MISSES,
        starts=start_accuracy(state.learning.calibration.newest()),
        run_times=runs,
        time=now,
    )
