"""Simulated annealing of rigid jobs on bins, each of equal slots; compiled.

A bin is a cluster, where every job lies whole in one, or all slots, where links do not matter. Each
bin has its jobs in an order. It is listed at the ends of jobs: what fits starts, and a job that
does not fit is passed by those behind it where it *yields*, else it stops them. A job that fits
beside others may yield too: to the widest behind it that fits, so that few slots stay idle.

What is looked for is a plan without *excess*: slots times seconds that jobs reach beyond a given
end. It falls with any room that is saved, while the last end does not change. What is minimised is
the *cost*: the excess and, at a price that falls to nothing at the given end, what is idle beside
running jobs before it. Late room in one piece is easier to use than the same room early.

Notes
-----
A move puts a job elsewhere in its bin, into another bin, or into the place of a job of about its
area, or changes whether it yields. Only the one or two bins that it changes are listed anew. What
was left idle before the given end tells early that the cost will pass the limit. What is gone on
from has its jobs by their starts, so that a place in the order stays an instant. Jobs are numbered
by width; sets of places are bits of words: what fits is found without a look at the others.

Where no job yields, an order by the starts of any plan gives one in which none starts later, so the
best plan is among those listed.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, NamedTuple

from numba.cpython.unsafe import numbers

from coalloc.policies.kernel.annealing_loop import LIMIT, Annealing, annealer, shift
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.xorshift import draw, pick

END, TOLERANCE, PRICE = 0, 1, 2
HERE, THERE, LISTED = 0, 1, 2
TIGHT, FITS, SWAP, SEND = 0, 1, 2, 3
LATE, COST = 0, 1
LOG, LAST = 6, 63
"""Of the 64 bits of a word: the logarithm of their number, and the last one."""
ALL = -1
"""As HERE: every bin has changed."""

trailing_zeros: Any = numbers.trailing_zeros


@record
class Bins(NamedTuple):
    """The case: N jobs to be placed, K bins, R entries of work that runs at first."""

    procs: Ints  # N, rising
    fitting: Ints  # how many of the jobs are at most so wide, up to the widest bin
    seconds: Floats  # N x K; inf: may not be there
    slots: Ints  # K
    now: Ints  # K, free at first
    first: Ints  # K + 1, range of each bin in the next two
    end: Floats  # R, falling in each bin
    held: Ints  # R
    aim: Floats  # 3: END, by which all should end, s; TOLERANCE; PRICE of what is idle at first


@record
class BinOrders(NamedTuple):
    """The choices."""

    order: Ints  # K x N
    jobs: Ints  # K, how many each bin has
    yields: Ints  # 2 x N, 1 or 0, where it is TIGHT (too wide now) and where it FITS


@record
class BinDesk(NamedTuple):
    """Working memory; `start` and `value` are of what was listed last, `known` of what stays."""

    start: Annotated[Floats, "N"]
    end: Annotated[Floats, "R"]
    held: Annotated[Ints, "R"]
    fits: Annotated[Ints, "W", "F"]  # places of the jobs before each, which are as narrow
    stops: Annotated[Ints, "W"]  # places of jobs that do not yield where they are TIGHT
    waits: Annotated[Ints, "W"]  # places of jobs that wait
    value: Annotated[Floats, 2, "K"]  # LATE, the excess; COST
    known: Annotated[Floats, 2, "K"]
    counters: Annotated[Ints, 3]  # HERE, THERE; LISTED, jobs that were placed so far


class BinSearch(NamedTuple):
    """Records that the moves change, and the listing reads and writes."""

    bins: Bins
    orders: BinOrders
    best: BinOrders
    desk: BinDesk


Move = tuple[int, int, int]
"""Kind (TIGHT, FITS: a job's yielding there), the job's place in the bin HERE, and that THERE."""


@helper(inline=True)
def start(bins: Bins, desk: BinDesk, k: int, item: int, t: float, running: int) -> float:
    """Start a job beside the running ones, which are by falling ends; its end."""
    end = t + bins.seconds[item, k]
    while running > 0 and desk.end[running - 1] < end:
        desk.end[running] = desk.end[running - 1]
        desk.held[running] = desk.held[running - 1]
        running -= 1
    desk.end[running], desk.held[running] = end, bins.procs[item]
    desk.start[item] = t
    return float(end)


@helper(inline=True)
def lay_out(bins: Bins, orders: BinOrders, desk: BinDesk, k: int) -> float:
    """Note where the jobs of a bin are in its order; the work of all."""
    order, size, work = orders.order, orders.jobs[k], 0.0
    for w in range((size + LAST) >> LOG):
        fits, stops, narrower = desk.fits[w], 0, 0
        for n in range(fits.size):
            fits[n] = 0
        for x in range(w << LOG, min((w + 1) << LOG, size)):
            item, bit = order[k, x], 1 << (x & LAST)
            fits[item + 1] = bit
            stops |= bit * (1 - orders.yields[TIGHT, item])
            work += bins.procs[item] * bins.seconds[item, k]
        for n in range(fits.size):
            narrower |= fits[n]
            fits[n] = narrower
        desk.stops[w], desk.waits[w] = stops, narrower
    return float(work)


@helper(inline=True)
def first_that_fits(desk: BinDesk, words: int, fitting: int) -> tuple[int, int]:
    """The first place whose job fits, -1 if none may start; and that of the first which stops."""
    found = -1
    for w in range(words):
        fits, waits = desk.fits[w, fitting], desk.waits[w]
        stops = waits & desk.stops[w] & ~fits
        fits &= waits & ((stops & -stops) - 1)
        if found < 0 and fits != 0:
            found = (w << LOG) + trailing_zeros(fits)
        if stops != 0:
            return found, (w << LOG) + trailing_zeros(stops)
    return found, words << LOG


@helper(inline=True)
def widest(bins: Bins, desk: BinDesk, order: Ints, fitting: int, x: int, stop: int) -> int:
    """Place of the widest job of those that fit and wait, from one place to another."""
    chosen = x
    for w in range(x >> LOG, (stop + LAST) >> LOG):
        some = desk.fits[w, fitting] & desk.waits[w]
        while some != 0:
            y = (w << LOG) + trailing_zeros(some)
            if y >= stop:
                break
            if bins.procs[order[y]] > bins.procs[order[chosen]]:
                chosen = y
            some &= some - 1
    return chosen


@helper(inline=True)
def idle_cost(aim: Floats, free: int, t: float, upcoming: float) -> tuple[float, float]:
    """Idle slots times seconds between two instants and before the given end, and their cost."""
    limit = aim[END]
    begin, end = min(t, limit), min(upcoming, limit)
    if begin == end:
        return 0.0, 0.0
    idle = free * (end - begin)
    return idle, aim[PRICE] * idle * (1.0 - (begin + end) / (2.0 * limit))


@helper()
def list_bin(bins: Bins, orders: BinOrders, desk: BinDesk, k: int, most: float) -> float:
    """List the jobs of a bin; their cost, or any value above `most` where it is above that."""
    order, procs, size, limit = orders.order, bins.procs, orders.jobs[k], bins.aim[END]
    running, words = 0, (size + LAST) >> LOG
    least = lay_out(bins, orders, desk, k) - bins.slots[k] * limit  # of the excess
    for r in range(bins.first[k], bins.first[k + 1]):
        desk.end[running], desk.held[running] = bins.end[r], bins.held[r]
        least += bins.held[r] * min(bins.end[r], limit)
        running += 1
    free, left, t, excess, price = bins.now[k], size, 0.0, 0.0, 0.0
    while True:
        while free > 0:
            fitting = bins.fitting[free]
            x, stop = first_that_fits(desk, words, fitting)
            if x < 0:
                break
            if orders.yields[FITS, order[k, x]] > 0 and running > 0:
                x = widest(bins, desk, order[k], fitting, x, stop)
            item = order[k, x]
            desk.waits[x >> LOG] ^= 1 << (x & LAST)
            end = start(bins, desk, k, item, t, running)
            running += 1
            free -= procs[item]
            left -= 1
            if end > limit + bins.aim[TOLERANCE]:
                excess += procs[item] * (end - limit)
        if running == 0 or (left == 0 and t >= limit) or max(excess, least) + price > most:
            break
        upcoming = desk.end[running - 1]
        idle, cost = idle_cost(bins.aim, free, t, upcoming)
        least += idle
        price += cost
        t = upcoming
        while running > 0 and desk.end[running - 1] <= t:
            running -= 1
            free += desk.held[running]
    desk.counters[LISTED] += size - left
    if left > 0 and running == 0:
        excess = inf
    desk.value[LATE, k] = excess
    return max(excess, least) + price


@helper(inline=True)
def evaluate(search: BinSearch, state: Annealing) -> float:
    """List what has changed; the cost of all bins."""
    desk, here, there = search.desk, search.desk.counters[HERE], search.desk.counters[THERE]
    total = 0.0
    for k in range(search.bins.slots.size):
        desk.value[LATE, k], desk.value[COST, k] = desk.known[LATE, k], desk.known[COST, k]
        if here != ALL and k not in (here, there):
            total += desk.known[COST, k]
    for k in range(search.bins.slots.size):
        if (here == ALL or k in (here, there)) and total <= state.value[LIMIT]:
            most = state.value[LIMIT] - total
            desk.value[COST, k] = list_bin(search.bins, search.orders, desk, k, most)
            total += desk.value[COST, k]
    return total


@helper(inline=True)
def place_of_like(search: BinSearch, state: Annealing, item: int, k: int) -> int:
    """Place in a bin of the job whose area is the most like an item's, of six."""
    bins, order = search.bins, search.orders.order
    area, chosen, least = bins.procs[item] * bins.seconds[item, k], 0, inf
    for _ in range(6):
        x = pick(state.random, search.orders.jobs[k])
        other = order[k, x]
        far = abs(bins.procs[other] * bins.seconds[other, k] - area)
        if far < least:
            chosen, least = x, far
    return chosen


@helper(inline=True)
def change(orders: BinOrders, kind: int, here: int, x: int, there: int, y: int) -> None:
    """Make a move; the other way round it takes it back."""
    order, jobs, yields, item = orders.order, orders.jobs, orders.yields, orders.order[here, x]
    if kind <= FITS:
        yields[kind, item] = 1 - yields[kind, item]
    elif kind == SWAP:
        order[here, x], order[there, y] = order[there, y], item
    else:
        jobs[here] -= 1
        shift(order[here], x, jobs[here])
        order[there, jobs[there]] = item
        shift(order[there], jobs[there], y)
        jobs[there] += 1


@helper(inline=True)
def propose(search: BinSearch, state: Annealing) -> tuple[bool, Move]:
    """Change one job's place or yielding; half of the time one of a bin with an excess."""
    bins, orders, desk, random = search.bins, search.orders, search.desk, state.random
    count, bin_count = orders.jobs, bins.slots.size
    here = pick(random, bin_count)
    if draw(random) < 0.5:
        for _ in range(bin_count):
            if desk.known[LATE, here] <= 0.0:
                here = (here + 1) % bin_count
    there, kind, size = here, draw(random), count[here]
    if size == 0:
        return False, (SWAP, 0, 0)
    x = pick(random, size)
    item = orders.order[here, x]
    if bin_count > 1 and 0.08 <= kind < 0.5:
        there = (here + 1 + pick(random, bin_count - 1)) % bin_count
    if bins.seconds[item, there] == inf:
        return False, (SWAP, 0, 0)
    desk.counters[HERE], desk.counters[THERE] = here, there
    if kind < 0.08:
        move = (TIGHT if draw(random) < 0.5 else FITS, x, x)
    elif there == here:
        if size == 1:
            return False, (SWAP, 0, 0)
        y = (x + 1 + pick(random, size - 1)) % size
        move = (SWAP if draw(random) < 0.5 else SEND, x, y)
    elif draw(random) < 0.3 or count[there] == 0:
        move = (SEND, x, pick(random, count[there] + 1))
    else:
        y = place_of_like(search, state, item, there)
        if bins.seconds[orders.order[there, y], here] == inf:
            return False, (SWAP, 0, 0)
        move = (SWAP, x, y)
    change(orders, move[0], here, x, there, move[2])
    return True, move


@helper(inline=True)
def undo(search: BinSearch, move: Move) -> None:
    """Take back what `propose` did."""
    kind, x, y = move
    change(search.orders, kind, search.desk.counters[THERE], y, search.desk.counters[HERE], x)


@helper(inline=True)
def by_start(orders: BinOrders, desk: BinDesk, k: int) -> None:
    """Sort the order of a bin that was listed by the starts of its jobs."""
    order = orders.order
    for x in range(1, orders.jobs[k]):
        item, y = order[k, x], x
        while y > 0 and desk.start[order[k, y - 1]] > desk.start[item]:
            order[k, y] = order[k, y - 1]
            y -= 1
        order[k, y] = item


@helper(inline=True)
def accept(search: BinSearch, state: Annealing, value: float) -> float:
    """Remember excess and cost of each bin, and put its jobs by their starts; the excess of all."""
    desk, here, there = search.desk, search.desk.counters[HERE], search.desk.counters[THERE]
    known, found, excess = desk.known, desk.value, 0.0
    for k in range(search.bins.slots.size):
        known[LATE, k], known[COST, k] = found[LATE, k], found[COST, k]
        excess += found[LATE, k]
        if here == ALL or k in (here, there):
            by_start(search.orders, desk, k)
    return excess


@helper(inline=True)
def keep(search: BinSearch) -> None:
    """Copy the orders, which are by starts: they are the best so far."""
    orders, best = search.orders, search.best
    for k in range(orders.jobs.size):
        best.jobs[k] = orders.jobs[k]
        for x in range(orders.jobs[k]):
            best.order[k, x] = orders.order[k, x]


anneal = annealer(__name__, propose=propose, evaluate=evaluate, accept=accept, keep=keep, undo=undo)
