"""Effective power as planning sees it: smoothed, then rounded down to a step.

Without steps every node would be a class of its own. A value that wavers around a step
does not change class at each reading: the published step rises when the smoothed value
reaches the next, and falls only when the smoothed value is below it by a share of a step.
"""

from __future__ import annotations

from math import floor

from msgspec import Struct

ARRIVED = 0.1
"""Share of a step."""


class PowerState(Struct, frozen=True, kw_only=True):
    """Of one node: exponentially smoothed raw power, and the published step."""

    smoothed: float
    published: float


def floored(power: float, step: float) -> float:
    """The power rounded down to a multiple of `step`.

    Below one step, to the largest half, quarter, ... of a step that is not above it: a weak
    node must not be taken for a stronger one.
    """
    if step <= 0.0:
        return power
    steps = floor(power / step + 1e-9)
    if steps >= 1:
        return min(1.0, round(steps * step, 9))
    while step > power > 0.0:
        step /= 2.0
    return step


def updated(
    state: PowerState | None, raw: float, *, step: float, hysteresis: float, smoothing: float
) -> PowerState:
    """Take in a reading: the raw effective power, in (0, 1].

    Published powers are multiples of `step`; 0 publishes the smoothed value, in which the newest
    reading has the weight `smoothing`, in (0, 1]. One falls only where the smoothed value is below
    it by the share `hysteresis` of a step.
    """
    if state is None:
        return PowerState(smoothed=raw, published=floored(raw, step))
    smoothed = state.smoothed + smoothing * (raw - state.smoothed)
    # A smoothed value never quite arrives: close below a step that the raw one has is there.
    reached = floored(max(smoothed, min(raw, smoothed + ARRIVED * step)), step)
    if reached < state.published and smoothed >= state.published - hysteresis * step:
        reached = state.published
    return PowerState(smoothed=smoothed, published=reached)
