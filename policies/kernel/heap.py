"""A heap of numbers, each with an id, in two arrays or lists: compiled by who needs it so."""

from __future__ import annotations

from math import inf
from typing import Any


def push(keys: Any, ids: Any, count: Any, place: int, key: float, value: int) -> None:
    """Put an event on a heap, whose size stands in that place, unless it never comes."""
    if key == inf:
        return
    i = count[place]
    count[place] = i + 1
    while i > 0 and keys[(i - 1) // 2] > key:
        keys[i], ids[i] = keys[(i - 1) // 2], ids[(i - 1) // 2]
        i = (i - 1) // 2
    keys[i], ids[i] = key, value


def pop(keys: Any, ids: Any, count: Any, place: int) -> int:
    """Take the first event off a heap, whose size stands in that place."""
    size = count[place] - 1
    count[place] = size
    first, key, value = ids[0], keys[size], ids[size]
    i, child = 0, 1
    while child < size:
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i], ids[i] = keys[child], ids[child]
        i, child = child, 2 * child + 1
    keys[i], ids[i] = key, value
    return int(first)
