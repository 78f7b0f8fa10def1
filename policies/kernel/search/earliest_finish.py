"""Compiled mapping of items with fixed allotments: where, and when, by earliest finish time.

Notes
-----
It lists on the serial builder. An item may run on one cluster, on one of several counts of
processes, or spread in one way; of each, levels of power are tried from the strongest down, since
weaker nodes may be free sooner. Without insertion a node is free only behind everything that it has
been given: units of a class are counted, and which of its free nodes an item takes is one of two
rules. *Best fit* takes those that became free last, so that the others keep their idle time. *Least
loaded* takes those that became free first: their idle time before the item is over.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.search.serial_fit import meet, ready, run_time
from coalloc.policies.kernel.search.serial_sgs import book
from coalloc.policies.kernel.search.serial_state import Choices, SerialState
from coalloc.policies.kernel.state import FINEST, TOL


@helper(inline=True)
def weaker(state: SerialState, group: int, power: float) -> float:
    """The strongest nodes that are weaker, on the clusters that are wanted; 0 if there are none."""
    problem, site, desk, found = state.problem, state.site, state.desk, 0.0
    for k in range(problem.link_gbps.size):
        if desk.want[k] > 0:
            for c in range(site.first[k], site.first[k + 1]):
                if problem.need[group, c] > 0 and found < problem.class_power[c] < power:
                    found = problem.class_power[c]
    return found


@helper(inline=True)
def weakest(state: SerialState, group: int) -> float:
    """The power of the weakest nodes on the clusters that are wanted; inf if there are none."""
    problem, site, desk, found = state.problem, state.site, state.desk, inf
    for k in range(problem.link_gbps.size):
        if desk.want[k] > 0:
            for c in range(site.first[k], site.first[k + 1]):
                if problem.need[group, c] > 0:
                    found = min(found, problem.class_power[c])
    return found


@helper(inline=True)
def finish(state: SerialState, item: int, n: int, append: Any, limit: float) -> Any:
    """Earliest end before `limit` of `desk.want`: end, start, least power; the end is inf if none.

    Of equal ends the earlier start.
    """
    end, start, low = inf, inf, 0.0
    group, want = state.problem.item_group[item], state.desk.want
    level, first = weaker(state, group, inf), ready(state, item, want)
    last = weakest(state, group)
    tried = 0
    while level > 0.0 and first < inf:
        d = run_time(state, item, n, level, want)
        if tried == 1 and level > last:  # none of all levels starts before this
            first = meet(state, item, n, last, first, d, append)
        if first + max(d, FINEST * abs(first)) >= min(limit, end):
            break
        t = meet(state, item, n, level, first, d, append)
        ended = t + max(d, FINEST * abs(t))
        if t < inf and ended < limit and (ended < end or (ended == end and t < start)):
            end, start, low = ended, t, level
        if t <= first:
            break
        tried += 1
        level = weaker(state, group, level)
    return end, start, low


@helper(inline=True)
def spend_idle(state: SerialState, item: int) -> None:
    """Take an item's nodes before its start too: their idle time is over."""
    problem, site, desk, out = state.problem, state.site, state.desk, state.out
    first = out.use_first[item]
    for x in range(first, first + out.use_count[item]):
        c, k = out.use_class[x], 0
        while site.first[k + 1] <= c:
            k += 1
        units = out.use_procs[x] * problem.need[problem.item_group[item], c]
        s = 0
        while desk.time[k, s] < out.start[item]:
            desk.free[k, s, c - site.first[k]] = max(desk.free[k, s, c - site.first[k]] - units, 0)
            s += 1


@kernel
def map_items(
    state: SerialState, order: Any, choices: Choices, insertion: Any, least_loaded: Any
) -> int:
    """Map items in this order, each where it ends first; the places looked for.

    Parents come first; items already mapped are left where they are. With `least_loaded`, the nodes
    of a class that became free first are taken, only without insertion. Ties go to fewer processes,
    then to one cluster, then to the first. An item that finds no place is left at inf, and so are
    its children.
    """
    desk, out = state.desk, state.out
    clusters, looks, append = desk.want.size, 0, not insertion
    for x in range(order.size):
        item = order[x]
        if out.end[item] < inf:
            continue
        best, begun, fewest, low = inf, inf, 0, 0.0
        for home in range(clusters + 1):
            first = row = choices.wide_row[item]
            if home < clusters:
                first, row = choices.low[item, home], choices.high[item, home]
            while row >= first and row >= 0:
                n = choices.procs[row]
                for k in range(clusters):
                    desk.want[k] = choices.wide_want[item, k] if home == clusters else 0
                if home < clusters:
                    desk.want[home] = n
                limit = best + TOL if n < fewest else best - TOL
                end, start, level = finish(state, item, n, append, limit)
                looks += 1
                if end < inf:
                    best, begun, fewest, low = end, start, n, level
                    for k in range(clusters):
                        desk.best[k] = desk.want[k]
                row -= 1
        if best < inf:
            out.start[item], out.end[item] = begun, best
            book(state, item, fewest, low, append)
            if least_loaded and append:
                spend_idle(state, item)
    return looks
