"""Prices of processor time, and the cheapest start of each job at them; compiled.

Prices are constant on each slot of a grid, and 0 behind it. At prices v, job i on k processors from
s costs w_i (s + p_ik) + k * integral of v over its run. In s that is linear but for the points
where its start or its end lies on the grid, so these, and its release, are all that is tried.

Between two starts a < b a job costs at least w (a + p) + k max(V(a + p) - V(b), p u), where V is
the integral of v and u its minimum up to b + p: blocks of starts that cannot be cheaper than the
best so far are passed in one step.

Steps that need no bound look at less (`on_grid`): a job starts on the grid, or ends at the cap.
What an allotment cost when it was last looked at, less what prices have fallen by since, is the
least that it can cost now: most are passed by that. A step takes a fraction of the time; what is
found costs a little more than the least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.pool.pool_profile import Jobs
from coalloc.policies.kernel.record import Floats, Ints, record

BLOCK = 8
"""Slots of a block."""


@record
class Priced(NamedTuple):
    """Prices of a processor-second on G slots."""

    grid: Floats  # G + 1, s: edges of the slots, from 0
    price: Floats  # G
    total: Floats  # G + 1: their integral up to each edge
    lowest: Floats  # G: the least price up to each slot

    @staticmethod
    def on(grid: Floats, prices: Floats) -> Priced:
        """With what follows from them."""
        total = np.concatenate(([0.0], np.cumsum(prices * np.diff(grid))))
        return Priced(grid, prices, total, np.minimum.accumulate(prices))


class Ask(NamedTuple):
    """One allotment of a job."""

    procs: int
    seconds: float
    weight: float
    cap: float  # s: it may not end later


@helper(inline=True)
def slot_of(grid: Floats, slots: int, pace: float, x: float) -> int:
    """The slot that x lies in, `slots` behind the grid; quick where slots are equally wide."""
    g = min(max(int(x * pace), 0), slots)
    while g < slots and grid[g + 1] <= x:
        g += 1
    while g > 0 and grid[g] > x:
        g -= 1
    return g


@helper(inline=True)
def paid_until(priced: Priced, slots: int, pace: float, x: float) -> float:
    """Integral of the prices from 0 to x."""
    grid, total = priced.grid, priced.total
    g = slot_of(grid, slots, pace, x)
    if g >= slots:
        return total[slots]
    return total[g] + priced.price[g] * (x - grid[g])


@helper(inline=True)
def start_on_grid(
    ask: Ask, priced: Priced, g: int, after: int, h: int, best: float, found: float
) -> tuple[float, float]:
    """Try the starts on the edges between g and `after`; the best cost and start so far.

    The end of a start before them lies in slot h.
    """
    k, p, w, cap = ask
    grid, price, total = priced.grid, priced.price, priced.total
    slots = price.size
    for x in range(g + 1, after):
        e = grid[x] + p
        if e > cap or w * e >= best:
            break
        while h < slots and grid[h + 1] <= e:
            h += 1
        area = total[h]
        if h < slots:
            area += price[h] * (e - grid[h])
        value = w * e + k * (area - total[x])
        if value < best:
            best, found = value, grid[x]
    return best, found


@helper(inline=True)
def end_on_grid(
    ask: Ask, priced: Priced, g: int, s: float, until: float, h: int, best: float, found: float
) -> tuple[float, float]:
    """Try the starts in ]s, until[ whose end is an edge or the cap; the best cost and start so far.

    Slot g holds s, slot h the end of what starts at s.
    """
    k, p, w, cap = ask
    grid, price, total = priced.grid, priced.price, priced.total
    slots, x = price.size, g
    while True:
        h += 1
        e = cap
        if h <= slots:
            e = min(grid[h], cap)
        if e - p >= until or w * e >= best or e == np.inf:
            break
        if e - p > s:
            while x < slots and grid[x + 1] <= e - p:
                x += 1
            before = total[x]
            if x < slots:
                before += price[x] * (e - p - grid[x])
            area = total[slots]
            if h <= slots:
                area = total[h] - price[h - 1] * (grid[h] - e)
            value = w * e + k * (area - before)
            if value < best:
                best, found = value, e - p
        if e >= cap:
            break
    return best, found


@helper(inline=True)
def cheapest_start(
    ask: Ask, release: float, priced: Priced, slots: int, pace: float, best: float
) -> tuple[float, float]:
    """The least cost of one allotment below `best`, and its start; `best` and -1 if none."""
    k, p, w, cap = ask
    grid, total = priced.grid, priced.total
    found = -1.0
    g = slot_of(grid, slots, pace, release)
    s = release
    while g <= slots:
        after = min(g + BLOCK, slots)
        until = np.inf if g >= slots else grid[after]
        e = s + p
        if e > cap or w * e >= best:
            break
        passed = paid_until(priced, slots, pace, e)
        h = slot_of(grid, slots, pace, grid[after] + p)
        low = priced.lowest[h] if h < slots else 0.0
        least = w * e + k * max(passed - total[after], p * low)
        if least < best:
            before = paid_until(priced, slots, pace, s)
            value = w * e + k * (passed - before)
            if value < best:
                best, found = value, s
            h = slot_of(grid, slots, pace, e)
            best, found = start_on_grid(ask, priced, g, after, h, best, found)
            best, found = end_on_grid(ask, priced, g, s, until, h, best, found)
        if g >= slots:
            break
        g, s = after, grid[after]
    return best, found


@kernel
def price_jobs(jobs: Jobs, priced: Priced, cap: float, out_mode: Ints, out_start: Floats) -> float:
    """Find each job's cheapest allotment and start; the sum of the costs.

    No job may end later than `cap`, seconds; the sum is inf where one cannot. What the answers,
    index into `procs` and seconds, hold before, such as the answers at other prices, is tried
    first; the better that is, the sooner the others are passed.
    """
    first, procs, times = jobs.first, jobs.procs, jobs.times
    slots = priced.price.size
    pace = slots / priced.grid[slots]
    cost = 0.0
    for i in range(jobs.weight.size):
        w, r = jobs.weight[i], jobs.release[i]
        best = np.inf
        a, s = out_mode[i], out_start[i]
        if first[i] <= a < first[i + 1] and r <= s and s + times[a] <= cap:
            e = s + times[a]
            best = w * e + procs[a] * (
                paid_until(priced, slots, pace, e) - paid_until(priced, slots, pace, s)
            )
        for a in range(first[i], first[i + 1]):
            ask = Ask(procs[a], times[a], w, cap)
            value, s = cheapest_start(ask, r, priced, slots, pace, best)
            if s >= 0.0:
                best, out_mode[i], out_start[i] = value, a, s
        cost += best
    return cost


@kernel
def price_rows(jobs: Jobs, priced: Priced, cap: float, out_cost: Floats, out_start: Floats) -> None:
    """Find the cheapest start of every allotment; parameters as in `price_jobs`.

    `out_cost`, `out_start` (arrays, A): the answers; inf and the release where it cannot end by
    `cap`.
    """
    slots = priced.price.size
    pace = slots / priced.grid[slots]
    for i in range(jobs.weight.size):
        w, r = jobs.weight[i], jobs.release[i]
        for a in range(jobs.first[i], jobs.first[i + 1]):
            ask = Ask(jobs.procs[a], jobs.times[a], w, cap)
            value, s = cheapest_start(ask, r, priced, slots, pace, np.inf)
            out_cost[a] = value
            out_start[a] = s if s >= 0.0 else r


@kernel
def add_usage(jobs: Jobs, mode: Ints, start: Floats, grid: Floats, used: Floats) -> None:
    """Sum up the processor-seconds that these choices take in each slot."""
    slots = used.size
    pace = slots / grid[slots]
    for g in range(slots):
        used[g] = 0.0
    for i in range(mode.size):
        k, s = jobs.procs[mode[i]], start[i]
        e = s + jobs.times[mode[i]]
        g = slot_of(grid, slots, pace, s)
        while g < slots and grid[g] < e:
            used[g] += k * max(min(e, grid[g + 1]) - max(s, grid[g]), 0.0)
            g += 1


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
