"""The cost model in compiled code: loads of links, splits, reservations, arrival of data.

Compiled into all schedule builders on counts.
"""

from __future__ import annotations

from math import inf, sqrt

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.record import Floats, Ints
from coalloc.policies.kernel.state import FULL, MOST_LOAD, ROUNDING, Outcome, Problem


@helper(inline=True)
def load_units(gbps: float, procs: int, inside: int, capacity: float) -> int:
    """Equation (4) in units of the link's capacity."""
    if gbps <= 0.0 or procs <= 1 or inside == 0 or inside == procs or capacity == inf:
        return 0
    load = gbps * inside * (procs - inside) / (procs - 1)
    if load / capacity >= MOST_LOAD / FULL:
        return MOST_LOAD
    return int(load / capacity * FULL + 0.5)


@helper(inline=True)
def low_side(gbps: float, procs: int, residual: int, capacity: float) -> int:
    """As `coalloc.model.split` has it: the link admits 0..w and procs - w..procs; procs if all."""
    if gbps <= 0.0 or procs <= 1 or capacity == inf:
        return procs
    if residual < 0:
        return 0
    half = procs // 2
    if load_units(gbps, procs, half, capacity) <= residual:
        return procs
    x = residual / FULL * capacity * (procs - 1) / gbps
    t = int((procs - sqrt(max(float(procs) * procs - 4.0 * x, 0.0))) / 2.0)
    t = min(max(t, 0), half)
    while t > 0 and load_units(gbps, procs, t, capacity) > residual:
        t -= 1
    while t < half and load_units(gbps, procs, t + 1, capacity) <= residual:
        t += 1
    return t


@helper(inline=True)
def least_time(problem: Problem, item: int, mode: int, power: float) -> float:
    """Run time at this power up to the item's limit, communication left out, s."""
    seconds = problem.mode_scaled[mode] / power + problem.mode_fixed[mode]
    return min(seconds, problem.item_limit[item])


@helper(inline=True)
def data_ready(problem: Problem, out: Outcome, item: int, k: int) -> float:
    """Arrival of the parents' data at cluster k, s."""
    ready = problem.item_arrival[problem.item_apart[item], k]
    for x in range(problem.parent_first[item], problem.parent_first[item + 1]):
        parent = problem.parent[x]
        ready = max(ready, out.end[parent])
        if problem.parent_gbit[x] < 0.0:
            continue
        slowest, latency, same = inf, 0.0, True
        first = out.use_first[parent]
        for u in range(first, first + out.use_count[parent]):
            other = problem.class_cluster[out.use_class[u]]
            same = same and other == k
            slowest = min(slowest, problem.link_gbps[other])
            latency = max(latency, problem.latency[other])
        if not same:
            slowest = min(slowest, problem.link_gbps[k])
            latency = max(latency, problem.latency[k])
            delay = latency
            if problem.parent_gbit[x] > 0.0:
                delay += problem.parent_gbit[x] / slowest
            ready = max(ready, out.end[parent] + delay)
    return ready


@helper(inline=True)
def spread_ready(problem: Problem, out: Outcome, item: int, row: int) -> float:
    """Arrival of the parents' data at all clusters on which a task is spread, s."""
    ready = problem.item_release[item]
    for k in range(problem.link_gbps.size):
        if problem.wide_parts[row, k] > 0:
            ready = max(ready, problem.item_arrival[problem.item_apart[item], k])
    for x in range(problem.parent_first[item], problem.parent_first[item + 1]):
        parent, gbit = problem.parent[x], problem.parent_gbit[x]
        slowest, latency, same = inf, 0.0, True
        first = out.use_first[parent]
        for k in range(problem.link_gbps.size):
            here, theirs = problem.wide_parts[row, k] > 0, False
            for u in range(first, first + out.use_count[parent]):
                theirs |= problem.class_cluster[out.use_class[u]] == k
            same &= here == theirs
            if here or theirs:
                slowest = min(slowest, problem.link_gbps[k])
                latency = max(latency, problem.latency[k])
        delay = 0.0 if same or gbit < 0.0 else latency
        if gbit > 0.0 and not same:
            delay += gbit / slowest
        ready = max(ready, out.end[parent] + delay)
    return ready


@helper(inline=True)
def soonest(problem: Problem, out: Outcome, item: int) -> float:
    """Arrival of the parents' data at the first cluster, or at all on which a task is spread, s."""
    row, first = problem.item_wide[item], inf
    if row >= 0:
        return spread_ready(problem, out, item, row)
    for k in range(problem.link_gbps.size):
        first = min(first, data_ready(problem, out, item, k))
    return first


@helper(inline=True)
def lay_wide(problem: Problem, row: int, avail: Ints, loaded: Ints, take: Ints) -> int:
    """Give a task that is spread its processes; on how many clusters, 0 if they are not there."""
    used = 0
    for k in range(take.size):
        take[k], units = problem.wide_parts[row, k], problem.wide_units[row, k]
        if avail[k] < take[k] or (units > 0 and loaded[k] + units > FULL + ROUNDING):
            return 0
        used += take[k] > 0
    return used


@helper(inline=True)
def closes(problem: Problem, group: int, c: int, t: float) -> float:
    """Next time at or after t at which a reservation closes a class to a group, s; inf never."""
    at = inf
    for x in range(problem.closed_first[c], problem.closed_first[c + 1]):
        r = problem.closed[x]
        if problem.exempt[group, r] == 0 and problem.reserved[r, 1] > t:
            at = min(at, max(t, problem.reserved[r, 0]))
    return at


@helper(inline=True)
def shut(problem: Problem, group: int, c: int, t: float) -> bool:
    """Whether a reservation closes a class to a group at t."""
    return closes(problem, group, c, t) <= t


@helper(inline=True)
def one_cluster(
    problem: Problem,
    group: int,
    procs: int,
    size: int,
    home: int,
    avail: Ints,
    count: Ints,
    left: Ints,
    cost: Floats,
) -> int:
    """The cluster that holds all with the weakest nodes, of equal ones the fullest; -1 if none.

    Processes that are free are `avail`, of the first `size` classes `count`. A `home` of 0 and more
    is the only cluster asked. `left` and `cost` are working memory.
    """
    whole, chosen = 0, -1
    for k in range(avail.size):
        holds = avail[k] >= procs and (home < 0 or k == home)
        left[k], cost[k] = procs if holds else 0, 0.0
        whole += holds
    for x in range(size - 1 if whole > 1 else -1, -1, -1):
        c = problem.group_class[group, x]
        k = problem.class_cluster[c]
        taken = min(left[k], count[x])
        left[k] -= taken
        cost[k] += taken * problem.class_power[c]
    for k in range(avail.size):
        if avail[k] < procs or (home >= 0 and k != home):
            continue
        less = chosen < 0 or cost[k] < cost[chosen] * (1.0 - 1e-12)
        if less or (cost[k] <= cost[chosen] * (1.0 + 1e-12) and avail[k] < avail[chosen]):
            chosen = k
    return chosen


@helper(inline=True)
def onto_classes(
    problem: Problem,
    group: int,
    size: int,
    parts: Ints,
    count: Ints,
    use_class: Ints,
    use_procs: Ints,
) -> tuple[int, float, float]:
    """Lay the parts of clusters on classes, weakest first; how many, all power, and the least."""
    length, cost, weakest = 0, 0.0, inf
    for x in range(size - 1, -1, -1):
        c = problem.group_class[group, x]
        k = problem.class_cluster[c]
        taken = min(parts[k], count[x])
        if taken > 0:
            parts[k] -= taken
            use_class[length], use_procs[length] = c, taken
            length += 1
            cost += taken * problem.class_power[c]
            weakest = min(weakest, problem.class_power[c])
    return length, cost, weakest


@helper(inline=True)
def divide(
    procs: int, avail: Ints, low: Ints, upper: Ints, rank: Ints, take: Ints, best: Ints
) -> int:
    """Split over clusters: fewest, then least load (see `low_side`); how many, 0 if it cannot be.

    Processes that are free are `avail`; `low` are those that the link admits besides almost all.
    `upper`, `rank` and `take` are working memory; `best` is the answer.
    """
    clusters = avail.size
    for k in range(clusters):
        upper[k] = min(avail[k], low[k])
        # insertion keeps equal clusters in snapshot order
        j = k
        while j > 0 and upper[rank[j - 1]] < upper[k]:
            rank[j] = rank[j - 1]
            j -= 1
        rank[j] = k
    fewest, best_square = 0, 0
    for lead in range(-1, clusters):
        rest, used, square = procs, 0, 0
        for k in range(clusters):
            take[k] = 0
        if lead >= 0:
            if low[lead] < 1 or avail[lead] < procs - low[lead] or avail[lead] <= upper[lead]:
                continue
            take[lead] = avail[lead]
            rest -= avail[lead]
            used, square = 1, avail[lead] * avail[lead]
        for j in range(clusters):
            k = rank[j]
            if k != lead and rest > 0 and upper[k] > 0:
                take[k] = min(upper[k], rest)
                rest -= take[k]
                used += 1
                square += take[k] * take[k]
        better = used < fewest or (used == fewest and square > best_square)
        if rest <= 0 and (fewest == 0 or better):
            fewest, best_square = used, square
            for k in range(clusters):
                best[k] = take[k]
    return fewest
