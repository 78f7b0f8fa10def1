"""List scheduling on counts, for searches: an order and a few choices per item to a schedule.

Where the decoders of `decoders` keep a whole profile over time, this one keeps the present only:
what is free now, who runs, and what `Rows` say comes later by itself. At each event the waiting
items are scanned by order, and what fits starts. That is ten times faster, and with one more choice
it loses nothing: an item that *blocks* stops the scan while it does not fit, so that an order by
start in which everything blocks gives any schedule whose items cannot start earlier.

Notes
-----
Choices of an item: its *mode*; the *level*, a class whose power is the least it may use (plus the
number of classes: the only one it may use), -1 the most powerful nodes that are free (weak nodes
are taken first among those allowed); its *home*, the one cluster it runs
on, -1 any, -2 any but only one; whether it *blocks*; and `sc`, by which its communication may
be slowed down: a link takes capacity * min sc of those that load it (SC_j of the papers, fixed
for the whole run).

What `Rows` take away later (jobs booked ahead) is kept free from the start of an item on, together
with all that runs then, even if some of that will have ended: allowed, if not always the best.

Where a level or a home leaves an item no place at all, it is listed as if it had none; the choices
themselves are never written.

Cost: a waiting item that obviously does not fit costs some ns an event, a start about 0.2 us.
"""

from __future__ import annotations

from math import inf

import numpy as np

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import load_units, soonest
from coalloc.policies.kernel.search.listing_place import best_now
from coalloc.policies.kernel.search.listing_state import (
    BLEND,
    HELD,
    LENGTH,
    LOADS,
    MADE,
    RUNNING,
    STARTED,
    USED,
    ListingDesk,
    ListingState,
)
from coalloc.policies.kernel.state import FULL, MAKESPAN, MOST_LOAD, TOL, WEIGHING


@helper(inline=True)
def start(state: ListingState, item: int, t: float, end: float) -> None:
    """Book what `try_now` found, and tell the children."""
    problem, genes, desk, out = state.problem, state.genes, state.desk, state.out
    first = desk.counters[USED]
    length = desk.counters[LENGTH]
    group, clusters = problem.item_group[item], problem.link_gbps.size
    procs = 0
    for k in range(clusters):
        desk.take[k] = 0
    for u in range(length):
        c = desk.use_class[u]
        out.use_class[first + u] = c
        out.use_procs[first + u] = desk.use_procs[u]
        desk.free[c] -= desk.use_procs[u] * problem.need[group, c]
        desk.take[problem.class_cluster[c]] += desk.use_procs[u]
        procs += desk.use_procs[u]
    desk.power[item] = desk.measure[HELD]
    out.start[item], out.end[item] = t, end
    out.mode[item] = genes.mode[item]
    out.use_first[item], out.use_count[item] = first, length
    desk.counters[USED] += length
    out.missing[item] = desk.counters[LOADS]
    if desk.counters[LOADS] > 0:
        for k in range(clusters):
            units = load_units(problem.item_gbps[item], procs, desk.take[k], problem.link_gbps[k])
            if problem.item_wide[item] >= 0:
                units = problem.wide_units[problem.item_wide[item], k]
            desk.units[item, k] = units
            desk.load[k] += units
            if units > 0:
                desk.limit[k] = min(desk.limit[k], int(genes.sc[item] * FULL))
    count = desk.counters[RUNNING]
    while count > 0 and out.end[desk.running[count - 1]] < end:
        desk.running[count] = desk.running[count - 1]
        count -= 1
    desk.running[count] = item
    desk.counters[RUNNING] += 1
    for x in range(problem.child_first[item], problem.child_first[item + 1]):
        child = problem.child[x]
        desk.missing[child] -= 1
        if desk.missing[child] == 0:
            if problem.item_apart[child] >= 0:
                desk.ready[child] = soonest(problem, out, child)
            else:
                desk.ready[child] = problem.item_release[child]
                for y in range(problem.parent_first[child], problem.parent_first[child + 1]):
                    at = out.end[problem.parent[y]]
                    desk.ready[child] = max(desk.ready[child], at)


@helper(inline=True)
def finish(state: ListingState, t: float) -> float:
    """Give back what ends by t; the power that is free again."""
    problem, genes, desk, out = state.problem, state.genes, state.desk, state.out
    clusters = problem.link_gbps.size
    loads, gone = False, 0.0
    while desk.counters[RUNNING] > 0:
        item = desk.running[desk.counters[RUNNING] - 1]
        if out.end[item] > t:
            break
        desk.counters[RUNNING] -= 1
        gone += desk.power[item]
        group, first = problem.item_group[item], out.use_first[item]
        for u in range(first, first + out.use_count[item]):
            c = out.use_class[u]
            desk.free[c] += out.use_procs[u] * problem.need[group, c]
        if out.missing[item] > 0:
            loads = True
            for k in range(clusters):
                desk.load[k] -= desk.units[item, k]
    if loads:
        for k in range(clusters):
            desk.limit[k] = MOST_LOAD
        for x in range(desk.counters[RUNNING]):
            item = desk.running[x]
            if out.missing[item] > 0:
                for k in range(clusters):
                    if desk.units[item, k] > 0:
                        desk.limit[k] = min(desk.limit[k], int(genes.sc[item] * FULL))
    return gone


@helper(inline=True)
def open_desk(state: ListingState) -> float:
    """Make everything as it is before the first event; the least area of what is listed."""
    problem, rows, genes = state.problem, state.rows, state.genes
    desk, out = state.desk, state.out
    for x in range(desk.counters.size):
        desk.counters[x] = 0
    desk.counters[USED] = rows.first_use[0]
    for c in range(desk.free.size):
        desk.free[c] = rows.free[0, c]
    for k in range(desk.load.size):
        desk.load[k] = rows.load[0, k]
        desk.limit[k] = MOST_LOAD
    for x in range(desk.last.size):
        desk.last[x] = 0.0
    area = 0.0
    order = genes.order
    for x in range(order.size):
        item = order[x]
        desk.follows[x] = x + 1
        desk.level[item], desk.home[item] = genes.level[item], genes.home[item]
        desk.procs[x] = problem.mode_procs[problem.mode_first[item] + genes.mode[item]]
        out.start[item] = np.nan
        out.end[item] = np.nan
        out.missing[item] = 0
        desk.missing[item] = rows.missing[item]
        desk.ready[item] = rows.ready[item]
        area += rows.area[item]
    return area


@helper(inline=True)
def go_on(state: ListingState, row: int, t: float) -> int:
    """Take over the rows up to t; the last of them."""
    rows, desk = state.rows, state.desk
    while row + 1 < rows.time.size and rows.time[row + 1] <= t:
        row += 1
        for c in range(desk.free.size):
            desk.free[c] += rows.free[row, c] - rows.free[row - 1, c]
        for k in range(desk.load.size):
            desk.load[k] += rows.load[row, k] - rows.load[row - 1, k]
    return row


@helper(inline=True)
def scan(state: ListingState, t: float, row: int, head: int) -> tuple[int, float]:
    """Start what fits now; where the list begins then, and when the next item becomes ready."""
    problem, genes, desk = state.problem, state.genes, state.desk
    order, follows = genes.order, desk.follows
    total = 0
    for c in range(desk.free.size):
        total += max(desk.free[c], 0) // problem.class_grain[c]
    wake = inf
    before, x = -1, head
    while x < order.size:
        after = follows[x]
        item = order[x]
        if desk.procs[x] <= total or genes.block[item] > 0:
            if desk.ready[item] > t:
                wake = min(wake, desk.ready[item])
            else:
                end = inf
                if desk.procs[x] <= total:
                    end = best_now(state, item, t, row)
                if end < inf:
                    start(state, item, t, end)
                    total -= desk.procs[x]
                    if before < 0:
                        head = after
                    else:
                        follows[before] = after
                    desk.counters[STARTED] += 1
                    desk.started[desk.counters[STARTED] - 1] = item
                    x = after
                    continue
                if desk.ready[item] > t:  # its data are on their way
                    wake = min(wake, desk.ready[item])
                elif genes.block[item] > 0:
                    break
        elif desk.ready[item] > t:
            wake = min(wake, desk.ready[item])
        before, x = x, after
    return head, wake


@helper(inline=True)
def weigh(
    state: ListingState, item: int, length: float, value: float, waiting: float
) -> tuple[float, float]:
    """Weighted completion, and the weight of what has not begun, with an item that ends so late."""
    rows, desk = state.rows, state.desk
    job = rows.job[item]
    if desk.last[job] == 0.0:
        waiting -= rows.weight[item]
    if length > desk.last[job]:
        value += rows.weight[item] * (length - desk.last[job])
        desk.last[job] = length
    return value, waiting


@helper(inline=True)
def upcoming_event(state: ListingState, row: int, wake: float) -> float:
    """Time of the next event: an item is ready or ends, or a row begins; inf if there is none."""
    rows, desk, out, upcoming = state.rows, state.desk, state.out, wake
    if desk.counters[RUNNING] > 0:
        upcoming = min(upcoming, out.end[desk.running[desk.counters[RUNNING] - 1]])
    if row + 1 < rows.time.size:
        upcoming = min(upcoming, rows.time[row + 1])
    return upcoming


@helper(inline=True)
def free_choices(desk: ListingDesk, item: int) -> bool:
    """Let an item that finds no place do without its level and home; False if it had none."""
    if desk.level[item] < 0 and desk.home[item] == -1:
        return False
    desk.level[item], desk.home[item] = -1, -1
    return True


@helper(inline=True)
def listing(state: ListingState, objective: int, cutoff: float, latest: float) -> float:
    """List everything; its energy, or inf where that passes `cutoff` or an end `latest`.

    The energy is the weighted completion, or makespan + blend * (power * seconds held by items or
    left idle before the last start) / power of all. The second term falls where a change saves room
    though the makespan stays: without it most changes of a large queue look alike.
    The makespan alone is left in desk.measure; `out.missing` says which items load links.
    """
    rows, desk, out = state.rows, state.desk, state.out
    now = rows.time[0]
    least = open_desk(state)
    size = state.genes.order.size
    able = max(rows.able[0], 1e-12)
    blend = desk.measure[BLEND] if objective == MAKESPAN else 0.0
    horizon = latest
    if objective == MAKESPAN:
        horizon = min(latest, now + cutoff)
    room = able * (horizon - now)
    made, value, waiting = 0.0, 0.0, rows.weight_sum[0]
    busy, done = 0.0, 0
    t, row, head = now, 0, 0
    while True:
        row = go_on(state, row, t)
        head, wake = scan(state, t, row, head)
        while done < desk.counters[STARTED]:
            item = desk.started[done]
            done += 1
            end = out.end[item]
            if end > horizon + TOL:
                return inf
            busy += desk.power[item]
            least += desk.power[item] * (end - t) - rows.area[item]
            if objective == WEIGHING:
                value, waiting = weigh(state, item, end - now, value, waiting)
            made = max(made, end - now)
        if objective == MAKESPAN:
            value = made + blend * least / able
            if value > cutoff:
                return inf
        if done == size:
            desk.measure[MADE] = made
            return value
        upcoming = upcoming_event(state, row, wake)
        if upcoming == inf:  # nothing will change
            if not free_choices(desk, state.genes.order[head]):
                return inf
            continue
        least += (able - busy) * (upcoming - t)
        if least * (1.0 + blend) > room * (1.0 + 1e-12):
            return inf
        if objective == WEIGHING and value + waiting * (upcoming - now) > cutoff:
            return inf
        t = upcoming
        busy -= finish(state, t)
