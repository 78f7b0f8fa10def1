"""Intervals of means by resampling.

References
----------
B. Efron, R. Tibshirani, "An introduction to the bootstrap", 1993 (the percentile interval).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 2000


def resampled(values: ArrayLike) -> tuple[float, float]:
    """The interval of 95 % of the mean, from samples of as many values with a fixed seed."""
    known = np.asarray(values)
    drawn = np.random.default_rng(0).integers(0, len(known), (RESAMPLES, len(known)))
    low, high = np.percentile(known[drawn].mean(axis=1), (2.5, 97.5))
    return float(low), float(high)
