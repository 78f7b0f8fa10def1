"""Compiled mapping of items with fixed allotments: where, and when, by earliest finish time.

Notes
-----
The profile is a list of instants, each with the free units of every class and the load of every
link from there to the next. An item takes so many processes on each cluster (`want`), the weakest
nodes that let it end as soon as it can: for each start, levels of power are tried from the
strongest down. Without insertion a node is free only behind everything that it has been given:
units of a class are counted, and which of its free nodes an item takes is one of two rules. *Best
fit* takes those that became free last, so that the others keep their idle time. *Least loaded*
takes those that became free first: their idle time before the item is over.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.search.eft_state import Board, Ground
from coalloc.policies.kernel.state import FINEST, FULL, ROUNDING, SHORTEST, TOL


@helper(inline=True)
def locate(board: Board, t: Any) -> Any:
    """The last instant that is not after t."""
    low, high = 0, board.size[0]
    while high - low > 1:
        middle = (low + high) >> 1
        if board.time[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@helper(inline=True)
def cut(board: Board, t: Any) -> Any:
    """Make an instant at t; its place."""
    at = locate(board, t)
    if board.time[at] == t:
        return at
    size = board.size[0]
    for i in range(size, at + 1, -1):
        board.time[i] = board.time[i - 1]
        board.slot[i] = board.slot[i - 1]
    board.time[at + 1] = t
    board.slot[at + 1] = size
    old = board.slot[at]
    for c in range(board.free.shape[1]):
        board.free[size, c] = board.free[old, c]
    for k in range(board.load.shape[1]):
        board.load[size, k] = board.load[old, k]
    board.size[0] = size + 1
    return at + 1


@helper(inline=True)
def arrival(ground: Ground, board: Board, item: Any, want: Any) -> Any:
    """Earliest start of an item on these clusters, s: its release, and its parents' data."""
    ready = ground.release[item]
    for x in range(ground.parent_first[item], ground.parent_first[item + 1]):
        parent = ground.parent[x]
        delay = 0.0
        if ground.parent_gbit[x] >= 0.0:
            same, slowest = True, inf
            for k in range(want.size):
                theirs = board.spread[parent, k] > 0
                if theirs != (want[k] > 0):
                    same = False
                if theirs or want[k] > 0:
                    slowest = min(slowest, ground.link_gbps[k])
                    delay = max(delay, ground.latency[k])
            if same:
                delay = 0.0
            elif ground.parent_gbit[x] > 0.0:
                delay += ground.parent_gbit[x] / slowest
        ready = max(ready, board.end[parent] + delay)
    return ready


@helper(inline=True)
def constant(ground: Ground, board: Board, item: Any, row: Any, want: Any) -> Any:
    """Seconds of a run that do not depend on power; the loads of links are left in `units`."""
    procs, gbit, gbps = ground.procs[row], ground.gbit[row], ground.gbps[item]
    used, intra, inter = 0, 0.0, 0.0
    for k in range(want.size):
        used += want[k] > 0
    for k in range(want.size):
        board.units[k] = 0
        if want[k] == 0:
            continue
        intra = max(intra, ground.inverse_intra[k])
        if used > 1:
            outside = want[k] * (procs - want[k]) / (procs - 1)
            if gbit > 0.0:
                inter = max(inter, gbit * outside / ground.link_gbps[k])
            if gbps > 0.0 and ground.link_gbps[k] < inf:
                share = min(gbps * outside / ground.link_gbps[k], 8.0)
                board.units[k] = int(share * FULL + 0.5)
    return ground.fixed[row] + gbit * intra + inter


@helper(inline=True)
def suffices(board: Board, row: Any, want: Any) -> Any:
    """Whether `have` is enough, and no link is overloaded; who sends nothing may use a full one."""
    enough = True
    for k in range(want.size):
        load = board.load[row, k] + board.units[k]
        enough &= board.have[k] >= want[k] and (board.units[k] == 0 or load <= FULL + ROUNDING)
    return enough


@helper(inline=True)
def enter(ground: Ground, board: Board, group: Any, want: Any, at: Any, start: Any) -> Any:
    """Set the minima to one instant, and until when reservations leave the classes."""
    need = ground.need[group]
    for k in range(want.size):
        board.have[k] = 0
    row = board.slot[at]
    for z in range(ground.group_size[group]):
        c = ground.group_class[group, z]
        k = ground.class_cluster[c]
        board.least[z] = 0
        board.shut[z] = inf
        if want[k] == 0:
            continue
        for x in range(ground.closed_first[c], ground.closed_first[c + 1]):
            r = ground.closed[x]
            if ground.exempt[group, r] == 0 and ground.reserved[r, 1] > start:
                board.shut[z] = min(board.shut[z], max(start, ground.reserved[r, 0]))
        if board.shut[z] > start:
            board.least[z] = board.free[row, c] // need[c]
            board.have[k] += board.least[z]
    return suffices(board, row, want)


@helper(inline=True)
def descend(ground: Ground, board: Board, group: Any, want: Any, at: Any) -> Any:
    """Lower the minima to a later instant; whether enough is left."""
    need = ground.need[group]
    row = board.slot[at]
    for k in range(want.size):
        board.have[k] = 0
    for z in range(ground.group_size[group]):
        c = ground.group_class[group, z]
        k = ground.class_cluster[c]
        if want[k] > 0:
            board.least[z] = min(board.least[z], board.free[row, c] // need[c])
            board.have[k] += board.least[z]
    return suffices(board, row, want)


@helper(inline=True)
def begin(ground: Ground, board: Board, group: Any, want: Any) -> Any:
    """First instant behind which enough is always free; the number of instants if none."""
    at = board.size[0] - 1
    for z in range(ground.group_size[group]):
        board.least[z] = 1 << 30
    while at >= 0 and descend(ground, board, group, want, at):
        at -= 1
    return at + 1


@helper(inline=True)
def search(
    ground: Ground, board: Board, item: Any, row: Any, want: Any, insertion: Any, cutoff: Any
) -> Any:
    """Earliest end before `cutoff` with these processes on each cluster; inf if there is none.

    What it takes is left in `best_least`, and the start and the number of classes in `best`.
    """
    board.size[2] += 1
    group = ground.group[item]
    size = ground.group_size[group]
    scaled = ground.scaled[row]
    strongest = 0.0
    for z in range(size):
        c = ground.group_class[group, z]
        if want[ground.class_cluster[c]] > 0:
            strongest = ground.class_power[c]
            break
    start = arrival(ground, board, item, want)
    if strongest == 0.0 or start == inf:
        return inf
    fixed = constant(ground, board, item, row, want)
    top = max(scaled / strongest + fixed, SHORTEST)
    best = cutoff
    found = inf
    at = locate(board, start)
    if not insertion and start + top < best:
        first = begin(ground, board, group, want)
        if first > at:
            at = first
            start = board.time[at] if at < board.size[0] else inf
    closes = ground.closed.size > 0
    while start + top < best:
        jump = at + 1
        last = at
        left = enter(ground, board, group, want, at, start)
        x = 0
        while x < size and left:
            level = ground.class_power[ground.group_class[group, x]]
            while x < size and ground.class_power[ground.group_class[group, x]] == level:
                x += 1
            end = start + max(scaled / level + fixed, SHORTEST, FINEST * abs(start))
            if end >= best:
                break
            short = False
            while last + 1 < board.size[0] and (board.time[last + 1] < end or not insertion):
                last += 1
                if not descend(ground, board, group, want, last):
                    short = True
                    break
            if short:
                # whoever begins before this instant, and as late as now, meets it as well
                if board.time[last] < start + top and not closes:
                    jump = last + 1
                break
            for k in range(want.size):
                board.have[k] = 0
            for z in range(x):
                if board.shut[z] >= end:
                    board.have[ground.class_cluster[ground.group_class[group, z]]] += board.least[z]
            left = True
            for k in range(want.size):
                left = left and board.have[k] >= want[k]
            if left:
                best, found = end, end
                board.best[1], board.best[2] = start, x
                for z in range(x):
                    board.best_least[z] = board.least[z] if board.shut[z] >= end else 0
                break
            left = True
        at = jump
        if at >= board.size[0]:
            break
        start = board.time[at]
    return found


@helper(inline=True)
def commit(ground: Ground, board: Board, item: Any, least_loaded: Any) -> Any:
    """Take what the best search found, the weakest classes first."""
    group = ground.group[item]
    row = int(board.best[3])
    start, end = board.best[1], board.best[0]
    first = board.size[1]
    top = first
    want = board.want
    for k in range(want.size):
        want[k] = board.best_want[k]
        board.spread[item, k] = want[k]
    for z in range(int(board.best[2]) - 1, -1, -1):
        c = ground.group_class[group, z]
        k = ground.class_cluster[c]
        take = min(want[k], board.best_least[z])
        if take > 0:
            want[k] -= take
            board.use_class[top] = c
            board.use_procs[top] = take
            top += 1
    board.size[1] = top
    board.use_first[item], board.use_count[item] = first, top - first
    board.start[item], board.end[item], board.row[item] = start, end, row
    constant(ground, board, item, row, board.best_want)
    at = cut(board, start)
    cut(board, end)
    if least_loaded:
        for x in range(at):
            line = board.slot[x]
            for u in range(first, top):
                c = board.use_class[u]
                units = board.use_procs[u] * ground.need[group, c]
                board.free[line, c] = max(board.free[line, c] - units, 0)
    while board.time[at] < end:
        line = board.slot[at]
        for u in range(first, top):
            c = board.use_class[u]
            board.free[line, c] -= board.use_procs[u] * ground.need[group, c]
        for k in range(want.size):
            board.load[line, k] += board.units[k]
        at += 1


@kernel
def reset(ground: Ground, board: Board) -> Any:
    """Empty the board but for what runs now."""
    for i in range(ground.base_time.size):
        board.time[i] = ground.base_time[i]
        board.slot[i] = i
        for c in range(ground.base_free.shape[1]):
            board.free[i, c] = ground.base_free[i, c]
        for k in range(ground.base_load.shape[1]):
            board.load[i, k] = ground.base_load[i, k]
    board.size[0], board.size[1] = ground.base_time.size, 0
    items = board.start.size
    for item in range(items):
        board.start[item] = inf
        board.end[item] = inf
    for x in range(ground.begun_end.size):
        board.end[items + x] = ground.begun_end[x]
        for k in range(board.spread.shape[1]):
            board.spread[items + x, k] = ground.begun_spread[x, k]


@kernel
def lay_out(
    ground: Ground,
    board: Board,
    order: Any,
    low: Any,
    high: Any,
    wide_row: Any,
    wide_want: Any,
    insertion: Any,
    least_loaded: Any,
) -> Any:
    """Map items in this order, each where it ends first; the makespan's instant, s.

    Parameters
    ----------
    order : array of int
        Items, parents first; those already mapped are left where they are.
    low, high : array of int, N x K
        Rows that each item may take on each single cluster; none where high < low.
    wide_row : array of int, N
        A row that it may also take spread over clusters; -1: none.
    wide_want : array of int, N x K
        The processes on each cluster then.
    least_loaded : bool
        Of a class, take the nodes that became free first; only without insertion.

    Notes
    -----
    Ties go to fewer processes, then to one cluster, then to the first. One that finds no place is
    left at inf, and so are its children.
    """
    latest = ground.base_time[0]
    clusters = board.have.size
    for x in range(order.size):
        item = order[x]
        if board.end[item] < inf:
            latest = max(latest, board.end[item])
            continue
        best, fewest = inf, 0
        for home in range(clusters + 1):
            first, row = wide_row[item], wide_row[item]
            if home < clusters:
                first, row = low[item, home], high[item, home]
            while row >= first and row >= 0:
                for k in range(clusters):
                    board.want[k] = 0
                    if home == clusters:
                        board.want[k] = wide_want[item, k]
                if home < clusters:
                    board.want[home] = ground.procs[row]
                limit = best + TOL if ground.procs[row] < fewest else best - TOL
                end = search(ground, board, item, row, board.want, insertion, limit)
                if end < inf:
                    best, fewest = end, ground.procs[row]
                    board.best[0], board.best[3] = end, row
                    for k in range(clusters):
                        board.best_want[k] = board.want[k]
                row -= 1
        if best < inf:
            commit(ground, board, item, least_loaded and not insertion)
            latest = max(latest, best)
    return latest
