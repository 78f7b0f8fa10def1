"""Numbered slots for counts on classes, over a whole trace; compiled.

A plan says how many slots of which class a job gets; a trace file names them. Jobs are taken by
start time, ends before starts, and get the lowest free slots of their classes. Counts that keep to
the size of every class can always be laid out like this (see `profile`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel


@helper(inline=True)
def leave(busy: Any, low: Any, high: Any, first: int, last: int) -> None:
    """Free the slots of the ranges from `first` to `last`."""
    for r in range(first, last):
        for slot in range(low[r], high[r]):
            busy[slot] = False


@helper(inline=True)
def reopen(
    use_first: Any, use_count: Any, use_class: Any, slot_first: Any, lowest: Any, job: int
) -> None:
    """Look for free slots from the begin of a job's classes on again."""
    for u in range(use_first[job], use_first[job] + use_count[job]):
        lowest[use_class[u]] = slot_first[use_class[u]]


@helper(inline=True)
def highest(slots: Any) -> int:
    """The highest number of a slot."""
    number = 0
    for slot in slots:
        number = max(number, slot)
    return number


@helper(inline=True)
def take(
    busy: Any, slots: Any, i: int, end: int, left: int, low: Any, high: Any, top: int
) -> tuple[int, int]:
    """Take so many slots that are free, from place i on, and write their ranges from `top` on.

    Returns the place behind the last one, -1 where too few are free, and the end of the ranges.
    """
    first = top
    while left > 0:
        while i < end and busy[slots[i]]:
            i += 1
        if i >= end:
            return -1, top
        busy[slots[i]] = True
        left -= 1
        if top > first and high[top - 1] == slots[i]:
            high[top - 1] += 1
        else:
            low[top], high[top] = slots[i], slots[i] + 1
            top += 1
        i += 1
    return i, top


@kernel(allocates=True)
def number_slots(
    order: Any,
    use_first: Any,
    use_count: Any,
    use_class: Any,
    use_slots: Any,
    slot_first: Any,
    slots: Any,
    jobs: Any,
) -> Any:
    """Give every job its slots, numbers that rise in each class.

    `order` are events as they happen: job, or jobs + job where it ends. A `first` and `count` are
    the range of each job, or class, in the arrays that follow. Returns the first and count of each
    job in ranges of slots, these (the high ones exclusive), how many of them are used, and the job
    for which a class had too few free slots, or -1.
    """
    first = np.zeros(jobs, dtype=np.int64)
    count = np.zeros(jobs, dtype=np.int64)
    low = np.empty(max(16, use_class.size), dtype=np.int64)
    high = np.empty(max(16, use_class.size), dtype=np.int64)
    busy = np.zeros(highest(slots) + 1, dtype=np.bool_)
    lowest = slot_first.copy()
    top = 0
    for event in order:
        if event >= jobs:
            job = event - jobs
            leave(busy, low, high, first[job], first[job] + count[job])
            reopen(use_first, use_count, use_class, slot_first, lowest, job)
            continue
        job = event
        first[job] = top
        for u in range(use_first[job], use_first[job] + use_count[job]):
            c = use_class[u]
            left, end = use_slots[u], slot_first[c + 1]
            while top + left > low.size:
                low = np.concatenate((low, np.empty_like(low)))
                high = np.concatenate((high, np.empty_like(high)))
            i, top = take(busy, slots, lowest[c], end, left, low, high, top)
            if i < 0:
                return first, count, low, high, top, job
            lowest[c] = i
        count[job] = top - first[job]
    return first, count, low, high, top, -1
