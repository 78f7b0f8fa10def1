"""The compiled loops of `demt`: allotments that fit, stacks, knapsack, and list scheduling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.pool.pool_jobs import Processors
from coalloc.policies.kernel.record import Floats, Ints, record


@record
class Allotted(NamedTuple):
    """N jobs with fixed allotments."""

    procs: Ints  # N
    seconds: Floats  # N
    weight: Floats  # N
    release: Floats  # N, s


@record
class Trees(NamedTuple):
    """Working memory of a list, L a power of two of at least N."""

    needs: Floats  # 2 L, tree of minima over the order: processors of what waits
    ends: Floats  # 2 L, likewise: ends of what runs, s
    taken: Ints  # S, processors that running jobs hold at the begin of each stretch


@kernel
def fitting_rows(first: Any, times: Any, jobs: Any, limits: Any, out: Any) -> None:
    """Write each job's smallest allotment that takes no longer than its limit; -1 if none does.

    Parameters
    ----------
    jobs : array of int, J
    limits : array, J
        Seconds.
    out : array of int, J
        Indices into `times`, which falls along the allotments of a job.
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
    """Number what is selected as one: stacks of small jobs by next fit, other jobs alone.

    Parameters
    ----------
    seconds : array, J
        On one processor; read for small jobs only. Jobs come in the order they are stacked in.
    out : array of int, J
        Which entry each job belongs to.

    Returns
    -------
    int
        How many entries there are.
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

    W(i, j) = max(W(i - 1, j), W(i - 1, j - size_i) + w_i), section 3.2. Of equal choices, one
    that takes more of the later entries.

    Parameters
    ----------
    weight, size : arrays, E
        Sizes are 1..room.
    value : array, 2 x (room + 1)
        Working memory.
    takes : array of bool, E x (room + 1)
        Working memory.
    out : array of bool, E
        What is chosen.
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


@helper(inline=True)
def put(tree: Any, leaf: Any, value: Any) -> None:
    """Change a leaf of a tree of minima; tree[1] is the root, leaves are its last half."""
    tree[leaf] = value
    p = leaf >> 1
    while p > 0:
        least = min(tree[2 * p], tree[2 * p + 1])
        if tree[p] == least:
            break
        tree[p] = least
        p >>= 1


@helper(inline=True)
def leaf_within(tree: Any, leaf: Any, limit: Any) -> Any:
    """The first leaf from this one on whose value is at most `limit`; 0 if none is."""
    half = tree.size >> 1
    p = leaf
    while tree[p] > limit:
        while p & 1:
            p >>= 1
        if p == 0:
            return 0
        p += 1
    while p < half:
        p *= 2
        if tree[p] > limit:
            p += 1
    return p


@helper(inline=True)
def plant(order: Ints, jobs: Allotted, trees: Trees) -> tuple[float, float]:
    """Set up the trees; the weight of all jobs, and the sum of weight times seconds."""
    needs, ends, half = trees.needs, trees.ends, trees.needs.size >> 1
    weight, least = 0.0, 0.0
    for x in range(half):
        needs[half + x], ends[half + x] = np.inf, np.inf
    for x in range(order.size):
        i = order[x]
        if jobs.release[i] <= 0.0:
            needs[half + x] = jobs.procs[i]
        weight += jobs.weight[i]
        least += jobs.weight[i] * jobs.seconds[i]
    for p in range(half - 1, 0, -1):
        needs[p] = min(needs[2 * p], needs[2 * p + 1])
        ends[p] = np.inf
    return weight, least


@helper(inline=True)
def last_dip(there: Processors, taken: Ints) -> int:
    """The last stretch that offers less than the one before it; `taken` is emptied."""
    dip = 0
    for s in range(there.starts.size):
        taken[s] = 0
        if s > 0 and there.capacity[s] < there.capacity[s - 1]:
            dip = s
    return dip


@helper(inline=True)
def take_until(
    there: Processors, taken: Ints, first: int, dip: int, end: float, procs: int
) -> bool:
    """Take processors in the stretches from `first` to `dip` that begin before an end, if free."""
    s = first
    while s <= dip and there.starts[s] < end:
        if there.capacity[s] - taken[s] < procs:
            return False
        s += 1
    for y in range(first, s):
        taken[y] += procs
    return True


@helper(inline=True)
def give_back(order: Ints, procs: Ints, ends: Any, now: float) -> int:
    """Take what has ended out of the tree; the processors that are free again."""
    freed, half = 0, ends.size >> 1
    while ends[1] <= now:
        p = leaf_within(ends, half, now)
        freed += procs[order[p - half]]
        put(ends, p, np.inf)
    return freed


@kernel
def list_fixed(
    order: Ints,
    jobs: Allotted,
    late: Ints,
    there: Processors,
    most: float,
    trees: Trees,
    out_start: Floats,
    out: Floats,
) -> None:
    """List scheduling with fixed allotments: at each instant, in order, whatever fits starts.

    Parameters
    ----------
    order : array of int, N
    jobs, there, trees : Allotted, Processors and Trees
    late : array of int
        Places in the order of jobs released after 0, by release.
    most : float
        Give up once it is certain that the weighted completion passes this.
    out_start : array, N
    out : array, 2
        Makespan and weighted completion; inf where that passes `most`.
    """
    starts, capacity, procs, half = there.starts, there.capacity, jobs.procs, trees.needs.size >> 1
    out[0], out[1] = 0.0, 0.0
    rest, least = plant(order, jobs, trees)
    dip = last_dip(there, trees.taken)
    left, step, used, arrived, now = order.size, 0, 0, 0, 0.0
    while True:
        while step + 1 < starts.size and starts[step + 1] <= now:
            step += 1
        while arrived < late.size and jobs.release[order[late[arrived]]] <= now:
            put(trees.needs, half + late[arrived], float(procs[order[late[arrived]]]))
            arrived += 1
        p = leaf_within(trees.needs, half, capacity[step] - used)
        while p > 0:
            i = order[p - half]
            end = now + jobs.seconds[i]
            if take_until(there, trees.taken, step + 1, dip, end, procs[i]):
                put(trees.needs, p, np.inf)
                put(trees.ends, p, end)
                used += procs[i]
                left -= 1
                out_start[i] = now
                out[0] = max(out[0], end)
                out[1] += jobs.weight[i] * end
                rest -= jobs.weight[i]
                least -= jobs.weight[i] * jobs.seconds[i]
            p = leaf_within(trees.needs, p + 1, capacity[step] - used) if p + 1 < 2 * half else 0
        if left == 0:
            break
        follow = trees.ends[1]
        if step + 1 < starts.size:
            follow = min(follow, starts[step + 1])
        if arrived < late.size:
            follow = min(follow, jobs.release[order[late[arrived]]])
        if follow == np.inf or out[1] + rest * follow + least > most:
            out[1] = np.inf
            break
        now = follow
        used -= give_back(order, procs, trees.ends, now)
    if out[1] > most or out[1] == np.inf:
        out[0], out[1] = np.inf, np.inf


__all__ = [
    "Allotted",
    "Trees",
    "fitting_rows",
    "knapsack",
    "list_fixed",
    "stack_up",
    "take_in_turn",
]
