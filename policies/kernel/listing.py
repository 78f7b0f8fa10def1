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

Cost: a waiting item that obviously does not fit costs some ns an event, a start about 0.2 us.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import part
from coalloc.policies.kernel.state import FULL, ROUNDING, SHORTEST, TOL, Outcome, Problem

MAKESPAN, WEIGHTED = 0, 1
MADE, BLEND, HELD = 0, 1, 2
LENGTH, LOADS, RUNNING, USED, STARTED = 0, 1, 2, 3, 4


class Rows(NamedTuple):
    """What is free before anything is listed, T stretches of time; never written by a kernel."""

    time: Any  # T
    free: Any  # T x C, units
    load: Any  # T x K, units of a link's capacity
    dips: Any  # T: something becomes less after this row
    able: Any  # 1, power of all usable slots
    weight: Any  # N
    weight_sum: Any  # 1, of the jobs listed
    job: Any  # N, place in the queue
    area: Any  # N, least power * s
    ready: Any  # N, s
    missing: Any  # N, parents without a place
    first_use: Any  # 1, where the uses of listed items may begin


class Genes(NamedTuple):
    """What a search chooses."""

    order: Any  # L
    mode: Any  # N
    level: Any  # N
    home: Any  # N
    block: Any  # N
    sc: Any  # N


class Desk(NamedTuple):
    """Working memory."""

    free: Any  # C
    least: Any  # C
    avail: Any  # K
    low: Any  # K
    upper: Any  # K
    rank: Any  # K
    take: Any  # K
    best: Any  # K
    load: Any  # K
    ahead: Any  # K
    limit: Any  # K
    cost: Any  # K
    count: Any  # C, processes that each allowed class takes
    use_class: Any  # C
    use_procs: Any  # C
    follows: Any  # L
    procs: Any  # L, by order
    started: Any  # L
    running: Any  # L, by falling end
    units: Any  # N x K, load of a running item
    ready: Any  # N
    missing: Any  # N
    last: Any  # jobs, latest end
    power: Any  # N, power that a running item holds
    measure: Any  # MADE, s; BLEND, see `listing`; HELD, power of what `lay` laid
    counters: Any  # 8


@part
def units_of(gbps: float, procs: int, inside: int, capacity: float) -> int:
    """Equation (4) in units of the link's capacity."""
    if gbps <= 0.0 or procs <= 1 or inside == 0 or inside == procs or capacity == inf:
        return 0
    load = gbps * inside * (procs - inside) / (procs - 1)
    if load >= 64.0 * capacity:
        return 64 * FULL
    return int(load / capacity * FULL + 0.5)


@part
def low_count(gbps: float, procs: int, room: int, capacity: float) -> int:
    """The count w of `split`: the link admits 0..w and procs - w..procs; procs if all."""
    if gbps <= 0.0 or procs <= 1 or capacity == inf:
        return procs
    if room < 0:
        return 0
    half = procs // 2
    if units_of(gbps, procs, half, capacity) <= room:
        return procs
    x = room / FULL * capacity * (procs - 1) / gbps
    t = int((procs - sqrt(max(float(procs) * procs - 4.0 * x, 0.0))) / 2.0)
    t = min(max(t, 0), half)
    while t > 0 and units_of(gbps, procs, t, capacity) > room:
        t -= 1
    while t < half and units_of(gbps, procs, t + 1, capacity) <= room:
        t += 1
    return t


@part
def divide(procs: int, desk: Desk) -> bool:
    """Split over clusters into desk.best: fewest, then least load (see `split`)."""
    clusters = desk.avail.size
    avail, upper, low, rank, take = desk.avail, desk.upper, desk.low, desk.rank, desk.take
    for k in range(clusters):
        upper[k] = min(avail[k], low[k])
        j = k
        while j > 0 and upper[rank[j - 1]] < upper[k]:
            rank[j] = rank[j - 1]
            j -= 1
        rank[j] = k
    best, best_square = 0, 0
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
        if rest <= 0 and (best == 0 or used < best or (used == best and square > best_square)):
            best, best_square = used, square
            for k in range(clusters):
                desk.best[k] = take[k]
    return best > 0


@part
def closing(problem: Problem, group: int, c: int, t: float) -> float:
    """When a reservation next closes a class to a group, at or after t; inf never."""
    at = inf
    for x in range(problem.closed_first[c], problem.closed_first[c + 1]):
        r = problem.closed[x]
        if problem.exempt[group, r] == 0 and problem.reserved[r, 1] > t:
            at = min(at, max(t, problem.reserved[r, 0]))
    return at


@part
def foresee(rows: Rows, desk: Desk, row: int, end: float) -> None:
    """Lower what is free, and raise the load, to what the rows until `end` leave."""
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


@part
def choose(
    problem: Problem, desk: Desk, item: int, procs: int, size: int, home: int, sc: float
) -> bool:
    """Write into desk.best how many processes each cluster gets; False if there is no way."""
    clusters = problem.link_gbps.size
    chosen = -1
    for k in range(clusters):
        desk.best[k] = 0
        if desk.avail[k] < procs or (home >= 0 and k != home):
            continue
        desk.cost[k] = 0.0
        left = procs
        for x in range(size - 1, -1, -1):
            c = problem.group_class[problem.item_group[item], x]
            if problem.class_cluster[c] == k and left > 0:
                count = min(left, desk.count[x])
                left -= count
                desk.cost[k] += count * problem.class_power[c]
        if chosen >= 0:
            less = desk.cost[k] < desk.cost[chosen] * (1.0 - 1e-12)
            same = desk.cost[k] <= desk.cost[chosen] * (1.0 + 1e-12)
            if not less and not (same and desk.avail[k] < desk.avail[chosen]):
                continue
        chosen = k
    if chosen >= 0:
        desk.best[chosen] = procs
        desk.counters[LOADS] = 0
        return True
    if home != -1 or not problem.item_splits[item]:
        return False
    gbps = problem.item_gbps[item]
    for k in range(clusters):
        most = min(int(sc * FULL), desk.limit[k]) + ROUNDING
        desk.low[k] = low_count(gbps, procs, most - desk.ahead[k], problem.link_gbps[k])
    desk.counters[LOADS] = 1 if gbps > 0.0 else 0
    return divide(procs, desk)


@part
def lay(problem: Problem, desk: Desk, item: int, size: int) -> float:
    """Lay desk.best on classes, weakest first; the least power used."""
    group = problem.item_group[item]
    length, weakest, power = 0, inf, 0.0
    for x in range(size - 1, -1, -1):
        c = problem.group_class[group, x]
        k = problem.class_cluster[c]
        count = min(desk.best[k], desk.count[x])
        if count > 0:
            desk.best[k] -= count
            desk.use_class[length] = c
            desk.use_procs[length] = count
            length += 1
            power += count * problem.class_power[c]
            weakest = min(weakest, problem.class_power[c])
    desk.counters[LENGTH] = length
    desk.measure[HELD] = power
    return weakest


@part
def try_now(
    problem: Problem, rows: Rows, genes: Genes, desk: Desk, item: int, t: float, row: int, only: int
) -> float:
    """End of an item that starts now, or inf; what it takes is left in use_class and use_procs."""
    group, home = problem.item_group[item], genes.home[item]
    if only >= 0:
        home = only
    mode = problem.mode_first[item] + genes.mode[item]
    procs, scaled, fixed = (
        problem.mode_procs[mode],
        problem.mode_scaled[mode],
        problem.mode_fixed[mode],
    )
    sc = genes.sc[item]
    if only >= 0:
        fixed += problem.mode_comm[mode] * problem.inverse_intra[only]
    level = genes.level[item]
    lowest, highest = 0.0, inf
    if level >= 0:
        lowest = problem.class_power[level % problem.class_power.size]
        if level >= problem.class_power.size:
            highest = lowest
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
            end = t + max(scaled / power + fixed * sc, SHORTEST)
            foresee(rows, desk, row, end)
            total = 0
            for k in range(desk.avail.size):
                desk.avail[k] = 0
            for x in range(y + 1):
                c = problem.group_class[group, x]
                count = desk.least[c] // problem.need[group, c]
                if problem.class_power[c] > highest or (
                    problem.closed_first[c] < problem.closed_first[c + 1]
                    and closing(problem, group, c, t) < end
                ):
                    count = 0
                desk.count[x] = max(count, 0)
                desk.avail[problem.class_cluster[c]] += desk.count[x]
                total += desk.count[x]
        if total >= procs and choose(problem, desk, item, procs, y + 1, home, sc):
            weakest = lay(problem, desk, item, y + 1)
            if desk.counters[LOADS] == 0:
                sc = 1.0
            return t + max(scaled / weakest + fixed * sc, SHORTEST)
        if lowest > 0.0:
            return inf
    return inf


@part
def wait_for_data(problem: Problem, out: Outcome, item: int, k: int) -> float:
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
            delay = max(latency, problem.latency[k])
            if problem.parent_gbit[x] > 0.0:
                delay += problem.parent_gbit[x] / slowest
            ready = max(ready, out.end[parent] + delay)
    return ready


@part
def start(
    problem: Problem,
    genes: Genes,
    desk: Desk,
    out: Outcome,
    item: int,
    t: float,
    end: float,
) -> None:
    """Book what `try_now` found, and tell the children."""
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
            units = units_of(problem.item_gbps[item], procs, desk.take[k], problem.link_gbps[k])
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
            if problem.item_apart[child]:
                desk.ready[child] = inf
                for k in range(clusters):
                    at = wait_for_data(problem, out, child, k)
                    desk.ready[child] = min(desk.ready[child], at)
            else:
                desk.ready[child] = problem.item_release[child]
                for y in range(problem.parent_first[child], problem.parent_first[child + 1]):
                    at = out.end[problem.parent[y]]
                    desk.ready[child] = max(desk.ready[child], at)


@part
def finish(problem: Problem, genes: Genes, desk: Desk, out: Outcome, t: float) -> float:
    """Give back what ends by t; the power that is free again."""
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
            desk.limit[k] = 64 * FULL
        for x in range(desk.counters[RUNNING]):
            item = desk.running[x]
            if out.missing[item] > 0:
                for k in range(clusters):
                    if desk.units[item, k] > 0:
                        desk.limit[k] = min(desk.limit[k], int(genes.sc[item] * FULL))
    return gone


@part
def open_desk(rows: Rows, genes: Genes, desk: Desk, out: Outcome, problem: Problem) -> float:
    """Make everything as it is before the first event; the least area of what is listed."""
    for x in range(desk.counters.size):
        desk.counters[x] = 0
    desk.counters[USED] = rows.first_use[0]
    for c in range(desk.free.size):
        desk.free[c] = rows.free[0, c]
    for k in range(desk.load.size):
        desk.load[k] = rows.load[0, k]
        desk.limit[k] = 64 * FULL
    for x in range(desk.last.size):
        desk.last[x] = 0.0
    area = 0.0
    order = genes.order
    for x in range(order.size):
        item = order[x]
        desk.follows[x] = x + 1
        desk.procs[x] = problem.mode_procs[problem.mode_first[item] + genes.mode[item]]
        out.start[item] = np.nan
        out.end[item] = np.nan
        out.missing[item] = 0
        desk.missing[item] = rows.missing[item]
        desk.ready[item] = rows.ready[item]
        area += rows.area[item]
    return area


@part
def go_on(problem: Problem, rows: Rows, desk: Desk, row: int, t: float) -> int:
    """Take over the rows up to t; the last of them."""
    while row + 1 < rows.time.size and rows.time[row + 1] <= t:
        row += 1
        for c in range(desk.free.size):
            desk.free[c] += rows.free[row, c] - rows.free[row - 1, c]
        for k in range(desk.load.size):
            desk.load[k] += rows.load[row, k] - rows.load[row - 1, k]
    return row


@part
def best_now(
    problem: Problem,
    rows: Rows,
    genes: Genes,
    desk: Desk,
    out: Outcome,
    item: int,
    t: float,
    row: int,
) -> float:
    """`try_now`; for what moves data, on the first cluster that the data have reached."""
    if not problem.item_apart[item]:
        return try_now(problem, rows, genes, desk, item, t, row, -1)
    soonest = inf
    for k in range(problem.link_gbps.size):
        if genes.home[item] >= 0 and genes.home[item] != k:
            continue
        ready = wait_for_data(problem, out, item, k)
        if ready <= t:
            end = try_now(problem, rows, genes, desk, item, t, row, k)
            if end < inf:
                return end
        else:
            soonest = min(soonest, ready)
    if soonest < inf:
        desk.ready[item] = soonest
    return inf


@part
def scan(
    problem: Problem,
    rows: Rows,
    genes: Genes,
    desk: Desk,
    out: Outcome,
    t: float,
    row: int,
    head: int,
) -> tuple[int, float]:
    """Start what fits now; where the list begins then, and when the next item becomes ready."""
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
                    end = best_now(problem, rows, genes, desk, out, item, t, row)
                if end < inf:
                    start(problem, genes, desk, out, item, t, end)
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


@part
def listing(
    problem: Problem,
    rows: Rows,
    genes: Genes,
    desk: Desk,
    out: Outcome,
    objective: int,
    cutoff: float,
    latest: float,
) -> float:
    """List everything; its energy, or inf where that passes `cutoff` or an end `latest`.

    The energy is the weighted completion, or makespan + blend * (power * seconds held by items or
    left idle before the last start) / power of all. The second term falls where a change saves room
    though the makespan stays: without it most changes of a large queue look alike.
    The makespan alone is left in desk.measure; `out.missing` says which items load links.
    """
    now = rows.time[0]
    least = open_desk(rows, genes, desk, out, problem)
    size = genes.order.size
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
        row = go_on(problem, rows, desk, row, t)
        head, wake = scan(problem, rows, genes, desk, out, t, row, head)
        while done < desk.counters[STARTED]:
            item = desk.started[done]
            done += 1
            end = out.end[item]
            if end > horizon + TOL:
                return inf
            busy += desk.power[item]
            least += desk.power[item] * (end - t) - rows.area[item]
            job = rows.job[item]
            if objective == WEIGHTED:
                if desk.last[job] == 0.0:
                    waiting -= rows.weight[item]
                if end - now > desk.last[job]:
                    value += rows.weight[item] * (end - now - desk.last[job])
                    desk.last[job] = end - now
            made = max(made, end - now)
        if objective == MAKESPAN:
            value = made + blend * least / able
            if value > cutoff:
                return inf
        if done == size:
            desk.measure[MADE] = made
            return value
        upcoming = wake
        if desk.counters[RUNNING] > 0:
            upcoming = min(upcoming, out.end[desk.running[desk.counters[RUNNING] - 1]])
        if row + 1 < rows.time.size:
            upcoming = min(upcoming, rows.time[row + 1])
        if upcoming == inf:
            # nothing will change: a choice left no place
            item = genes.order[head]
            if genes.level[item] < 0 and genes.home[item] == -1:
                return inf
            genes.level[item], genes.home[item] = -1, -1
            continue
        least += (able - busy) * (upcoming - t)
        if least * (1.0 + blend) > room * (1.0 + 1e-12):
            return inf
        if objective == WEIGHTED and value + waiting * (upcoming - now) > cutoff:
            return inf
        t = upcoming
        busy -= finish(problem, genes, desk, out, t)
