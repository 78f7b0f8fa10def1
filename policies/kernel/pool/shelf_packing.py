"""The compiled loops of `demt`: allotments that fit, stacks, and the knapsack."""

from __future__ import annotations

from typing import Any

from coalloc.policies.kernel.jit import kernel


@kernel
def fitting_rows(first: Any, times: Any, jobs: Any, limits: Any, out: Any) -> None:
    """Write each job's smallest allotment that takes no longer than its limit; -1 if none does.

    `limits` (array, J): seconds.
    `out` (array of int, J): indices into `times`, which falls along the allotments of a job.
    """
    for x in range(jobs.size):
        low, high = first[jobs[x]], first[jobs[x] + 1]
        while low < high:
            middle = (low + high) >> 1
            if times[middle] <= limits[x]:
                high = middle
            else:
                low = middle + 1
        out[x] = low if low < first[jobs[x] + 1] else -1


@kernel
def stack_up(seconds: Any, is_small: Any, length: Any, out: Any) -> Any:
    """Number what is selected as one: stacks of small jobs by next fit, other jobs alone; how many.

    Jobs come in the order they are stacked in. Seconds on one processor are read for small jobs
    only.
    """
    entries, stack, height = 0, -1, 0.0
    for x in range(seconds.size):
        if not is_small[x]:
            out[x] = entries
            entries += 1
            continue
        if stack < 0 or height + seconds[x] > length:
            stack, height = entries, 0.0
            entries += 1
        height += seconds[x]
        out[x] = stack
    return entries


@kernel
def knapsack(weight: Any, size: Any, room: Any, value: Any, takes: Any, out: Any) -> None:
    """Choose entries of the largest weight that fit in `room`, by dynamic programming.

    W(i, j) = max(W(i - 1, j), W(i - 1, j - size_i) + w_i), section 3.2. Of equal choices, one that
    takes more of the later entries. Sizes are 1..room. `value`, 2 x (room + 1), and `takes`, E x
    (room + 1), are working memory.
    """
    for j in range(room + 1):
        value[0, j] = 0.0
    for i in range(weight.size):
        old, new = value[i & 1], value[1 - (i & 1)]
        k, w = size[i], weight[i]
        for j in range(k):
            new[j] = old[j]
            takes[i, j] = False
        for j in range(k, room + 1):
            more = old[j - k] + w
            takes[i, j] = more >= old[j]
            new[j] = max(more, old[j])
    j = room
    for i in range(weight.size - 1, -1, -1):
        out[i] = takes[i, j]
        if out[i]:
            j -= size[i]


@kernel
def take_in_turn(order: Any, size: Any, room: Any, out: Any) -> None:
    """Choose each entry that still fits, in this order."""
    for x in range(order.size):
        i = order[x]
        out[i] = size[i] <= room
        if out[i]:
            room -= size[i]
