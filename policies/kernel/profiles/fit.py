"""Whether and how an item fits at one start.

See the package for levels of power and for the rule of ties, `coalloc.model.split` for how a job
is spread.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import (
    closes,
    divide,
    lay_wide,
    low_side,
    one_cluster,
    onto_classes,
)
from coalloc.policies.kernel.profiles.profile import apply_owed
from coalloc.policies.kernel.record import Ints
from coalloc.policies.kernel.state import (
    BLOCKS,
    FINEST,
    FULL,
    ROUNDING,
    SHORTEST,
    WINDOWS,
    Problem,
    ProfileState,
    Scratch,
)


@helper()
def spread(problem: Problem, scratch: Scratch, item: int, procs: int) -> int:
    """Split over clusters into best_take; the number of clusters or 0."""
    reach = 0
    for k in range(scratch.avail.size):
        reach += scratch.avail[k]
    if reach < procs:
        return 0
    gbps = problem.item_gbps[item]
    for k in range(scratch.avail.size):
        residual = FULL + ROUNDING - scratch.loaded[k]
        scratch.low[k] = low_side(gbps, procs, residual, problem.link_gbps[k])
    return divide(
        procs,
        scratch.avail,
        scratch.low,
        scratch.left,
        scratch.rank,
        scratch.take,
        scratch.best_take,
    )


@helper()
def allot(problem: Problem, scratch: Scratch, item: int, procs: int, size: int) -> int:
    """Choose clusters with the first `size` classes into best_take; how many, 0 if none will do."""
    group, avail, row = problem.item_group[item], scratch.avail, problem.item_wide[item]
    chosen = one_cluster(
        problem, group, procs, size, -1, avail, scratch.procs, scratch.left, scratch.cost
    )
    for k in range(avail.size):
        scratch.best_take[k] = procs if k == chosen else 0
    if chosen >= 0:
        return 1
    if row >= 0:
        return lay_wide(problem, row, avail, scratch.loaded, scratch.best_take)
    if problem.item_splits[item]:
        return spread(problem, scratch, item, procs)
    return 0


MOST_UNITS = 2147483647


class Run(NamedTuple):
    """One allotment of an item, as it is looked for."""

    item: int
    group: int
    procs: int
    scaled: float  # s at power 1
    fixed: float  # s
    limit: float  # s, no run is longer
    whole: bool  # on one cluster
    only: int  # the cluster, or -1


@helper(inline=True)
def seconds(run: Run, power: float) -> float:
    """Run time on nodes of this power, s."""
    return min(run.scaled / power + run.fixed, run.limit)


class Fit(NamedTuple):
    """Fit found at a start; its classes are in scratch.pick_*."""

    end: float  # s, inf if nothing
    clusters: int
    classes: int  # how many
    cost: float  # power of all its nodes
    retry: float  # s: nothing fits up to the row that begins here; -inf where that is not known


@helper()
def room(problem: Problem, scratch: Scratch, run: Run, size: int, free: Ints) -> int:
    """Lower the minima to a row, and count the processes they allow.

    If the run is `whole`, those on the best cluster alone. In a plain group, classes[z] is z and
    takes one unit a process: this loop becomes vector instructions.
    """
    classes, need = problem.group_class[run.group], problem.need[run.group]
    cluster, least, sums = problem.class_cluster, scratch.least, scratch.shared
    total = 0
    if problem.group_plain[run.group] and not run.whole:
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
    if run.whole:
        total = 0
        for k in range(sums.size):
            total = max(total, sums[k])
    return total


@helper()
def enter(state: ProfileState, run: Run, start: float, row: int, cutoff: float) -> int:
    """Set the minima to the row of the start; the number of classes that end by the cutoff."""
    problem, profile, scratch = state.problem, state.profile, state.scratch
    size = 0
    for x in range(problem.group_size[run.group]):
        c = problem.group_class[run.group, x]
        if start + seconds(run, problem.class_power[c]) > cutoff:
            break
        size = x + 1
        scratch.least[x] = 0
        scratch.until[x] = inf
        if run.only >= 0 and problem.class_cluster[c] != run.only:
            continue
        if problem.closed_first[c] < problem.closed_first[c + 1]:
            scratch.until[x] = closes(problem, run.group, c, start)
            if scratch.until[x] <= start:
                continue
        scratch.least[x] = profile.free[row, c]
    return size


@helper()
def retreat(state: ProfileState, run: Run, size: int, start: float, place: int, i: int) -> float:
    """Start of the last row from which on, up to the row at (place, i), too little is free.

    At least the row of `start`: reservations, which may be why it fails, are not looked at.
    """
    problem, profile, scratch = state.problem, state.profile, state.scratch
    for z in range(size):
        scratch.least[z] = 0
        c = problem.group_class[run.group, z]
        if run.only < 0 or problem.class_cluster[c] == run.only:
            scratch.least[z] = MOST_UNITS
    while True:
        apply_owed(profile, profile.block[place])
        free = profile.free[profile.row[profile.block[place], i]]
        left = room(problem, scratch, run, size, free)
        if left < run.procs or profile.time[profile.block[place], i] <= start:
            return profile.time[profile.block[place], i]
        i -= 1
        if i < 0:
            place -= 1
            i = profile.filled[profile.block[place]] - 1


@helper()
def descend(
    state: ProfileState, run: Run, size: int, end: float, place: int, i: int
) -> tuple[int, int, bool]:
    """Lower the minima by the dips after (place, i) and before `end`.

    Returns where it stopped, and whether that was because too little is left.
    """
    problem, profile, scratch = state.problem, state.profile, state.scratch
    block = profile.block[place]
    while True:
        i += 1
        if i >= profile.filled[block]:
            after = place + 1
            while (
                after < profile.size[BLOCKS]
                and profile.dips[profile.block[after]] == 0
                and profile.time[profile.block[after], 0] < end
            ):
                after += 1
            if after >= profile.size[BLOCKS]:
                place = after - 1
                return place, profile.filled[profile.block[place]] - 1, False
            place, i = after, 0
            block = profile.block[place]
        if profile.time[block, i] >= end:
            return place, i - 1, False  # -1 is before the first entry of the block
        if profile.dip[block, i] == 0:
            continue
        apply_owed(profile, block)
        row = profile.row[block, i]
        for k in range(scratch.loaded.size):
            scratch.loaded[k] = max(scratch.loaded[k], profile.load[row, k])
        if room(problem, scratch, run, size, profile.free[row]) < run.procs:
            return place, i, True


@helper()
def enough(problem: Problem, scratch: Scratch, run: Run, size: int, after: int) -> int:
    """End of the first level of power behind `after` up to which enough is free; 0 if none.

    Where the time does not depend on power, all powers are one level.
    """
    classes, need = problem.group_class[run.group], problem.need[run.group]
    cluster, powers, sums = problem.class_cluster, problem.class_power, scratch.shared
    for k in range(sums.size):
        sums[k] = 0
    total = 0
    for z in range(size):
        c = classes[z]
        count = scratch.least[z] if need[c] == 1 else scratch.least[z] // need[c]
        if run.whole:
            sums[cluster[c]] += count
            total = max(total, sums[cluster[c]])
        else:
            total += count
        last = z + 1 == size or (powers[classes[z + 1]] != powers[c] and run.scaled != 0.0)
        if last and z >= after and total >= run.procs:
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
def window(state: ProfileState, run: Run, start: float, place: int, i: int, cutoff: float) -> Fit:
    """Find the best end of a run that begins at `start`, in the row at (place, i).

    Ends after `cutoff` are not looked for.
    """
    problem, profile, scratch = state.problem, state.profile, state.scratch
    scratch.counters[WINDOWS] += 1
    group = run.group
    classes, powers = problem.group_class[group], problem.class_power
    shortest = max(SHORTEST, FINEST * abs(start))
    apply_owed(profile, profile.block[place])
    row = profile.row[profile.block[place], i]
    size = enter(state, run, start, row, cutoff)
    for k in range(problem.link_gbps.size):
        scratch.loaded[k] = profile.load[row, k]
    y = 0
    while True:
        y = enough(problem, scratch, run, size, y)
        if y == 0:
            return Fit(inf, 0, 0, 0.0, -inf)
        level = powers[classes[y - 1]]
        end = start + max(seconds(run, level), shortest)
        place, i, short = descend(state, run, size, end, place, i)
        if short:
            retry = -inf
            strongest = powers[classes[0]]
            if profile.time[profile.block[place], i] < start + seconds(run, strongest):
                retry = retreat(state, run, size, start, place, i)
            return Fit(inf, 0, 0, 0.0, retry)
        gather(problem, scratch, group, y, end)
        used = allot(problem, scratch, run.item, run.procs, y)
        if used > 0:
            count, cost, weakest = onto_classes(
                problem,
                group,
                y,
                scratch.best_take,
                scratch.procs,
                scratch.pick_class,
                scratch.pick_procs,
            )
            end = start + max(seconds(run, weakest), shortest)
            return Fit(end, used, count, cost, -inf)
