"""Halving, and the largest guess that is refuted, found by doubling and halving."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

LEAST = 1e-9
"""The first guess is no smaller, seconds."""


def largest_refuted(least: float, precision: float, refuted: Callable[[float], bool]) -> float:
    """Return a guess that is refuted, or `least`; one larger by a share of `precision` is not.

    `least`: what is known without a guess, seconds.
    `precision`: share of the guess.
    `refuted`: whether a guess is refuted; every smaller one then is as well.
    """
    low, high = least, max(least, LEAST)
    while high < inf and refuted(high):
        low, high = high, 2.0 * high
    return halved(low, high, refuted, precision)[0]


def halved(
    low: float, high: float, refuted: Callable[[float], bool], precision: float = 0.0
) -> tuple[float, float]:
    """Halve an interval whose lower end is refuted, and whose upper is not, to neighbours.

    Or until it is no longer than a share of `precision` of its upper end.
    """
    while high - low > precision * high:
        middle = low + (high - low) / 2.0
        if not low < middle < high:  # neighbours, of which there are no closer ones
            break
        if refuted(middle):
            low = middle
        else:
            high = middle
    return low, high
