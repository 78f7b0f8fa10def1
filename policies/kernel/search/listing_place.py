"""Place of a listed item that starts now: clusters, classes, and its end (see `listing`)."""

from __future__ import annotations

from math import inf

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import (
    closes,
    data_ready,
    divide,
    lay_wide,
    low_side,
    one_cluster,
    onto_classes,
    soonest,
)
from coalloc.policies.kernel.search.listing_state import HELD, LENGTH, LOADS, ListingState
from coalloc.policies.kernel.state import FINEST, FULL, ROUNDING, SHORTEST, Problem


@helper(inline=True)
def foresee(state: ListingState, row: int, end: float) -> None:
    """Lower what is free, and raise the load, to what the rows until `end` leave."""
    rows, desk = state.rows, state.desk
    for c in range(desk.free.size):
        desk.least[c] = desk.free[c]
    for k in range(desk.load.size):
        desk.ahead[k] = desk.load[k]
    for r in range(row + 1, rows.time.size):
        if rows.time[r] >= end:
            break
        for c in range(desk.free.size):
            count = desk.free[c] + rows.free[r, c] - rows.free[row, c]
            desk.least[c] = min(desk.least[c], count)
        for k in range(desk.load.size):
            units = desk.load[k] + rows.load[r, k] - rows.load[row, k]
            desk.ahead[k] = max(desk.ahead[k], units)


@helper(inline=True)
def choose(state: ListingState, item: int, procs: int, size: int, home: int, sc: float) -> bool:
    """Write into desk.best how many processes each cluster gets; False if there is no way."""
    problem, desk, clusters = state.problem, state.desk, state.desk.best.size
    group = problem.item_group[item]
    chosen = one_cluster(
        problem, group, procs, size, home, desk.avail, desk.count, desk.take, desk.cost
    )
    for k in range(clusters):
        desk.best[k] = procs if k == chosen else 0
    if chosen >= 0:
        desk.counters[LOADS] = 0
        return True
    if home != -1 or not problem.item_splits[item]:
        return False
    if problem.item_wide[item] >= 0:
        row = problem.item_wide[item]
        for k in range(clusters):  # what the link may carry for those that load it already
            desk.low[k] = desk.ahead[k] + max(FULL - desk.limit[k], 0)
        desk.counters[LOADS] = 1
        return lay_wide(problem, row, desk.avail, desk.low, desk.best) > 0
    gbps = problem.item_gbps[item]
    for k in range(clusters):
        most = min(int(sc * FULL), desk.limit[k]) + ROUNDING
        desk.low[k] = low_side(gbps, procs, most - desk.ahead[k], problem.link_gbps[k])
    desk.counters[LOADS] = 1 if gbps > 0.0 else 0
    return divide(procs, desk.avail, desk.low, desk.upper, desk.rank, desk.take, desk.best) > 0


@helper(inline=True)
def powers_of(problem: Problem, level: int) -> tuple[float, float]:
    """The least and the greatest power that an item of this level may use; 0 and inf: any."""
    lowest, highest = 0.0, inf
    if level >= 0:
        lowest = problem.class_power[level % problem.class_power.size]
        if level >= problem.class_power.size:
            highest = lowest
    return lowest, highest


@helper(inline=True)
def count_ahead(
    state: ListingState, group: int, size: int, highest: float, t: float, row: int, end: float
) -> int:
    """Count the processes that the first classes hold from t until `end`, in all and by cluster."""
    problem, desk = state.problem, state.desk
    foresee(state, row, end)
    total = 0
    for k in range(desk.avail.size):
        desk.avail[k] = 0
    for x in range(size):
        c = problem.group_class[group, x]
        count = desk.least[c] // problem.need[group, c]
        if problem.class_power[c] > highest or (
            problem.closed_first[c] < problem.closed_first[c + 1]
            and closes(problem, group, c, t) < end
        ):
            count = 0
        desk.count[x] = max(count, 0)
        desk.avail[problem.class_cluster[c]] += desk.count[x]
        total += desk.count[x]
    return total


@helper(inline=True)
def try_now(state: ListingState, item: int, t: float, row: int, only: int) -> float:
    """End of an item that starts now, or inf; what it takes is left in use_class and use_procs."""
    problem, rows, genes, desk = state.problem, state.rows, state.genes, state.desk
    group, home = problem.item_group[item], desk.home[item]
    if only >= 0:
        home = only
    mode = problem.mode_first[item] + genes.mode[item]
    procs = problem.mode_procs[mode]
    scaled, fixed = problem.mode_scaled[mode], problem.mode_fixed[mode]
    sc, limit = genes.sc[item], problem.item_limit[item]
    if only >= 0:
        fixed += problem.mode_comm[mode] * problem.inverse_intra[only]
    shortest = max(SHORTEST, FINEST * abs(t))
    lowest, highest = powers_of(problem, desk.level[item])
    size = problem.group_size[group]
    bare = rows.dips[row] == 0 and problem.closed.size == 0
    for k in range(desk.avail.size):
        desk.avail[k] = 0
        desk.ahead[k] = desk.load[k]
    total = 0
    for y in range(size):
        c = problem.group_class[group, y]
        power = problem.class_power[c]
        if bare:
            desk.count[y] = 0
            if power <= highest:
                desk.count[y] = desk.free[c] // problem.need[group, c]
            desk.avail[problem.class_cluster[c]] += desk.count[y]
            total += desk.count[y]
        last = y + 1 == size
        if not last:
            after = problem.class_power[problem.group_class[group, y + 1]]
            if after == power or after >= lowest > 0.0 or (bare and total < procs):
                continue
        if not bare:
            end = t + max(min(scaled / power + fixed * sc, limit), shortest)
            total = count_ahead(state, group, y + 1, highest, t, row, end)
        if total >= procs and choose(state, item, procs, y + 1, home, sc):
            desk.counters[LENGTH], desk.measure[HELD], weakest = onto_classes(
                problem, group, y + 1, desk.best, desk.count, desk.use_class, desk.use_procs
            )
            if desk.counters[LOADS] == 0:
                sc = 1.0
            return t + max(min(scaled / weakest + fixed * sc, limit), shortest)
        if lowest > 0.0:
            return inf
    return inf


@helper(inline=True)
def best_now(state: ListingState, item: int, t: float, row: int) -> float:
    """`try_now`; for what moves data, on the first cluster that the data have reached."""
    problem, desk, out = state.problem, state.desk, state.out
    if problem.item_apart[item] < 0:
        return try_now(state, item, t, row, -1)
    if problem.item_wide[item] >= 0:
        ready = soonest(problem, out, item)
        if ready <= t:
            return try_now(state, item, t, row, -1)
        desk.ready[item] = ready
        return inf
    earliest = inf
    for k in range(problem.link_gbps.size):
        if desk.home[item] >= 0 and desk.home[item] != k:
            continue
        ready = data_ready(problem, out, item, k)
        if ready <= t:
            end = try_now(state, item, t, row, k)
            if end < inf:
                return end
        else:
            earliest = min(earliest, ready)
    if earliest < inf:
        desk.ready[item] = earliest
    return inf
