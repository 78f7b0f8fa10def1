"""Serial scheduling on counts, with insertion: from genes to a schedule.

A schedule follows from an order that respects precedence and, for each item, where it runs and on
how many processes: each item in turn gets its earliest place in what is left. Any schedule in which
nothing can start earlier is reached so, from its own order of starts.

Notes
-----
Genes of an item: `procs`, its processes; its `home`, a cluster, `ANY` (the cluster where it ends
earliest) or `SPLIT` (`parts`, its processes on each cluster); `low`, the least power it may use.
Of a cluster the weakest free nodes of at least that power are taken.

`serial_fit` finds the earliest start. Cost: some 0.3 us an item at 20 stretches a cluster.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.annealing_loop import LIMIT, Annealing
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import shut
from coalloc.policies.kernel.search.serial_fit import asked, between, meet, ready, run_time, stretch
from coalloc.policies.kernel.search.serial_state import (
    ANY,
    APPEND,
    BLEND,
    MADE,
    PACK,
    SPLIT,
    SUM,
    Items,
    SerialGenes,
    SerialState,
)
from coalloc.policies.kernel.state import FINEST, MAKESPAN


@helper(inline=True)
def offered(items: Items, item: int, n: int) -> Any:
    """The largest count of at most n that an item may have; 0 if there is none."""
    a, b, found = items.table_first[item], items.table_first[item + 1], 0
    if a == b:
        found = n if n >= items.low[item] else 0
    for x in range(a, b):
        if items.table_procs[x] <= n:
            found = max(found, items.table_procs[x])
    return found


@helper(inline=True)
def cut(state: SerialState, k: int, t: float) -> Any:
    """The stretch that begins at t; made if there is none."""
    site, desk = state.site, state.desk
    s = stretch(desk, k, t)
    if desk.time[k, s] == t:
        return s
    width = site.first[k + 1] - site.first[k]
    for x in range(desk.rows[k], s + 1, -1):
        desk.time[k, x] = desk.time[k, x - 1]
        desk.load[k, x] = desk.load[k, x - 1]
        for j in range(width):
            desk.free[k, x, j] = desk.free[k, x - 1, j]
    desk.rows[k] += 1
    desk.time[k, s + 1] = t
    desk.load[k, s + 1] = desk.load[k, s]
    for j in range(width):
        desk.free[k, s + 1, j] = desk.free[k, s, j]
    return s + 1


@helper(inline=True)
def take(state: SerialState, item: int, low: float, append: Any) -> float:
    """Choose nodes for `desk.best`, on each cluster the weakest free ones; the weakest's power."""
    problem, site, desk, out = state.problem, state.site, state.desk, state.out
    t, latest = out.start[item], out.end[item]
    group, weakest, top = problem.item_group[item], inf, out.used[0]
    out.use_first[item] = top
    for k in range(problem.link_gbps.size):
        left = desk.best[k]
        out.parts[item, k] = left
        if left == 0:
            continue
        base, rows = site.first[k], desk.rows[k]
        begin = stretch(desk, k, t)
        for c in range(site.first[k + 1] - 1, base - 1, -1):
            need = problem.need[group, c]
            if left == 0 or need == 0 or problem.class_power[c] < low:
                continue
            least, s = desk.free[k, begin, c - base], begin
            while s < rows and (s == begin or append or desk.time[k, s] < latest):
                least = min(least, desk.free[k, s, c - base])
                within = s == begin or desk.time[k, s] < latest
                if within and shut(problem, group, c, desk.time[k, s]):
                    least = 0
                s += 1
            count = min(left, least // need)
            if count > 0:
                out.use_class[top], out.use_procs[top] = c, count
                top += 1
                left -= count
                weakest = min(weakest, problem.class_power[c])
    out.use_count[item] = top - out.use_first[item]
    out.used[0] = top
    return weakest


@helper(inline=True)
def book(state: SerialState, item: int, n: int, low: float, append: Any) -> None:
    """Take `desk.best` from out.start[item] on, and set the end."""
    problem, site, desk, out = state.problem, state.site, state.desk, state.out
    t, group = out.start[item], problem.item_group[item]
    weakest = take(state, item, low, append)
    d = run_time(state, item, n, weakest, desk.best)
    out.end[item] = t + max(d, FINEST * abs(t))
    use, last = out.use_first[item], out.used[0]
    for k in range(problem.link_gbps.size):
        if desk.best[k] > 0:
            begin = cut(state, k, t)
            ended = cut(state, k, out.end[item])
            units = asked(state, item, n, k, desk.best)
            for s in range(begin, ended):
                desk.load[k, s] += units
            while use < last and out.use_class[use] < site.first[k + 1]:
                c = out.use_class[use]
                taken = out.use_procs[use] * problem.need[group, c]
                for s in range(begin, ended):
                    desk.free[k, s, c - site.first[k]] -= taken
                use += 1


@helper(inline=True)
def seek(state: SerialState, genes: SerialGenes, item: int, flags: Any) -> int:
    """Find the place of an item; its processes, or 0 if there is none.

    Of several clusters the one where it ends earliest; then the fewest processes with which it
    starts earlier and ends no later, where `flags` ask for that.
    """
    problem, site, items = state.problem, state.site, state.items
    desk, out, clusters = state.desk, state.out, problem.link_gbps.size
    home, low, group = genes.home[item], genes.low[item], problem.item_group[item]
    chosen = 0
    out.start[item], out.end[item] = inf, inf
    tries = clusters if home == ANY else 1
    for number in range(tries):
        n, lone = genes.procs[item], home
        if home == ANY:
            lone = number
            n = offered(items, item, min(n, site.room[group, number]))
        began = inf
        while n > 0:
            power, pieces = inf, 0
            for k in range(clusters):
                desk.want[k] = 0
                if home == SPLIT:
                    desk.want[k] = genes.parts[item, k]
                elif k == lone:
                    desk.want[k] = n
                if desk.want[k] == 0:
                    continue
                pieces += 1
                for c in range(site.first[k], site.first[k + 1]):
                    if problem.need[group, c] > 0 and problem.class_power[c] >= low:
                        power = min(power, problem.class_power[c])
            if power == inf:
                break
            d = run_time(state, item, n, power, desk.want)
            if pieces > 1:
                more = between(state, item, n, desk.want)
                if more > items.overhead[item] * (d - more):
                    break
            t = ready(state, item, desk.want)
            t = meet(state, item, n, low, t, d, flags[APPEND])
            d = max(d, FINEST * abs(t)) if t < inf else d
            if t + d < out.end[item] or (t < began and t + d <= out.end[item]):
                began = t
                out.start[item], out.end[item] = t, t + d
                chosen = n
                for j in range(clusters):
                    desk.best[j] = desk.want[j]
            elif began < inf:
                break
            if flags[PACK] == 0 or home == SPLIT or t == inf:
                break
            n = offered(items, item, n - max(1, n // 8))
    return chosen


@helper()
def schedule(state: SerialState, genes: SerialGenes, annealing: Annealing, objective: int) -> float:
    """Place everything; its energy, or inf where that passes the limit or an item has no place."""
    site, items, desk, out = state.site, state.items, state.desk, state.out
    now, flags = site.time[0, 0], annealing.count
    for k in range(site.rows.size):
        desk.rows[k] = site.rows[k]
        for s in range(site.rows[k]):
            desk.time[k, s] = site.time[k, s]
            desk.load[k, s] = site.load[k, s]
            for j in range(site.first[k + 1] - site.first[k]):
                desk.free[k, s, j] = site.free[k, s, j]
    for j in range(desk.last.size):
        desk.last[j] = 0.0
    out.used[0] = 0
    limit, size = annealing.value[LIMIT], genes.order.size
    blend = annealing.value[BLEND] / max(size, 1)
    made, total, weighted = 0.0, 0.0, 0.0
    for x in range(size):
        item = genes.order[x]
        n = seek(state, genes, item, flags)
        if n == 0 or out.end[item] == inf:
            return inf
        book(state, item, n, genes.low[item], flags[APPEND])
        wait, job = out.end[item] - now, items.job[item]
        made = max(made, wait)
        total += wait
        if wait > desk.last[job]:
            weighted += items.weight[item] * (wait - desk.last[job])
            desk.last[job] = wait
        if objective == MAKESPAN:
            if max(made, wait + items.tail[item]) + blend * total > limit:
                return inf
        elif weighted > limit:
            return inf
    annealing.value[MADE], annealing.value[SUM] = made, weighted
    return made + blend * total if objective == MAKESPAN else weighted
