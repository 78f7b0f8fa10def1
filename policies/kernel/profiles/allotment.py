"""Choosing clusters and classes for so many processes, once it is known what is free.

See `coalloc.model.split` for the shape of the counts that a link admits.
"""

from __future__ import annotations

from math import inf

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import divide, lay_wide, low_side
from coalloc.policies.kernel.state import FULL, ROUNDING, Problem, Scratch


@helper()
def spread(problem: Problem, scratch: Scratch, item: int, procs: int) -> int:
    """Split over clusters into best_take; the number of clusters or 0."""
    reach = 0
    for k in range(scratch.avail.size):
        reach += scratch.avail[k]
    if reach < procs:
        return 0
    gbps = problem.item_gbps[item]
    for k in range(scratch.avail.size):
        residual = FULL + ROUNDING - scratch.loaded[k]
        scratch.low[k] = low_side(gbps, procs, residual, problem.link_gbps[k])
    return divide(
        procs,
        scratch.avail,
        scratch.low,
        scratch.left,
        scratch.rank,
        scratch.take,
        scratch.best_take,
    )


@helper()
def fill(problem: Problem, scratch: Scratch, group: int, size: int) -> tuple[int, float, float]:
    """Lay best_take on classes, weakest first; how many, the power of all, and the least."""
    left = scratch.left
    for k in range(left.size):
        left[k] = scratch.best_take[k]
    length = 0
    cost = 0.0
    weakest = inf
    for x in range(size - 1, -1, -1):
        c = problem.group_class[group, x]
        k = problem.class_cluster[c]
        count = min(left[k], scratch.procs[x])
        if count > 0:
            left[k] -= count
            scratch.pick_class[length] = c
            scratch.pick_procs[length] = count
            length += 1
            cost += count * problem.class_power[c]
            weakest = min(weakest, problem.class_power[c])
    return length, cost, weakest


@helper()
def allot(problem: Problem, scratch: Scratch, item: int, procs: int, size: int) -> int:
    """Choose clusters with the first `size` classes into best_take; how many, 0 if none will do."""
    group = problem.item_group[item]
    clusters = problem.link_gbps.size
    avail = scratch.avail
    whole = 0
    for k in range(clusters):
        whole += avail[k] >= procs
    if whole > 0:
        for k in range(clusters):
            scratch.left[k] = procs if avail[k] >= procs else 0
            scratch.cost[k] = 0.0
        if whole > 1:
            for x in range(size - 1, -1, -1):
                c = problem.group_class[group, x]
                k = problem.class_cluster[c]
                count = min(scratch.left[k], scratch.procs[x])
                scratch.left[k] -= count
                scratch.cost[k] += count * problem.class_power[c]
        chosen = -1
        for k in range(clusters):
            scratch.best_take[k] = 0
            if avail[k] >= procs and (
                chosen < 0
                or scratch.cost[k] < scratch.cost[chosen] * (1.0 - 1e-12)
                or (
                    scratch.cost[k] <= scratch.cost[chosen] * (1.0 + 1e-12)
                    and avail[k] < avail[chosen]
                )
            ):
                chosen = k
        scratch.best_take[chosen] = procs
        return 1
    if problem.item_wide[item] >= 0:
        row = problem.item_wide[item]
        return lay_wide(problem, row, avail, scratch.loaded, scratch.best_take)
    if problem.item_splits[item]:
        return spread(problem, scratch, item, procs)
    return 0
