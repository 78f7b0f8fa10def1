"""Splits of a job over clusters that saturate no link; plain Python.

The compiled kernel holds the same arithmetic; this form serves what must run without numba, and the
question whether a job can ever run, at submit too.

Notes
-----
By equation (4), t of n processes inside a cluster load its link with b * t * (n - t) / (n - 1).
This is concave in t and zero at 0 and n, so the counts a link with residual R admits are 0..w and
n - w..n for one number w. Two of the upper kind cannot stand in one split unless w reaches n / 2,
where every count is admitted. So a split exists if and only if either every cluster takes at most
min(free, w) and these sum to n, or one cluster takes at least n - w and the others fill the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, sqrt

TOLERANCE = 5e-10
"""How far the sum of loads may pass a capacity, relative: rounding, not a licence."""


def low_side(procs: int, proc_gbps: float, residual: float, slack: float = 0.0) -> int:
    """Return w, the largest count on the low side that a link admits; `procs` if all are.

    The `residual` capacity, Gbit/s, is below 0 where running work passes the capacity; `slack` may
    be added to it for rounding.
    """
    room = residual + slack
    if proc_gbps <= 0.0 or procs <= 1 or residual == inf:
        return procs
    if room < 0.0:
        return 0
    half = procs // 2

    def load(t: int) -> float:
        return proc_gbps * t * (procs - t) / (procs - 1)

    if load(half) <= room:
        return procs
    x = room * (procs - 1) / proc_gbps
    t = int((procs - sqrt(max(procs * procs - 4.0 * x, 0.0))) / 2.0) if isfinite(x) else half
    t = min(max(t, 0), half)
    while t > 0 and load(t) > room:
        t -= 1
    while t < half and load(t + 1) <= room:
        t += 1
    return t


def split_task(
    procs: int, free: Sequence[int], links: Sequence[float], comm_gb: float
) -> list[int] | None:
    """Spread a workflow's task; its traffic, if it has any, takes an idle link, of any capacity."""
    low = [procs if comm_gb == 0.0 or link > 0.0 else 0 for link in links]
    return split(procs, free, low)


def split(procs: int, free: Sequence[int], low: Sequence[int]) -> list[int] | None:
    """Spread a job over clusters: fewest clusters, then least total load on the links.

    Each cluster can take `free` processes, and its link has a `low_side`. Returns the processes on
    each, None if there is no way. A job that fits in one cluster is given to the first that holds
    it.
    """
    for k, count in enumerate(free):
        if count >= procs:
            return [procs if i == k else 0 for i in range(len(free))]
    upper = [min(f, w) for f, w in zip(free, low, strict=True)]
    order = sorted(range(len(free)), key=lambda k: -upper[k])
    best: list[int] | None = None
    best_key = (0, 0)
    for lead in [-1, *range(len(free))]:
        take = [0] * len(free)
        left = procs
        if lead >= 0:
            if free[lead] < procs - low[lead] or low[lead] < 1 or free[lead] <= upper[lead]:
                continue
            take[lead] = free[lead]
            left -= free[lead]
        for k in order:
            if k != lead and left > 0:
                take[k] = min(upper[k], left)
                left -= take[k]
        if left > 0:
            continue
        key = (sum(t > 0 for t in take), -sum(t * t for t in take))
        if best is None or key < best_key:
            best, best_key = take, key
    return best


def filled(counts: Mapping[str, int], share: int) -> dict[str, int]:
    """Nodes for so many processes, in their order."""
    chosen: dict[str, int] = {}
    for node, count in counts.items():
        taken = min(count, share)
        if taken > 0:
            chosen[node] = taken
            share -= taken
    return chosen
