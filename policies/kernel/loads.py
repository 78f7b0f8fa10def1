"""What processes load a link with, how many it admits, and when data have come over it.

Compiled into the decoders and into `listing` alike.
"""

from __future__ import annotations

from math import inf, sqrt

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.state import FULL, MOST_LOAD, Outcome, Problem


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
    """The count w of `split`: the link admits 0..w and procs - w..procs; procs if all."""
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
def data_ready(problem: Problem, out: Outcome, item: int, k: int) -> float:
    """When the parents' data have reached cluster k, s."""
    ready = problem.item_arrival[item, k]
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
