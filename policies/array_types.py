"""Arrays of numbers, as signatures name them, and rows of many lists in one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def entries(first: Ints, count: Ints) -> Ints:
    """Numbers of the entries of lists in one array, from where each begins on."""
    numbers = np.arange(int(count.sum()), dtype=np.int64)
    return numbers + np.repeat(first - np.cumsum(count) + count, count)


def firsts(counts: Sequence[int] | Ints) -> Ints:
    """Begin of the range of each list, of so many entries, and the end of the last one."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)
