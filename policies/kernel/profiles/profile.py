"""Free slots and link load over time, changed in place.

See the package for how rows, blocks and dips work.
"""

from __future__ import annotations

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.loads import load_units
from coalloc.policies.kernel.record import Ints
from coalloc.policies.kernel.state import (
    BLOCKS,
    FREE_BLOCKS,
    FREE_ROWS,
    ROWS,
    WIDTH,
    Base,
    Problem,
    Profile,
    ProfileState,
)


@helper()
def locate(profile: Profile, t: float) -> tuple[int, int]:
    """Place in the order, and offset, of the row in force at t."""
    low, high = 0, profile.size[BLOCKS] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if profile.time[profile.block[middle], 0] <= t:
            low = middle
        else:
            high = middle - 1
    block = profile.block[low]
    left, right = 0, profile.filled[block] - 1
    while left < right:
        middle = (left + right + 1) >> 1
        if profile.time[block, middle] <= t:
            left = middle
        else:
            right = middle - 1
    return low, left


@helper()
def bound(profile: Profile, block: int) -> None:
    """Recompute what a block offers at least and at most."""
    a, b = profile.total[block, 0], profile.total[block, 0]
    c, d = profile.peak[block, 0], profile.peak[block, 0]
    dips = 0
    for i in range(profile.filled[block]):
        a = min(a, profile.total[block, i])
        b = max(b, profile.total[block, i])
        c = min(c, profile.peak[block, i])
        d = max(d, profile.peak[block, i])
        dips += profile.dip[block, i]
    profile.bounds[block, 0] = a - profile.owes[block]
    profile.bounds[block, 1] = b - profile.owes[block]
    profile.bounds[block, 2] = c
    profile.bounds[block, 3] = d
    profile.dips[block] = dips


@helper()
def apply_owed(profile: Profile, block: int) -> None:
    """Take off the rows of a block what `book` has noted for all of them: before one is read."""
    if profile.owes[block] == 0:
        return
    units, clusters = profile.free.shape[1], profile.load.shape[1]
    for i in range(profile.filled[block]):
        row, peak = profile.row[block, i], 0
        for c in range(units):
            profile.free[row, c] -= profile.owed[block, c]
        for k in range(units - clusters, units):
            peak = max(peak, profile.free[row, k])
        for k in range(clusters):
            profile.load[row, k] += profile.owed_load[block, k]
        profile.peak[block, i] = peak
        profile.total[block, i] -= profile.owes[block]
    profile.owed[block] = 0
    profile.owed_load[block] = 0
    profile.owes[block] = 0
    bound(profile, block)


@helper()
def move(profile: Profile, source: int, i: int, target: int, j: int) -> None:
    """Copy an entry of a block."""
    profile.time[target, j] = profile.time[source, i]
    profile.row[target, j] = profile.row[source, i]
    profile.total[target, j] = profile.total[source, i]
    profile.peak[target, j] = profile.peak[source, i]
    profile.dip[target, j] = profile.dip[source, i]


@helper()
def add_block(profile: Profile, place: int) -> int:
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
    profile.filled[block] = 0
    profile.owed[block] = 0  # of what it was before
    profile.owed_load[block] = 0
    profile.owes[block] = 0
    size[BLOCKS] += 1
    return block


@helper()
def cut(profile: Profile, t: float) -> None:
    """Make a row begin at t."""
    place, i = locate(profile, t)
    block = profile.block[place]
    if profile.time[block, i] == t:
        return
    if profile.filled[block] == WIDTH:
        apply_owed(profile, block)
        half = WIDTH // 2
        other = add_block(profile, place + 1)
        for k in range(half, WIDTH):
            move(profile, block, k, other, k - half)
        profile.filled[block] = half
        profile.filled[other] = WIDTH - half
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
    for k in range(profile.filled[block], i + 1, -1):
        move(profile, block, k - 1, block, k)
    move(profile, block, i, block, i + 1)
    profile.time[block, i + 1] = t
    profile.row[block, i + 1] = row
    profile.dip[block, i + 1] = 0
    profile.filled[block] += 1


@helper()
def remove(profile: Profile, place: int, i: int) -> None:
    """Take a row out; no block becomes empty."""
    block = profile.block[place]
    size = profile.size
    apply_owed(profile, block)
    profile.recycled[size[FREE_ROWS]] = profile.row[block, i]
    size[FREE_ROWS] += 1
    size[ROWS] -= 1
    for k in range(i, profile.filled[block] - 1):
        move(profile, block, k + 1, block, k)
    profile.filled[block] -= 1
    gone = -1
    if profile.filled[block] == 0:
        gone = place
    else:
        if profile.filled[block] < WIDTH // 4 and place + 1 < size[BLOCKS]:
            other = profile.block[place + 1]
            if profile.filled[block] + profile.filled[other] <= 3 * WIDTH // 4:
                apply_owed(profile, other)
                for k in range(profile.filled[other]):
                    move(profile, other, k, block, profile.filled[block] + k)
                profile.filled[block] += profile.filled[other]
                gone = place + 1
        bound(profile, block)
    if gone >= 0:
        profile.recycled_block[size[FREE_BLOCKS]] = profile.block[gone]
        size[FREE_BLOCKS] += 1
        size[BLOCKS] -= 1
        for k in range(gone, size[BLOCKS]):
            profile.block[k] = profile.block[k + 1]


@helper()
def forget(profile: Profile, t: float) -> None:
    """Remove the rows that are over at t."""
    while True:
        block = profile.block[0]
        if profile.filled[block] > 1:
            following = profile.time[block, 1]
        elif profile.size[BLOCKS] > 1:
            following = profile.time[profile.block[1], 0]
        else:
            return
        if following > t:
            return
        remove(profile, 0, 0)


@helper()
def reset(problem: Problem, base: Base, profile: Profile) -> None:
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
        profile.filled[block] = i + 1
        profile.time[block, i] = base.time[r]
        profile.row[block, i] = r
        profile.total[block, i] = total
        profile.peak[block, i] = peak
        profile.dip[block, i] = 0
        if i + 1 == WIDTH // 2 or r + 1 == base.time.size:
            bound(profile, block)


@helper()
def measure_use(state: ProfileState, item: int, sign: int) -> tuple[bool, bool]:
    """Write what an item puts on the links; whether that is anything, and whether it uses slots.

    The other units of a class are counted one by one, from which whole slots follow in each row.
    """
    problem, scratch, out = state.problem, state.scratch, state.out
    clusters, first = problem.link_gbps.size, out.use_first[item]
    inside, units = scratch.take, scratch.left
    procs, used, loads, slots = 0, 0, False, True
    for k in range(clusters):
        inside[k] = 0
    for u in range(first, first + out.use_count[item]):
        k = problem.class_cluster[out.use_class[u]]
        used += inside[k] == 0
        inside[k] += out.use_procs[u]
        procs += out.use_procs[u]
        slots &= problem.class_grain[out.use_class[u]] == 1
    for k in range(clusters):
        units[k] = 0
        if used > 1:
            gbps = problem.item_gbps[item]
            units[k] = sign * load_units(gbps, procs, inside[k], problem.link_gbps[k])
        if problem.item_wide[item] >= 0:
            units[k] = sign * problem.wide_units[problem.item_wide[item], k]
        loads |= units[k] != 0
    return loads, slots


@helper()
def book_block(state: ProfileState, item: int, block: int) -> None:
    """Note what an item takes of all rows of a block."""
    problem, profile, out = state.problem, state.profile, state.out
    classes, first = problem.class_power.size, out.use_first[item]
    for u in range(first, first + out.use_count[item]):
        c = out.use_class[u]
        slots = out.use_procs[u] * problem.need[problem.item_group[item], c]
        profile.owed[block, c] += slots
        profile.owed[block, classes + problem.class_cluster[c]] += slots
        profile.owes[block] += slots
        profile.bounds[block, 0] -= slots
        profile.bounds[block, 1] -= slots
    for k in range(problem.link_gbps.size):
        profile.owed_load[block, k] += state.scratch.left[k]


@helper()
def book_row(state: ProfileState, item: int, sign: int, block: int, i: int, loads: bool) -> None:
    """Take or give back what an item uses in one row.

    Of a block that owes something the largest sum of one cluster stays as it is, an upper bound.
    """
    problem, profile, out = state.problem, state.profile, state.out
    clusters, classes = problem.link_gbps.size, problem.class_power.size
    first, row = out.use_first[item], profile.row[block, i]
    gone, peak, fell = 0, profile.peak[block, i], False
    for u in range(first, first + out.use_count[item]):
        c = out.use_class[u]
        k = classes + problem.class_cluster[c]
        slots = sign * out.use_procs[u] * problem.need[problem.item_group[item], c]
        before = profile.free[row, c]
        profile.free[row, c] -= slots
        grain = problem.class_grain[c]
        if grain > 1:
            slots = before // grain - profile.free[row, c] // grain
        fell |= slots > 0 and profile.free[row, k] == peak and profile.owes[block] == 0
        profile.free[row, k] -= slots
        peak = max(peak, profile.free[row, k])
        gone += slots
    profile.total[block, i] -= gone
    if fell:
        peak = 0
        for k in range(clusters):
            peak = max(peak, profile.free[row, classes + k])
    for k in range(clusters if loads else 0):
        profile.load[row, k] += state.scratch.left[k]
    profile.peak[block, i] = peak


@helper()
def book(state: ProfileState, item: int, sign: int) -> None:
    """Take (1) or give back (-1) what an item uses."""
    profile, start, end = state.profile, state.out.start[item], state.out.end[item]
    loads, slots = measure_use(state, item, sign)
    cut(profile, start)
    cut(profile, end)
    place, i = locate(profile, start)
    block = profile.block[place]
    if sign > 0 and profile.dip[block, i] == 0:
        profile.dip[block, i] = 1
        profile.dips[block] += 1
    while profile.time[block, i] < end:
        by_block = slots and sign > 0
        if by_block and i == 0 and profile.time[block, profile.filled[block] - 1] < end:
            book_block(state, item, block)
            place += 1
            block = profile.block[place]
            continue
        if not by_block:
            apply_owed(profile, block)
        book_row(state, item, sign, block, i, loads)
        i += 1
        if i == profile.filled[block]:
            bound(profile, block)
            place += 1
            block = profile.block[place]
            i = 0
    bound(profile, block)


@kernel
def book_all(state: ProfileState, items: Ints, sign: int) -> None:
    """Take (1) or give back (-1) what each of these items uses."""
    for item in items:
        book(state, item, sign)
