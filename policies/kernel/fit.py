"""Whether and how an item fits at one start.

See the package for levels of power and for the rule of ties, `split` for how a job is spread.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.allotment import allot
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.state import (
    BLOCKS,
    SHORTEST,
    WINDOWS,
    Problem,
    Profile,
    Scratch,
)


@helper()
def closes(problem: Problem, group: int, c: int, t: float) -> float:
    """When a reservation next closes a class to a group, at or after t; inf never."""
    at = inf
    for x in range(problem.closed_first[c], problem.closed_first[c + 1]):
        r = problem.closed[x]
        if problem.exempt[group, r] == 0 and problem.reserved[r, 1] > t:
            at = min(at, max(t, problem.reserved[r, 0]))
    return at


@helper()
def room(
    classes: Any,
    need: Any,
    cluster: Any,
    least: Any,
    free: Any,
    sums: Any,
    size: int,
    plain: bool,
    whole: bool,
) -> int:
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


@helper()
def enter(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    group: int,
    scaled: float,
    fixed: float,
    start: float,
    row: int,
    cutoff: float,
    only: int,
) -> int:
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


@helper()
def retreat(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    group: int,
    procs: int,
    whole: bool,
    size: int,
    only: int,
    start: float,
    place: int,
    i: int,
) -> float:
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


@helper()
def descend(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    group: int,
    procs: int,
    whole: bool,
    size: int,
    end: float,
    place: int,
    i: int,
) -> tuple[int, int, bool]:
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


@helper()
def enough(
    classes: Any,
    need: Any,
    cluster: Any,
    powers: Any,
    least: Any,
    sums: Any,
    size: int,
    after: int,
    procs: int,
    whole: bool,
    alike: bool,
) -> int:
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


@helper()
def gather(problem: Problem, scratch: Scratch, group: int, size: int, end: float) -> None:
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


@helper()
def window(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    item: int,
    mode: int,
    start: float,
    place: int,
    i: int,
    cutoff: float,
    power: float,
    pattern: int,
    only: int,
) -> float:
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
