"""The compiled loop of CPA: a process more for the critical task that gains most by it."""

from __future__ import annotations

from typing import Any

from coalloc.policies.kernel.jit import kernel

EPS = 1e-9


@kernel
def grow(
    order: Any,
    parent_first: Any,
    parent: Any,
    child_first: Any,
    child: Any,
    level: Any,
    procs: Any,
    seconds: Any,
    last: Any,
    total: Any,
    ratio: Any,
    by_level: Any,
    steps: Any,
    row: Any,
    top: Any,
    bottom: Any,
    crowd: Any,
    out: Any,
) -> Any:
    """Grow allotments until the critical path is at most `ratio` times the mean area.

    Parameters
    ----------
    order : array of int, N
        Parents first.
    level : array of int, N
    procs, seconds : arrays, S
        Of the rows of all items.
    last : array of int, N
        The row that each item may reach.
    total : float
        Processes of the platform.
    by_level : bool
        No level may use more processes than there are (MCPA).
    steps : int
        At most so many.
    row : array of int, N
        The allotments; grown in place.
    top, bottom : arrays, N
        Working memory.
    crowd : array of int, levels
        Working memory.
    out : array, 2
        Length of the critical path and mean area, seconds.

    Returns
    -------
    int
        Steps made.
    """
    size = order.size
    for x in range(crowd.size):
        crowd[x] = 0
    area = 0.0
    for v in range(size):
        crowd[level[v]] += procs[row[v]]
        area += procs[row[v]] * seconds[row[v]]
    made = 0
    while True:
        path = 0.0
        for x in range(size):
            v = order[x]
            longest = 0.0
            for y in range(parent_first[v], parent_first[v + 1]):
                u = parent[y]
                longest = max(longest, top[u] + seconds[row[u]])
            top[v] = longest
            path = max(path, longest + seconds[row[v]])
        out[0], out[1] = path, area / total
        if path <= ratio * out[1] or made >= steps:
            return made
        for x in range(size - 1, -1, -1):
            v = order[x]
            longest = 0.0
            for y in range(child_first[v], child_first[v + 1]):
                longest = max(longest, bottom[child[y]])
            bottom[v] = longest + seconds[row[v]]
        chosen, gain = -1, 0.0
        for v in range(size):
            r = row[v]
            if r >= last[v] or top[v] + bottom[v] < path * (1.0 - EPS):
                continue
            if by_level and crowd[level[v]] + procs[r + 1] - procs[r] > total:
                continue
            mine = (seconds[r] / procs[r] - seconds[r + 1] / procs[r + 1]) / (
                procs[r + 1] - procs[r]
            )
            if mine > gain:
                chosen, gain = v, mine
        if chosen < 0:
            return made
        r = row[chosen]
        area += procs[r + 1] * seconds[r + 1] - procs[r] * seconds[r]
        crowd[level[chosen]] += procs[r + 1] - procs[r]
        row[chosen] = r + 1
        made += 1
