"""Near-cheapest allotments and starts at prices, for steps that need no more: compiled.

`pricing` looks at starts and ends on the grid, which a bound needs. Here a job starts on the grid,
or ends at the cap. What an allotment cost when it was last looked at, less what prices have fallen
by since, is the least that it can cost now: most are passed by that. A step takes a fraction of the
time; what is found costs a little more than the least, so the sum is no bound.
"""

from __future__ import annotations

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.pool.pool_jobs import Jobs
from coalloc.policies.kernel.record import Floats, Ints


@helper(inline=True)
def on_grid(
    k: int, p: float, w: float, release: float, width: float, slots: int, total: Floats, cap: float
) -> tuple[float, float]:
    """The least cost of one allotment, and its start; inf and -1 if it cannot end by the cap."""
    q = int(min(p / width, slots + 1.0))
    f = p / width - q
    if q >= slots:
        q, f = slots, 0.0
    low, high = int(np.ceil(release / width)), slots
    if cap < np.inf:
        high = int(min(np.floor((cap - p) / width), slots))
    base, step, near, far = w * p, w * width, k * (1.0 - f), k * f
    # four at a time: no minimum waits for the one before
    m0 = m1 = m2 = m3 = np.inf
    g = low
    while g + 3 <= high:
        c0 = base + step * g + near * total[g + q] + far * total[g + q + 1] - k * total[g]
        g += 1
        c1 = base + step * g + near * total[g + q] + far * total[g + q + 1] - k * total[g]
        g += 1
        c2 = base + step * g + near * total[g + q] + far * total[g + q + 1] - k * total[g]
        g += 1
        c3 = base + step * g + near * total[g + q] + far * total[g + q + 1] - k * total[g]
        g += 1
        m0, m1 = min(m0, c0), min(m1, c1)
        m2, m3 = min(m2, c2), min(m3, c3)
    while g <= high:
        c0 = base + step * g + near * total[g + q] + far * total[g + q + 1] - k * total[g]
        g += 1
        m0 = min(m0, c0)
    least, found = min(min(m0, m1), min(m2, m3)), -1.0
    if least < np.inf:
        for g in range(low, high + 1):
            c0 = base + step * g + near * total[g + q] + far * total[g + q + 1] - k * total[g]
            if c0 <= least:
                found = g * width
                break
    s = cap - p
    if s < np.inf and s >= release and w * cap < least:
        h, g = int(min(cap / width, slots)), int(min(s / width, slots))
        after = total[h] + (total[h + 1] - total[h]) * (cap / width - h)
        before = total[g] + (total[g + 1] - total[g]) * (s / width - g)
        c0 = w * cap + k * (after - before)
        if c0 < least:
            least, found = c0, s
    return least, found


@kernel
def price_near(
    jobs: Jobs,
    width: float,
    slots: int,
    total: Floats,
    cap: float,
    fall: float,
    fallen: float,
    floor: Floats,
    out_mode: Ints,
    out_start: Floats,
) -> float:
    """Find each job's allotment and start; the sum of the costs, inf where one cannot end by `cap`.

    The grid has slots of one width, from 0; `total` (2 G + 2) is the integral of the prices up to
    each edge, and its last value again and again. By `fall` prices are lower than in the last call
    anywhere at most, by `fallen` in all. `floor` (A), -inf at first, is what each allotment costs
    at least; it is rewritten. `out_mode` (index into `procs`, where the search begins) and
    `out_start` (seconds) are the answers.
    """
    first, procs, times = jobs.first, jobs.procs, jobs.times
    cost = 0.0
    for i in range(jobs.weight.size):
        w, r = jobs.weight[i], jobs.release[i]
        at = min(max(out_mode[i], first[i]), first[i + 1] - 1)
        best, found = on_grid(procs[at], times[at], w, r, width, slots, total, cap)
        floor[at] = best
        for a in range(first[i], first[i + 1]):
            floor[a] -= procs[a] * min(times[a] * fall, fallen)
            if floor[a] < best and a != at:
                value, s = on_grid(procs[a], times[a], w, r, width, slots, total, cap)
                floor[a] = value
                if value < best:
                    best, found, at = value, s, a
        cost += best
        if found >= 0.0:
            out_mode[i], out_start[i] = at, found
    return cost
