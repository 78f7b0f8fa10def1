"""Rows of a link's capacity in whole numbers.

A link that is exactly full is the rule where capacities are tight, and a solver's tolerance is
larger than the distance between full and over-full. So loads and capacity are scaled to whole
numbers, by their common denominator where this keeps them small. Where it does not, both are
rounded down, which never forbids what is allowed; what passes wrongly is found by exact arithmetic
afterwards and dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor, gcd, lcm

LARGEST = 1_000_000
"""A solver with a tolerance of 1e-6 tells coefficients up to this apart."""


def whole_row(loads: Sequence[Fraction], limit: Fraction) -> tuple[list[int], int]:
    """Scale `sum of chosen loads <= limit` to whole numbers: coefficients and right side.

    Every choice that the fractions allow is allowed; the converse holds as well if a common
    denominator was small enough.
    """
    scale = scale_of(loads, max([*loads, limit], default=Fraction(0)))
    coefficients = [floor(value * scale) for value in loads]
    right = floor(limit * scale)
    common = gcd(*coefficients)
    if common > 1:
        coefficients = [value // common for value in coefficients]
        right //= common
    return coefficients, right


def scale_of(values: Sequence[Fraction], most: Fraction) -> Fraction:
    """The common denominator, or less where `most` times that is too large to be told apart."""
    scale = Fraction(lcm(*(value.denominator for value in values)))
    return LARGEST / most if most * scale > LARGEST else scale
