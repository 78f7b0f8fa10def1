"""The compiled kernel: a profile of node classes and links over time, and three decoders.

All kernels that call each other stand in this one file, although it is long: numba's cache keeps a
caller's old code when a callee in another file changes.

Why counts are enough
---------------------
A class is a set of nodes of one cluster, one power, the same features, memory and slots, covered by
the same reservations; the profile only counts its free slots. A plan that keeps the counts can
always be laid on real nodes: take the placements by start time and give each any free slots of its
class. Slots of a class are interchangeable, because whatever closes a node in the middle of the
time axis (a reservation) is part of the class, while running jobs and ``free_at`` close only a
beginning [time, x). So a slot that is free when a placement starts stays free until the next
placement is put on it, and the number of free slots at that instant is what the profile counts
(interval graphs are perfect). Where a process takes more than a slot of *one node*, the slots of a
class are no longer interchangeable; there every node is a class of its own, counted in units of
which a slot has `class_grain` (`intake`).

Notes
-----
*Profile.* Rows are stretches of constant free slots and link load; a row's data lie in a pool, and
blocks of up to `WIDTH` entries (start time, row, and two numbers for skipping) keep them in order.
``total`` is the number of whole free slots of a row, ``peak`` the largest sum of one cluster: a
block whose maxima are too small, or whose minima are large enough, is passed in one step. ``dip``
marks a row that may offer less than the one before it: only these can lower the minimum over a
window. `book` takes or gives back a placement; `undo` also removes the rows that `book` made, so
that a search that undoes in reverse order leaves no trace. Loads are whole numbers of 2**-44 of a
link's capacity: they add up and undo without drift.

*Fit.* `window` tries one start: levels of power from the strongest on, each with its own run time
A / power + B, its own window, and the minimum of free slots over it; the first level that fits ends
first. `seek` tries the starts from the earliest on, until none can end sooner. A split is found as
`split` describes (equation (4) is concave in t).

*Memory.* While a profile only fills, a job finds no start before that of an earlier one which asked
for no more processes and no more time on any power; `recall` begins there.

*Ties*: earlier end (within 1e-9 s), smaller allotment, fewer clusters, weaker nodes (less power in
sum), snapshot order.

References
----------
Mu'alem, Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001 (EASY and conservative).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numba import njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compile, with a cache where one can be written."""
    return _compile(function)


def part(function: Callable[..., Any]) -> Any:
    """Compile what only kernels call: without the wrappers for calls from Python."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compile(function: Callable[..., Any], **flags: bool) -> Any:
    try:
        return njit(cache=True, error_model="numpy", **flags)(function)
    except RuntimeError:  # numba raises at import where nothing is writable for its cache
        return njit(error_model="numpy", **flags)(function)


WIDTH = 64
TOL = 1e-9
SHORTEST = 5e-7
"""No placement is shorter, seconds: below the checker's tolerance, above a double's near 1e9."""
FULL = 1 << 44
"""Load units of a link's whole capacity."""
ROUNDING = 1 << 12
"""Load units by which the sum may pass: 2.3e-10, for the rounding of each load."""
STRICT, INSERT, EVENT, EASY = 0, 1, 2, 3

ROWS, FREE_ROWS, BLOCKS, FREE_BLOCKS = 0, 1, 2, 3
WINDOWS, STAMP, USES, REMEMBERED = 0, 1, 2, 3
SPARE, FIRST_START = 4, 5
MEMORY = 2048
"""Starts that `recall` looks through."""


class Problem(NamedTuple):
    """What is to be placed and on what; never written by a kernel.

    N items, M modes, G groups, C classes, K clusters, R reservations.
    """

    mode_first: Any  # N + 1
    mode_procs: Any  # M
    mode_scaled: Any  # M, s at power 1: the part that scales with 1 / power
    mode_fixed: Any  # M, s
    mode_comm: Any  # M, Gbit / process: divided by a cluster's intra_gbps
    item_group: Any  # N
    item_release: Any  # N, s
    item_gbps: Any  # N
    item_splits: Any  # N
    item_apart: Any  # N: each cluster is tried by itself, for data or communication
    parent_first: Any  # N + 1
    parent: Any  # edges
    parent_gbit: Any  # edges; below 0 a mere order
    child_first: Any  # N + 1
    child: Any  # edges
    need: Any  # G x C, units per process, 0 not allowed
    group_class: Any  # G x C, allowed classes by falling power
    group_size: Any  # G
    group_plain: Any  # G, whether every class is allowed and takes one unit a process
    exempt: Any  # G x R
    class_cluster: Any  # C
    class_power: Any  # C
    class_grain: Any  # C, units in a slot
    closed_first: Any  # C + 1
    closed: Any  # reservations of each class
    reserved: Any  # R x 2, start and end, s
    link_gbps: Any  # K
    inverse_intra: Any  # K, s / Gbit
    latency: Any  # K, s
    patterns: Any  # P x K, processes per cluster, for searches that fix them


class Choice(NamedTuple):
    """What a search has fixed for each item; -1 and 0.0 leave it to the decoder."""

    mode: Any  # N, index into the item's modes
    power: Any  # N, level of power
    pattern: Any  # N, index into patterns


class Base(NamedTuple):
    """The profile before anything is placed: T rows."""

    time: Any  # T
    free: Any  # T x C
    load: Any  # T x K


class Profile(NamedTuple):
    """Free slots and link load over time."""

    free: Any  # rows x (C + K): units of classes, then whole slots of clusters
    load: Any  # rows x K
    recycled: Any  # rows given back
    block: Any  # blocks in order
    recycled_block: Any
    count: Any  # blocks
    time: Any  # blocks x WIDTH
    row: Any
    total: Any
    peak: Any
    dip: Any
    dips: Any  # blocks
    bounds: Any  # blocks x 4: min total, max total, min peak, max peak
    size: Any  # ROWS, FREE_ROWS, BLOCKS, FREE_BLOCKS


class Scratch(NamedTuple):
    """Working memory of the kernels."""

    least: Any  # C, minimum over the window
    until: Any  # C, when a reservation closes the class
    procs: Any  # C
    avail: Any  # K
    loaded: Any  # K
    low: Any  # K
    take: Any  # K
    best_take: Any  # K
    left: Any  # K
    cost: Any  # K
    rank: Any  # K
    pick_class: Any  # C
    pick_procs: Any  # C
    best_class: Any  # C
    best_procs: Any  # C
    pick: Any  # 3: length, clusters; jump
    pick_cost: Any  # 6
    stamp: Any  # G
    sums: Any  # G x 4: total now, peak now, total beside the head, peak beside the head
    reach: Any  # G x C, running sum of what is free now, by falling power
    shared: Any  # K
    counters: Any  # 4
    memory: Any  # MEMORY x 6: group, whole, processes, shortest and longest run, first start
    position: Any  # N
    live: Any  # N, what `events` has still to place, by order
    live_procs: Any  # N, smallest allotment
    live_ready: Any  # N, s
    live_top: Any  # N, s on the strongest nodes
    glance: Any  # 2: free now; free now and beside the head


class Outcome(NamedTuple):
    """Where the items went."""

    start: Any  # N, nan where not placed
    end: Any
    mode: Any
    use_first: Any
    use_count: Any
    use_class: Any  # pool
    use_procs: Any  # pool
    missing: Any  # N, parents without a place
    ready: Any  # N, s


# ---- the profile


@part
def locate(profile, t):
    """Place in the order, and offset, of the row in force at t."""
    low, high = 0, profile.size[BLOCKS] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if profile.time[profile.block[middle], 0] <= t:
            low = middle
        else:
            high = middle - 1
    block = profile.block[low]
    left, right = 0, profile.count[block] - 1
    while left < right:
        middle = (left + right + 1) >> 1
        if profile.time[block, middle] <= t:
            left = middle
        else:
            right = middle - 1
    return low, left


@part
def bound(profile, block):
    """Recompute what a block offers at least and at most."""
    a, b = profile.total[block, 0], profile.total[block, 0]
    c, d = profile.peak[block, 0], profile.peak[block, 0]
    dips = 0
    for i in range(profile.count[block]):
        a = min(a, profile.total[block, i])
        b = max(b, profile.total[block, i])
        c = min(c, profile.peak[block, i])
        d = max(d, profile.peak[block, i])
        dips += profile.dip[block, i]
    profile.bounds[block, 0] = a
    profile.bounds[block, 1] = b
    profile.bounds[block, 2] = c
    profile.bounds[block, 3] = d
    profile.dips[block] = dips


@part
def move(profile, source, i, target, j):
    """Copy an entry of a block."""
    profile.time[target, j] = profile.time[source, i]
    profile.row[target, j] = profile.row[source, i]
    profile.total[target, j] = profile.total[source, i]
    profile.peak[target, j] = profile.peak[source, i]
    profile.dip[target, j] = profile.dip[source, i]


@part
def add_block(profile, place):
    """Make an empty block at this place in the order."""
    size = profile.size
    if size[FREE_BLOCKS] > 0:
        size[FREE_BLOCKS] -= 1
        block = profile.recycled_block[size[FREE_BLOCKS]]
    else:
        block = size[BLOCKS]
    for i in range(size[BLOCKS], place, -1):
        profile.block[i] = profile.block[i - 1]
    profile.block[place] = block
    profile.count[block] = 0
    size[BLOCKS] += 1
    return block


@part
def cut(profile, t):
    """Make a row begin at t; True if it is new."""
    place, i = locate(profile, t)
    block = profile.block[place]
    if profile.time[block, i] == t:
        return False
    if profile.count[block] == WIDTH:
        half = WIDTH // 2
        other = add_block(profile, place + 1)
        for k in range(half, WIDTH):
            move(profile, block, k, other, k - half)
        profile.count[block] = half
        profile.count[other] = WIDTH - half
        bound(profile, block)
        bound(profile, other)
        if i >= half:
            block, i = other, i - half
    old = profile.row[block, i]
    size = profile.size
    if size[FREE_ROWS] > 0:
        size[FREE_ROWS] -= 1
        row = profile.recycled[size[FREE_ROWS]]
    else:
        row = size[ROWS]
    size[ROWS] += 1
    for c in range(profile.free.shape[1]):
        profile.free[row, c] = profile.free[old, c]
    for k in range(profile.load.shape[1]):
        profile.load[row, k] = profile.load[old, k]
    for k in range(profile.count[block], i + 1, -1):
        move(profile, block, k - 1, block, k)
    move(profile, block, i, block, i + 1)
    profile.time[block, i + 1] = t
    profile.row[block, i + 1] = row
    profile.dip[block, i + 1] = 0
    profile.count[block] += 1
    return True


@part
def drop(profile, t):
    """Remove the row that begins at t, and merge blocks that become small."""
    place, i = locate(profile, t)
    block = profile.block[place]
    size = profile.size
    profile.recycled[size[FREE_ROWS]] = profile.row[block, i]
    size[FREE_ROWS] += 1
    size[ROWS] -= 1
    for k in range(i, profile.count[block] - 1):
        move(profile, block, k + 1, block, k)
    profile.count[block] -= 1
    if profile.count[block] < WIDTH // 4 and size[BLOCKS] > 1:
        first = place if place + 1 < size[BLOCKS] else place - 1
        one, two = profile.block[first], profile.block[first + 1]
        together = profile.count[one] + profile.count[two]
        if together <= 3 * WIDTH // 4 or profile.count[block] == 0:
            for k in range(profile.count[two]):
                move(profile, two, k, one, profile.count[one] + k)
            profile.count[one] += profile.count[two]
            for k in range(first + 1, size[BLOCKS] - 1):
                profile.block[k] = profile.block[k + 1]
            profile.recycled_block[size[FREE_BLOCKS]] = two
            size[FREE_BLOCKS] += 1
            size[BLOCKS] -= 1
            block = one
    bound(profile, block)


@part
def reset(problem, base, profile):
    """Load the profile with what runs now."""
    clusters = profile.load.shape[1]
    classes = profile.free.shape[1] - clusters
    profile.size[ROWS] = base.time.size
    profile.size[FREE_ROWS] = 0
    profile.size[BLOCKS] = 0
    profile.size[FREE_BLOCKS] = 0
    block = 0
    for r in range(base.time.size):
        total, peak = 0, 0
        for k in range(clusters):
            profile.free[r, classes + k] = 0
            profile.load[r, k] = base.load[r, k]
        for c in range(classes):
            count = base.free[r, c]
            profile.free[r, c] = count
            count //= problem.class_grain[c]
            profile.free[r, classes + problem.class_cluster[c]] += count
            total += count
        for k in range(clusters):
            peak = max(peak, profile.free[r, classes + k])
        i = r % (WIDTH // 2)
        if i == 0:
            block = add_block(profile, profile.size[BLOCKS])
        profile.count[block] = i + 1
        profile.time[block, i] = base.time[r]
        profile.row[block, i] = r
        profile.total[block, i] = total
        profile.peak[block, i] = peak
        profile.dip[block, i] = 0
        if i + 1 == WIDTH // 2 or r + 1 == base.time.size:
            bound(profile, block)


@part
def load_units(gbps, procs, inside, capacity):
    """Equation (4) in units of the link's capacity."""
    if gbps <= 0.0 or procs <= 1 or inside == 0 or inside == procs or capacity == inf:
        return 0
    load = gbps * inside * (procs - inside) / (procs - 1)
    if load >= 8.0 * capacity:
        return 8 * FULL
    return int(load / capacity * FULL + 0.5)


@kernel
def book(problem, profile, scratch, out, item, sign):
    """Take (1) or give back (-1) what an item uses.

    The answer is for `undo`: 1 the row at its start is new, 2 that at its end, 4 its dip is new.
    """
    start, end = out.start[item], out.end[item]
    clusters = problem.link_gbps.size
    classes = problem.class_power.size
    first = out.use_first[item]
    last = first + out.use_count[item]
    group = problem.item_group[item]
    inside = scratch.take
    units = scratch.left
    procs, used = 0, 0
    for k in range(clusters):
        inside[k] = 0
    for u in range(first, last):
        k = problem.class_cluster[out.use_class[u]]
        used += inside[k] == 0
        inside[k] += out.use_procs[u]
        procs += out.use_procs[u]
    for k in range(clusters):
        units[k] = 0
        if used > 1:
            gbps = problem.item_gbps[item]
            units[k] = sign * load_units(gbps, procs, inside[k], problem.link_gbps[k])
    made = 1 if cut(profile, start) else 0
    if cut(profile, end):
        made += 2
    place, i = locate(profile, start)
    block = profile.block[place]
    if sign > 0 and profile.dip[block, i] == 0:
        profile.dip[block, i] = 1
        made += 4
    while profile.time[block, i] < end:
        row = profile.row[block, i]
        gone = 0
        for u in range(first, last):
            c = out.use_class[u]
            k = classes + problem.class_cluster[c]
            slots = sign * out.use_procs[u] * problem.need[group, c]
            before = profile.free[row, c]
            profile.free[row, c] -= slots
            grain = problem.class_grain[c]
            if grain > 1:
                slots = before // grain - profile.free[row, c] // grain
            profile.free[row, k] -= slots
            gone += slots
        profile.total[block, i] -= gone
        peak = 0
        for k in range(clusters):
            peak = max(peak, profile.free[row, classes + k])
            profile.load[row, k] += units[k]
        profile.peak[block, i] = peak
        i += 1
        if i == profile.count[block]:
            bound(profile, block)
            place += 1
            block = profile.block[place]
            i = 0
    bound(profile, block)
    return made


@kernel
def undo(problem, profile, scratch, out, item, made):
    """Take back the last `book` that is not yet undone; `made` is what it returned."""
    book(problem, profile, scratch, out, item, -1)
    if made & 2:
        drop(profile, out.end[item])
    if made & 1:
        drop(profile, out.start[item])
    elif made & 4:
        place, i = locate(profile, out.start[item])
        profile.dip[profile.block[place], i] = 0
        bound(profile, profile.block[place])


# ---- one start


@part
def closes(problem, group, c, t):
    """When a reservation next closes a class to a group, at or after t; inf never."""
    at = inf
    for x in range(problem.closed_first[c], problem.closed_first[c + 1]):
        r = problem.closed[x]
        if problem.exempt[group, r] == 0 and problem.reserved[r, 1] > t:
            at = min(at, max(t, problem.reserved[r, 0]))
    return at


@part
def low_side(gbps, procs, residual, capacity):
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


@part
def spread(problem, scratch, item, procs):
    """Split over clusters into best_take: fewest, then least load; the number of clusters or 0."""
    clusters = problem.link_gbps.size
    upper, rank, take = scratch.left, scratch.rank, scratch.take
    gbps = problem.item_gbps[item]
    reach = 0
    for k in range(clusters):
        reach += scratch.avail[k]
    if reach < procs:
        return 0
    for k in range(clusters):
        capacity = problem.link_gbps[k]
        residual = FULL + ROUNDING - scratch.loaded[k]
        scratch.low[k] = low_side(gbps, procs, residual, capacity)
        upper[k] = min(scratch.avail[k], scratch.low[k])
        # insertion keeps equal clusters in snapshot order
        j = k
        while j > 0 and upper[rank[j - 1]] < upper[k]:
            rank[j] = rank[j - 1]
            j -= 1
        rank[j] = k
    best, best_square = 0, 0
    for lead in range(-1, clusters):
        rest = procs
        used = 0
        square = 0
        for k in range(clusters):
            take[k] = 0
        if lead >= 0:
            free = scratch.avail[lead]
            if scratch.low[lead] < 1 or free < procs - scratch.low[lead] or free <= upper[lead]:
                continue
            take[lead] = free
            rest -= free
            used = 1
            square = free * free
        for j in range(clusters):
            k = rank[j]
            if k != lead and rest > 0 and upper[k] > 0:
                take[k] = min(upper[k], rest)
                rest -= take[k]
                used += 1
                square += take[k] * take[k]
        if rest == 0 and (best == 0 or used < best or (used == best and square > best_square)):
            best, best_square = used, square
            for k in range(clusters):
                scratch.best_take[k] = take[k]
    return best


@part
def fill(problem, scratch, group, size):
    """Lay best_take on classes, weakest first."""
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
    scratch.pick[0] = length
    scratch.pick_cost[0] = cost
    scratch.pick_cost[1] = weakest


@part
def allot(problem, scratch, item, procs, size, pattern):
    """Choose nodes among the first `size` classes; the number of clusters, 0 if none will do."""
    group = problem.item_group[item]
    clusters = problem.link_gbps.size
    avail = scratch.avail
    used = 0
    if pattern >= 0:
        for k in range(clusters):
            count = problem.patterns[pattern, k]
            scratch.best_take[k] = count
            used += count > 0
            if count > avail[k]:
                return 0
            units = load_units(problem.item_gbps[item], procs, count, problem.link_gbps[k])
            if units > 0 and scratch.loaded[k] + units > FULL + ROUNDING:
                return 0
        fill(problem, scratch, group, size)
        return used
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
                chosen < 0 or scratch.cost[k] < scratch.cost[chosen] * (1.0 - 1e-12)
            ):
                chosen = k
        scratch.best_take[chosen] = procs
        used = 1
    elif problem.item_splits[item]:
        used = spread(problem, scratch, item, procs)
    if used > 0:
        fill(problem, scratch, group, size)
    return used


@part
def room(classes, need, cluster, least, free, sums, size, plain, whole):
    """Lower the minima to a row, and count the processes they allow.

    If `whole`, those on the best cluster alone. If `plain`, classes[z] is z and takes one unit a
    process: this loop becomes vector instructions.
    """
    total = 0
    if plain and not whole:
        for z in range(size):
            least[z] = min(least[z], free[z])
            total += least[z]
        return total
    for k in range(sums.size):
        sums[k] = 0
    for z in range(size):
        c = classes[z]
        least[z] = min(least[z], free[c])
        count = least[z] if need[c] == 1 else least[z] // need[c]
        total += count
        sums[cluster[c]] += count
    if whole:
        total = 0
        for k in range(sums.size):
            total = max(total, sums[k])
    return total


@part
def enter(problem, profile, scratch, group, scaled, fixed, start, row, cutoff, only):
    """Set the minima to the row of the start; the number of classes that end by the cutoff."""
    size = 0
    for x in range(problem.group_size[group]):
        c = problem.group_class[group, x]
        if start + (scaled / problem.class_power[c] + fixed) > cutoff:
            break
        size = x + 1
        scratch.least[x] = 0
        scratch.until[x] = inf
        if only >= 0 and problem.class_cluster[c] != only:
            continue
        if problem.closed_first[c] < problem.closed_first[c + 1]:
            scratch.until[x] = closes(problem, group, c, start)
            if scratch.until[x] <= start:
                continue
        scratch.least[x] = profile.free[row, c]
    return size


@part
def retreat(problem, profile, scratch, group, procs, whole, size, only, start, place, i):
    """Start of the last row from which on, up to the row at (place, i), too little is free.

    At least the row of `start`: reservations, which may be why it fails, are not looked at.
    """
    classes, need = problem.group_class[group], problem.need[group]
    cluster, least, plain = problem.class_cluster, scratch.least, problem.group_plain[group]
    for z in range(size):
        least[z] = 0
        if only < 0 or cluster[classes[z]] == only:
            least[z] = 2147483647
    while True:
        free = profile.free[profile.row[profile.block[place], i]]
        left = room(classes, need, cluster, least, free, scratch.shared, size, plain, whole)
        if left < procs or profile.time[profile.block[place], i] <= start:
            return profile.time[profile.block[place], i]
        i -= 1
        if i < 0:
            place -= 1
            i = profile.count[profile.block[place]] - 1


@part
def descend(problem, profile, scratch, group, procs, whole, size, end, place, i):
    """Lower the minima by the dips after (place, i) and before `end`.

    Returns where it stopped, and whether that was because too little is left.
    """
    classes, need = problem.group_class[group], problem.need[group]
    cluster, least, plain = problem.class_cluster, scratch.least, problem.group_plain[group]
    block = profile.block[place]
    while True:
        i += 1
        if i >= profile.count[block]:
            after = place + 1
            while (
                after < profile.size[BLOCKS]
                and profile.dips[profile.block[after]] == 0
                and profile.time[profile.block[after], 0] < end
            ):
                after += 1
            if after >= profile.size[BLOCKS]:
                place = after - 1
                return place, profile.count[profile.block[place]] - 1, False
            place, i = after, 0
            block = profile.block[place]
        if profile.time[block, i] >= end:
            return place, i - 1, False  # -1 is before the first entry of the block
        if profile.dip[block, i] == 0:
            continue
        row = profile.row[block, i]
        for k in range(scratch.loaded.size):
            scratch.loaded[k] = max(scratch.loaded[k], profile.load[row, k])
        free = profile.free[row]
        left = room(classes, need, cluster, least, free, scratch.shared, size, plain, whole)
        if left < procs:
            return place, i, True


@part
def enough(classes, need, cluster, powers, least, sums, size, after, procs, whole, alike):
    """End of the first level of power behind `after` up to which enough is free; 0 if none.

    If `alike`, all powers are one level.
    """
    for k in range(sums.size):
        sums[k] = 0
    total = 0
    for z in range(size):
        c = classes[z]
        count = least[z] if need[c] == 1 else least[z] // need[c]
        if whole:
            sums[cluster[c]] += count
            total = max(total, sums[cluster[c]])
        else:
            total += count
        last = z + 1 == size or (powers[classes[z + 1]] != powers[c] and not alike)
        if last and z >= after and total >= procs:
            return z + 1
    return 0


@part
def gather(problem, scratch, group, size, end):
    """Count the processes of the first classes until `end`, by class and by cluster."""
    for k in range(scratch.avail.size):
        scratch.avail[k] = 0
    for z in range(size):
        c = problem.group_class[group, z]
        need = problem.need[group, c]
        count = scratch.least[z] if need == 1 else scratch.least[z] // need
        if scratch.until[z] < end:
            count = 0
        scratch.procs[z] = count
        scratch.avail[problem.class_cluster[c]] += count


@part
def window(problem, profile, scratch, item, mode, start, place, i, cutoff, power, pattern, only):
    """Best end of an item that begins at `start`, in the row at (place, i); inf if none.

    Ends after `cutoff` are not looked for. What was chosen is left in scratch.pick*. If later
    starts must fail as well, scratch.pick[2] is 1, and those up to the row that begins at
    pick_cost[2] need not be tried.
    """
    scratch.counters[WINDOWS] += 1
    scratch.pick[2] = 0
    group = problem.item_group[item]
    classes, powers, need = problem.group_class[group], problem.class_power, problem.need[group]
    cluster, least = problem.class_cluster, scratch.least
    procs, scaled = problem.mode_procs[mode], problem.mode_scaled[mode]
    fixed = problem.mode_fixed[mode]
    if only >= 0:
        fixed += problem.mode_comm[mode] * problem.inverse_intra[only]
    whole = pattern < 0 and not problem.item_splits[item]
    alike = scaled == 0.0 and power == 0.0
    row = profile.row[profile.block[place], i]
    size = enter(problem, profile, scratch, group, scaled, fixed, start, row, cutoff, only)
    for k in range(problem.link_gbps.size):
        scratch.loaded[k] = profile.load[row, k]
    y = 0
    while True:
        sums = scratch.shared
        y = enough(classes, need, cluster, powers, least, sums, size, y, procs, whole, alike)
        if y == 0:
            return inf
        level = powers[classes[y - 1]]
        if power > 0.0 and level > power:
            continue
        end = start + max(scaled / level + fixed, SHORTEST)
        place, i, short = descend(
            problem, profile, scratch, group, procs, whole, size, end, place, i
        )
        if short:
            if profile.time[profile.block[place], i] < start + scaled / powers[classes[0]] + fixed:
                scratch.pick[2] = 1
                scratch.pick_cost[2] = retreat(
                    problem, profile, scratch, group, procs, whole, size, only, start, place, i
                )
            return inf
        gather(problem, scratch, group, y, end)
        if power == 0.0 or level == power:
            used = allot(problem, scratch, item, procs, y, pattern)
            if used > 0:
                scratch.pick[1] = used
                return start + max(scaled / scratch.pick_cost[1] + fixed, SHORTEST)
        if power > 0.0:
            return inf


# ---- all starts


@part
def clear(profile, place, i, start, total, peak, length):
    """First start from `start` on with enough of both numbers in every row; place -1 if none."""
    blocks = profile.size[BLOCKS]
    at, j = place, i
    end = start + length
    while True:
        block = profile.block[at]
        bounds = profile.bounds
        if j > 0 or bounds[block, 0] < total or bounds[block, 2] < peak:
            while j < profile.count[block]:
                if profile.time[block, j] >= end and (at > place or j > i):
                    return place, i, start
                if profile.total[block, j] < total or profile.peak[block, j] < peak:
                    # go on behind the run of rows that offer too little
                    while True:
                        j += 1
                        if j >= profile.count[block]:
                            at += 1
                            j = 0
                            while at < blocks:
                                block = profile.block[at]
                                if bounds[block, 1] >= total and bounds[block, 3] >= peak:
                                    break
                                at += 1
                            if at >= blocks:
                                return -1, 0, start
                        if profile.total[block, j] >= total and profile.peak[block, j] >= peak:
                            break
                    place, i = at, j
                    start = profile.time[block, j]
                    end = start + length
                j += 1
        at += 1
        j = 0
        if at >= blocks or profile.time[profile.block[at], 0] >= end:
            return place, i, start


@part
def data_ready(problem, out, item, k):
    """When the parents' data have reached cluster k, s."""
    ready = problem.item_release[item]
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


@kernel
def seek(problem, profile, scratch, out, choice, item, lower, now):
    """Earliest end from `lower` on, or if `now` at `lower` only; inf if none.

    The best is left in scratch.best_*, its start in pick_cost[3], its mode in pick[3], and its
    length in pick[4].
    """
    best, best_procs, best_used, best_cost = inf, 0, 0, 0.0
    group = problem.item_group[item]
    if problem.group_size[group] == 0:
        return best
    strongest = problem.class_power[problem.group_class[group, 0]]
    first, last = problem.mode_first[item], problem.mode_first[item + 1] - 1
    if choice.mode[item] >= 0:
        first += choice.mode[item]
        last = first
    only = -1
    if problem.item_apart[item]:
        only = 0
    while True:
        earliest = lower
        if only >= 0:
            earliest = max(lower, data_ready(problem, out, item, only))
        for mode in range(last, first - 1, -1):
            if now and earliest > lower:
                break
            procs = problem.mode_procs[mode]
            top = problem.mode_scaled[mode] / strongest + problem.mode_fixed[mode]
            peak = 0 if problem.item_splits[item] else procs
            place, i = locate(profile, earliest)
            start = earliest
            while True:
                if start + top > best + TOL:
                    break
                if not now:
                    place, i, start = clear(profile, place, i, start, procs, peak, top)
                    if place < 0 or start + top > best + TOL:
                        break
                end = window(
                    problem,
                    profile,
                    scratch,
                    item,
                    mode,
                    start,
                    place,
                    i,
                    best + TOL,
                    choice.power[item],
                    choice.pattern[item],
                    only,
                )
                if end < inf:
                    if best == inf:
                        scratch.pick_cost[FIRST_START] = start
                    used, cost = scratch.pick[1], scratch.pick_cost[0]
                    if (
                        end < best - TOL
                        or procs < best_procs
                        or (
                            procs == best_procs
                            and (
                                used < best_used
                                or (used == best_used and cost < best_cost * (1.0 - 1e-12))
                            )
                        )
                    ):
                        best, best_procs, best_used, best_cost = end, procs, used, cost
                        scratch.pick_cost[3] = start
                        scratch.pick[3] = mode
                        scratch.pick[4] = scratch.pick[0]
                        for u in range(scratch.pick[0]):
                            scratch.best_class[u] = scratch.pick_class[u]
                            scratch.best_procs[u] = scratch.pick_procs[u]
                if now:
                    break
                if scratch.pick[2] == 1:
                    place, i = locate(profile, scratch.pick_cost[2])
                i += 1
                if i >= profile.count[profile.block[place]]:
                    place += 1
                    i = 0
                    if place >= profile.size[BLOCKS]:
                        break
                start = profile.time[profile.block[place], i]
        if only < 0 or only + 1 >= problem.link_gbps.size:
            return best
        only += 1


@part
def recall(problem, scratch, item):
    """Start before which there is no room for an item, as `remember` knows; and write its row."""
    group, mode = problem.item_group[item], problem.mode_first[item]
    size = problem.group_size[group]
    count = scratch.counters[REMEMBERED]
    memory, mine = scratch.memory, scratch.memory[count % MEMORY]
    if size == 0 or problem.mode_first[item + 1] - mode > 1 or problem.item_apart[item]:
        return -inf
    scaled, fixed = problem.mode_scaled[mode], problem.mode_fixed[mode]
    whole = 0.0 if problem.item_splits[item] else 1.0
    procs = float(problem.mode_procs[mode])
    short = scaled / problem.class_power[problem.group_class[group, 0]] + fixed
    long = scaled / problem.class_power[problem.group_class[group, size - 1]] + fixed
    best = -inf
    for x in range(min(count, MEMORY)):
        if (
            memory[x, 5] > best
            and memory[x, 2] <= procs
            and memory[x, 3] <= short
            and memory[x, 4] <= long
            and memory[x, 0] == group
            and memory[x, 1] <= whole
        ):
            best = memory[x, 5]
    mine[0], mine[1], mine[2], mine[3], mine[4] = group, whole, procs, short, long
    mine[5] = -inf
    return best


@part
def remember(problem, scratch, item):
    """Keep the first start of an item that could begin at once and loads no link."""
    mode = problem.mode_first[item]
    if problem.mode_first[item + 1] - mode > 1 or problem.item_apart[item]:
        return
    if problem.item_splits[item] and problem.item_gbps[item] > 0.0:
        return
    count = scratch.counters[REMEMBERED]
    scratch.memory[count % MEMORY, 5] = scratch.pick_cost[FIRST_START]
    scratch.counters[REMEMBERED] += 1


@part
def commit(problem, profile, scratch, out, item, end):
    """Book what `seek` found, and tell the children."""
    first = scratch.counters[USES]
    length = scratch.pick[4]
    out.start[item] = scratch.pick_cost[3]
    out.end[item] = end
    out.mode[item] = scratch.pick[3]
    out.use_first[item] = first
    out.use_count[item] = length
    for u in range(length):
        out.use_class[first + u] = scratch.best_class[u]
        out.use_procs[first + u] = scratch.best_procs[u]
    scratch.counters[USES] += length
    scratch.counters[STAMP] += 1
    book(problem, profile, scratch, out, item, 1)
    for x in range(problem.child_first[item], problem.child_first[item + 1]):
        child = problem.child[x]
        out.missing[child] -= 1
        if out.missing[child] == 0:
            ready = inf
            if problem.item_apart[child]:
                for k in range(problem.link_gbps.size):
                    ready = min(ready, data_ready(problem, out, child, k))
            else:
                ready = problem.item_release[child]
                for y in range(problem.parent_first[child], problem.parent_first[child + 1]):
                    ready = max(ready, out.end[problem.parent[y]])
            out.ready[child] = ready


# ---- the decoders


@kernel
def serial(problem, profile, scratch, out, choice, order, strict):
    """Place the items in this order; `strict`: starts never decrease."""
    frontier = -inf
    now = profile.time[profile.block[0], 0]
    scratch.counters[REMEMBERED] = 0
    for pos in range(order.size):
        scratch.position[order[pos]] = pos
    pos = 0
    while pos < order.size:
        item = order[pos]
        pos += 1
        if out.start[item] == out.start[item] or out.missing[item] != 0:
            continue
        lower = out.ready[item]
        known = frontier if strict else recall(problem, scratch, item)
        end = seek(problem, profile, scratch, out, choice, item, max(lower, known), False)
        if end == inf:
            out.missing[item] = -1
            continue
        free = choice.power[item] == 0.0 and choice.pattern[item] < 0
        if not strict and free and lower <= now:
            remember(problem, scratch, item)
        commit(problem, profile, scratch, out, item, end)
        frontier = out.start[item]
        # children that the order names too early follow at once
        for x in range(problem.child_first[item], problem.child_first[item + 1]):
            child = problem.child[x]
            if out.missing[child] == 0 and scratch.position[child] >= 0:
                pos = min(pos, scratch.position[child])
    for pos in range(order.size):
        scratch.position[order[pos]] = -1


@part
def survey(problem, profile, scratch, group, row, head_row, t):
    """Refresh what a group finds free now, and beside the booking of the head."""
    shared = scratch.shared
    avail = scratch.avail
    for k in range(avail.size):
        avail[k] = 0
        shared[k] = 0
    reach = 0
    for x in range(problem.group_size[group]):
        c = problem.group_class[group, x]
        need = problem.need[group, c]
        count = profile.free[row, c] // need
        if problem.closed_first[c] < problem.closed_first[c + 1]:
            k = problem.class_cluster[c]
        reach += count
        scratch.reach[group, x] = reach
        avail[k] += count
        if head_row >= 0:
            shared[k] += min(count, profile.free[head_row, c] // need)
    sums = scratch.sums
    for x in range(4):
        sums[group, x] = 0
    for k in range(avail.size):
        sums[group, 0] += avail[k]
        sums[group, 1] = max(sums[group, 1], avail[k])
        sums[group, 2] += shared[k]
        sums[group, 3] = max(sums[group, 3], shared[k])
    scratch.stamp[group] = scratch.counters[STAMP]


@part
def may_fit(problem, scratch, item, t, head_start, spare):
    """Whether it is worth trying an item now; `spare` is the free capacity of all links, Gbit/s."""
    group = problem.item_group[item]
    first = problem.mode_first[item]
    procs = problem.mode_procs[first]
    splits = problem.item_splits[item]
    sums = scratch.sums
    if procs > sums[group, 0] or (not splits and procs > sums[group, 1]):
        return False
    # Each part but the largest has t <= n / 2, so that its link carries at least b t / 2.
    apart = procs - sums[group, 1]
    if apart > 0 and problem.item_gbps[item] * apart > 2.0 * spare * (1.0 + 1e-9):
        return False
    if head_start == inf or problem.mode_first[item + 1] - first > 1:
        return True
    if procs <= sums[group, 2 if splits else 3]:
        return True
    low, high = 0, problem.group_size[group] - 1
    while low < high:  # the strongest level at which enough processes are free
        middle = (low + high) >> 1
        if scratch.reach[group, middle] >= procs:
            high = middle
        else:
            low = middle + 1
    power = problem.class_power[problem.group_class[group, low]]
    return t + problem.mode_scaled[first] / power + problem.mode_fixed[first] <= head_start + TOL


@part
def following(profile, t):
    """When the row after the one in force at t begins, s; inf if that is the last."""
    place, i = locate(profile, t)
    if i + 1 < profile.count[profile.block[place]]:
        return profile.time[profile.block[place], i + 1]
    if place + 1 < profile.size[BLOCKS]:
        return profile.time[profile.block[place + 1], 0]
    return inf


@part
def line_up(problem, scratch, out, order):
    """List what has no place yet, with what decides quickly; how many."""
    count = 0
    for pos in range(order.size):
        item = order[pos]
        if out.start[item] == out.start[item]:
            continue
        first, last = problem.mode_first[item], problem.mode_first[item + 1] - 1
        group = problem.item_group[item]
        power = problem.class_power[problem.group_class[group, 0]]
        scratch.live[count] = item
        scratch.live_procs[count] = problem.mode_procs[first]
        scratch.live_ready[count] = out.ready[item]
        scratch.live_top[count] = problem.mode_scaled[last] / power + problem.mode_fixed[last]
        count += 1
    return count


@part
def look(problem, profile, scratch, out, head, t):
    """Note what is free at t, and beside the booking of the head: the row of each, -1 none."""
    place, i = locate(profile, t)
    row = profile.row[profile.block[place], i]
    scratch.glance[0] = profile.total[profile.block[place], i]
    scratch.glance[1] = 1 << 60
    spare = 0.0
    for k in range(problem.link_gbps.size):
        left = FULL + ROUNDING - profile.load[row, k]
        if left > 0:
            spare += problem.link_gbps[k] * (left / FULL)
    scratch.pick_cost[SPARE] = spare
    head_row = -1
    if head >= 0:
        a, b = locate(profile, out.start[head])
        head_row = profile.row[profile.block[a], b]
        shared = 0
        for c in range(problem.class_power.size):
            units = min(profile.free[row, c], profile.free[head_row, c])
            shared += units // problem.class_grain[c]
        scratch.glance[1] = shared
    return row, head_row


@kernel
def events(problem, profile, scratch, out, choice, order, t, easy):
    """At each event start what fits now, in this order; `easy`: the head books its place.

    The first item that does not fit now is the head. Its booking stands until it starts: nobody
    who starts beside it delays it, so it would find the same place again.
    """
    live, procs, ready = scratch.live, scratch.live_procs, scratch.live_ready
    top, glance = scratch.live_top, scratch.glance
    count = line_up(problem, scratch, out, order)
    head = -1
    while count > 0:
        scratch.counters[STAMP] += 1
        row, head_row = look(problem, profile, scratch, out, head, t)
        head_start = out.start[head] if head >= 0 else inf
        wake = inf
        kept = 0
        for pos in range(count):
            if ready[pos] > t:
                item = live[pos]
                ready[pos] = out.ready[item]
                if ready[pos] > t:
                    wake = min(wake, ready[pos])
                    if kept < pos:
                        live[kept], procs[kept] = item, procs[pos]
                        ready[kept], top[kept] = ready[pos], top[pos]
                    kept += 1
                    continue
            tried = procs[pos] <= glance[0] and (
                procs[pos] <= glance[1] or t + top[pos] <= head_start + TOL
            )
            if tried or (easy and head < 0):
                item = live[pos]
                group = problem.item_group[item]
                if scratch.stamp[group] != scratch.counters[STAMP]:
                    survey(problem, profile, scratch, group, row, head_row, t)
                spare = scratch.pick_cost[SPARE]
                end = inf
                if tried and may_fit(problem, scratch, item, t, head_start, spare):
                    end = seek(problem, profile, scratch, out, choice, item, t, True)
                if end == inf and easy and head < 0:
                    end = seek(problem, profile, scratch, out, choice, item, t, False)
                if end < inf:
                    commit(problem, profile, scratch, out, item, end)
                    if out.start[item] > t:
                        head, head_start = item, out.start[item]
                    row, head_row = look(problem, profile, scratch, out, head, t)
                    continue
            if kept < pos:
                live[kept], procs[kept] = live[pos], procs[pos]
                ready[kept], top[kept] = ready[pos], top[pos]
            kept += 1
        count = kept
        t = min(wake, following(profile, t))
        if t == inf:
            break
        if head >= 0 and out.start[head] <= t:
            head = -1


@kernel
def begin(problem, base, profile, scratch, out):
    """Empty the profile and the outcome."""
    reset(problem, base, profile)
    scratch.counters[WINDOWS] = 0
    scratch.counters[STAMP] = 0
    scratch.counters[USES] = 0
    for g in range(scratch.stamp.size):
        scratch.stamp[g] = -1
    for item in range(problem.item_group.size):
        out.start[item] = np.nan
        out.end[item] = np.nan
        out.use_first[item] = 0
        out.use_count[item] = 0
        parents = problem.parent_first[item + 1] - problem.parent_first[item]
        out.missing[item] = parents
        out.ready[item] = problem.item_release[item] if parents == 0 else inf
        scratch.position[item] = -1


def decode(
    problem: Problem,
    base: Base,
    profile: Profile,
    scratch: Scratch,
    out: Outcome,
    choice: Choice,
    first: Any,
    order: Any,
    decoder: int,
) -> int:
    """Place everything: `first` by insertion, then `order` by the decoder; the work done.

    No kernel, since a kernel contains the code of all that it calls, and this one would contain
    everything. A compiled search calls `begin` and a decoder itself.
    """
    begin(problem, base, profile, scratch, out)
    if first.size:
        serial(problem, profile, scratch, out, choice, first, False)
    if decoder <= INSERT:
        serial(problem, profile, scratch, out, choice, order, decoder == STRICT)
    else:
        events(problem, profile, scratch, out, choice, order, base.time[0], decoder == EASY)
    return int(scratch.counters[WINDOWS])
