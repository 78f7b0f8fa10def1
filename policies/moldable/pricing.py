"""What processor time costs, and where each job would start at these prices: compiled.

Prices are constant on each slot of a grid, and 0 behind it. At prices v, job i on k processors from
s costs w_i (s + p_ik) + k * integral of v over its run. In s that is linear but for the points
where its start or its end lies on the grid, so these, and its release, are all that is tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalloc.policies.kernel.jit import kernel


@kernel
def price_jobs(
    first: Any,
    procs: Any,
    times: Any,
    weight: Any,
    release: Any,
    grid: Any,
    price: Any,
    total: Any,
    cap: Any,
    out_mode: Any,
    out_start: Any,
) -> Any:
    """Find each job's cheapest allotment and start.

    Parameters
    ----------
    grid : array of float, G + 1
        Edges of the slots, seconds, from 0.
    price, total : arrays of float, G and G + 1
        Price of a processor-second, and its integral up to each edge.
    cap : float
        No job may end later, seconds.
    out_mode, out_start : arrays, N
        The answers: index into `procs`, seconds.

    Returns
    -------
    float
        Sum of the costs; inf where a job cannot end by `cap`.
    """
    slots = grid.size - 1
    cost = 0.0
    for i in range(weight.size):
        w, r = weight[i], release[i]
        best = np.inf
        for a in range(first[i], first[i + 1]):
            k, p = procs[a], times[a]
            if r + p > cap or w * (r + p) >= best:
                continue
            # starts on the grid, and at the release
            g, h, s = 0, 0, r
            while g <= slots and grid[g] <= r:
                g += 1
            passed = total[slots]
            if g <= slots and g > 0:
                passed = total[g] - price[g - 1] * (grid[g] - r)
            while True:
                e = s + p
                if e > cap or w * e >= best:
                    break
                while h <= slots and grid[h] <= e:
                    h += 1
                area = total[slots]
                if h <= slots:
                    area = total[h] - price[h - 1] * (grid[h] - e)
                value = w * e + k * (area - passed)
                if value < best:
                    best, out_mode[i], out_start[i] = value, a, s
                if g > slots:
                    break
                s, passed = grid[g], total[g]
                g += 1
            # ends on the grid
            h, g = 0, 0
            while g <= slots and grid[g] < r + p:
                g += 1
            while g <= slots:
                e = grid[g]
                if e > cap or w * e >= best:
                    break
                s = e - p
                while grid[h] <= s:
                    h += 1
                value = w * e + k * (total[g] - total[h] + price[h - 1] * (grid[h] - s))
                if value < best:
                    best, out_mode[i], out_start[i] = value, a, s
                g += 1
            # ends at the cap
            s = cap - p
            if s > r and w * cap < best and np.isfinite(cap):
                h = 0
                while h <= slots and grid[h] <= s:
                    h += 1
                passed = total[slots]
                if h <= slots:
                    passed = total[h] - price[h - 1] * (grid[h] - s)
                value = w * cap + k * (total[slots] - passed)
                if value < best:
                    best, out_mode[i], out_start[i] = value, a, s
        cost += best
    return cost


@kernel
def add_usage(procs: Any, times: Any, mode: Any, start: Any, grid: Any, used: Any) -> None:
    """Sum up the processor-seconds that these choices take in each slot."""
    slots = used.size
    for g in range(slots):
        used[g] = 0.0
    for i in range(mode.size):
        k, s = procs[mode[i]], start[i]
        e = s + times[mode[i]]
        g, high = 0, slots
        while high - g > 1:
            middle = (g + high) // 2
            if grid[middle] <= s:
                g = middle
            else:
                high = middle
        while g < slots and grid[g] < e:
            used[g] += k * max(min(e, grid[g + 1]) - max(s, grid[g]), 0.0)
            g += 1


__all__ = ["add_usage", "price_jobs"]
