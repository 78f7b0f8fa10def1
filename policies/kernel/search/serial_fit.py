"""The earliest start of an item in what the serial builder has left, and its run time.

Each cluster has its own profile: stretches of time with the free units of each of its classes, and
the load of its link. An item on several clusters starts where all of them have room at once.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import load_units, shut
from coalloc.policies.kernel.search.serial_state import Items, SerialDesk, SerialState
from coalloc.policies.kernel.state import FINEST, FULL, ROUNDING, SHORTEST


@helper(inline=True)
def seconds(items: Items, item: int, n: int, power: float) -> Any:
    """Run time on n processes of this power, s, but for communication; inf if n is not offered."""
    a, b = items.table_first[item], items.table_first[item + 1]
    if a == b:
        scaled = items.scaled[item, 0] + items.scaled[item, 1] / n
        return scaled / power + items.fixed[item, 0] + items.fixed[item, 1] / n
    for x in range(a, b):
        if items.table_procs[x] == n:
            return items.table_scaled[x] / power + items.table_fixed[x]
    return inf


@helper(inline=True)
def crossing(state: SerialState, item: int, n: int, k: int, want: Any) -> Any:
    """Seconds that a cluster's idle link takes for what a task on several sends over it."""
    problem, items = state.problem, state.items
    if items.comm[item] <= 0.0 or want[k] == 0 or want[k] >= n:
        return 0.0
    gbit = items.comm[item] * (want[k] / n) * ((n - want[k]) / (n - 1.0))
    link = problem.link_gbps[k]
    return gbit / link if link > 0.0 else inf


@helper(inline=True)
def between(state: SerialState, item: int, n: int, want: Any) -> float:
    """Seconds that a task's communication between clusters takes."""
    longest = 0.0
    for k in range(want.size):
        longest = max(longest, crossing(state, item, n, k, want))
    return longest


@helper(inline=True)
def asked(state: SerialState, item: int, n: int, k: int, want: Any) -> Any:
    """Load of a link in its units: a job's by equation (4), a task's at its slowest link's pace."""
    problem, items = state.problem, state.items
    if items.comm[item] <= 0.0 or items.books[0] == 0:
        return load_units(problem.item_gbps[item], n, want[k], problem.link_gbps[k])
    seconds = crossing(state, item, n, k, want)
    if seconds <= 0.0:
        return 0
    return int(seconds / between(state, item, n, want) * FULL + 0.5)


@helper(inline=True)
def stretch(desk: SerialDesk, k: int, t: float) -> Any:
    """The stretch of a cluster's profile that holds t."""
    a, b = 0, desk.rows[k]
    while b - a > 1:
        middle = (a + b) // 2
        if desk.time[k, middle] <= t:
            a = middle
        else:
            b = middle
    return a


@helper(inline=True)
def behind(state: SerialState, group: int, k: int, n: int, low: float, ask: int) -> Any:
    """The first stretch from which on n processes are always free, but for reservations."""
    problem, site, desk = state.problem, state.site, state.desk
    base, last = site.first[k], site.first[k + 1]
    for c in range(base, last):
        desk.least[c] = 1 << 60
    s = desk.rows[k]
    while s > 0 and (ask == 0 or desk.load[k, s - 1] + ask <= FULL + ROUNDING):
        total = 0
        for c in range(base, last):
            if problem.need[group, c] > 0 and problem.class_power[c] >= low:
                desk.least[c] = min(desk.least[c], desk.free[k, s - 1, c - base])
                total += desk.least[c] // problem.need[group, c]
        if total < n:
            break
        s -= 1
    return s


@helper(inline=True)
def look(
    state: SerialState, item: int, procs: int, k: int, low: float, t: float, d: float, append: Any
) -> Any:
    """Earliest start from t on of `desk.want` on one cluster, for d seconds; inf never.

    With `append` they are free behind that, too, but for reservations.
    """
    problem, site, desk = state.problem, state.site, state.desk
    base, last, rows = site.first[k], site.first[k + 1], desk.rows[k]
    group, n = problem.item_group[item], desk.want[k]
    ask = asked(state, item, procs, k, desk.want)
    begin = stretch(desk, k, t)
    if append:
        begin = max(begin, behind(state, group, k, n, low, ask))
        if problem.closed.size == 0:
            return max(t, desk.time[k, begin]) if begin < rows else inf
    while begin < rows:
        t = max(t, desk.time[k, begin])
        for c in range(base, last):
            desk.least[c] = 1 << 60
        s, after = begin, -1
        while s < rows and (s == begin or append or desk.time[k, s] < t + d):
            total, here, within = 0, 0, s == begin or desk.time[k, s] < t + d
            for c in range(base, last):
                need = problem.need[group, c]
                if need == 0 or problem.class_power[c] < low:
                    continue
                free = desk.free[k, s, c - base]
                if within and shut(problem, group, c, desk.time[k, s]):
                    free = 0
                here += free // need
                desk.least[c] = min(desk.least[c], free)
                total += desk.least[c] // need
            if here < n or (ask > 0 and desk.load[k, s] + ask > FULL + ROUNDING):
                after = s + 1
                break
            if total < n:
                after = begin + 1
                break
            s += 1
        if after < 0:
            return t
        begin = after
    return inf


@helper(inline=True)
def ready(state: SerialState, item: int, want: Any) -> float:
    """Release of an item, and arrival of the data of all parents where it is wanted, s."""
    problem, out = state.problem, state.out
    t = problem.item_release[item]
    for x in range(problem.parent_first[item], problem.parent_first[item + 1]):
        parent, gbit = problem.parent[x], problem.parent_gbit[x]
        delay = 0.0
        if gbit >= 0.0:
            same, slowest, latency = True, inf, 0.0
            for k in range(problem.link_gbps.size):
                theirs, here = out.parts[parent, k] > 0, want[k] > 0
                same &= theirs == here
                if theirs or here:
                    slowest = min(slowest, problem.link_gbps[k])
                    latency = max(latency, problem.latency[k])
            if not same:
                delay = latency
                if gbit > 0.0:
                    delay += gbit / slowest if slowest > 0.0 else inf
        t = max(t, out.end[parent] + delay)
    return t


@helper(inline=True)
def run_time(state: SerialState, item: int, n: int, power: float, want: Any) -> float:
    """Seconds on n processes of this power, with communication in and between clusters; inf never.

    No longer than its limit, where it can run at all.
    """
    items, slowest = state.items, 0.0
    for k in range(want.size):
        if want[k] > 0:
            slowest = max(slowest, state.problem.inverse_intra[k])
    d = seconds(items, item, n, power) + items.comm[item] / n * slowest
    d += between(state, item, n, want)
    return max(min(d, items.limit[item]), SHORTEST) if d < inf else inf


@helper(inline=True)
def meet(state: SerialState, item: int, n: int, low: float, t: float, d: float, append: Any) -> Any:
    """Earliest start from t on, on all clusters at once, of `desk.want` for d seconds."""
    desk, clusters, pieces, good, k = state.desk, state.desk.want.size, 0, 0, 0
    for j in range(clusters):
        pieces += desk.want[j] > 0
    while good < pieces and t < inf:
        if d < FINEST * abs(t):  # too short so far from 0, and all is looked at again
            d, good = 2.0 * FINEST * abs(t), 0
        if desk.want[k] > 0:
            at = look(state, item, n, k, low, t, d, append)
            good = good + 1 if at == t else 1
            t = at
        k = k + 1 if k + 1 < clusters else 0
    return t
