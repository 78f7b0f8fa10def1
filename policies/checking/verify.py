"""The value of a certificate of prices, added up again; needs numpy alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def certified(
    jobs: Iterable[Any], steps: Any, grid: Any, prices: Any, cap: float = np.inf
) -> float:
    """Weighted completion below which no schedule is, by these prices of a processor-second.

    Parameters
    ----------
    jobs : iterable of (procs, times, weight, release), the first two arrays of equal length
    steps : pair of arrays
        Seconds from which so many processors are there, from 0; and how many.
    """
    starts, capacity, grid, prices = map(np.asarray, (*steps, grid, prices))
    if not (prices >= 0.0).all() or not (np.diff(grid) >= 0.0).all() or grid[0] != 0.0:
        return -np.inf
    paid = np.concatenate(([0.0], np.cumsum(prices * np.diff(grid))))
    edges = np.union1d(grid, starts[starts < grid[-1]])
    level = capacity[np.searchsorted(starts, edges[:-1], side="right") - 1]
    bound = -float(level @ np.diff(np.interp(edges, grid, paid)))
    for procs, times, weight, release in jobs:
        k, p = np.asarray(procs)[:, None], np.asarray(times)[:, None]
        s = np.concatenate((grid + 0.0 * p, grid - p, release + 0.0 * p, cap - p), axis=1)
        fits = (s >= release) & (s + p <= cap * (1.0 + 1e-12)) & (s < np.inf)
        s = np.where(fits, s, 0.0)
        run = np.interp(s + p, grid, paid) - np.interp(s, grid, paid)
        bound += (weight * (s + p) + k * run)[fits].min(initial=np.inf)
    return bound
