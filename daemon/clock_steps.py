"""Steps of the wall clock, seen beside one that nobody sets."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 0.5
"""Smaller differences between two looks are a clock that is led back gently, seconds."""


def boot_time() -> float:
    """Seconds since the machine was booted, sleep among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockSteps:
    """Tells by how much the clock was set between two looks, against one that nobody sets."""

    def __init__(self, steady: Callable[[], float] = boot_time) -> None:
        self._steady = steady
        self._behind: float | None = None

    def step(self, now: float) -> float:
        """Seconds that the wall clock was set ahead since the last look; 0: it was not set."""
        behind = now - self._steady()
        last, self._behind = self._behind, behind
        step = 0.0 if last is None else behind - last
        return step if abs(step) >= STEP_S else 0.0
