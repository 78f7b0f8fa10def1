"""Whether an item is worth trying now: quick answers before `seek` is asked."""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import closes, least_time
from coalloc.policies.kernel.profiles.profile import apply_owed, locate
from coalloc.policies.kernel.state import (
    BLOCK,
    BLOCKS,
    FULL,
    ROUNDING,
    SEEN,
    SIZES,
    STAMP,
    STEPS,
    TOL,
    Problem,
    ProfileState,
    Scratch,
)


@helper()
def survey(state: ProfileState, group: int, row: int, t: float) -> None:
    """Refresh what a group finds free now."""
    problem, profile, scratch = state.problem, state.profile, state.scratch
    avail, sums = scratch.avail, scratch.sums
    for k in range(avail.size):
        avail[k] = 0
    reach = 0
    for x in range(problem.group_size[group]):
        c = problem.group_class[group, x]
        need = problem.need[group, c]
        count = profile.free[row, c] if need == 1 else profile.free[row, c] // need
        if (
            problem.closed_first[c] < problem.closed_first[c + 1]
            and closes(problem, group, c, t) <= t
        ):
            count = 0
        k = problem.class_cluster[c]
        reach += count
        scratch.reach[group, x] = reach
        avail[k] += count
    sums[group, 0], sums[group, 1] = reach, 0
    for k in range(avail.size):
        sums[group, 1] = max(sums[group, 1], avail[k])
    scratch.stamp[group] = scratch.counters[STAMP]


@helper()
def strongest(problem: Problem, scratch: Scratch, group: int, procs: int) -> float:
    """The highest level of power at which enough processes are free; the lowest if none is."""
    low, high = 0, problem.group_size[group] - 1
    while low < high:
        middle = (low + high) >> 1
        if scratch.reach[group, middle] >= procs:
            high = middle
        else:
            low = middle + 1
    return problem.class_power[problem.group_class[group, low]]


@helper()
def measure(problem: Problem, free: Any, least: Any, sums: Any, step: Any) -> None:
    """Lower the minima to a row; write the whole slots they leave, in all and on one cluster."""
    for k in range(sums.size):
        sums[k] = 0
    total, peak = 0, 0
    for c in range(least.size):
        least[c] = min(least[c], free[c])
        slots = least[c] if problem.class_grain[c] == 1 else least[c] // problem.class_grain[c]
        total += slots
        sums[problem.class_cluster[c]] += slots
    for k in range(sums.size):
        peak = max(peak, sums[k])
    step[0], step[1] = total, peak


@helper()
def look_ahead(state: ProfileState, t: float) -> tuple[int, int, float]:
    """Write down how what is free from t on shrinks with the end of a run.

    Returns the row at t, the number of steps, and the free capacity of all links, Gbit/s.

    A run that begins at t and ends after stair_time[j] finds at most stair[j, 0] slots, and at most
    stair[j, 1] on one cluster. Bookings ahead (of the head, or of the guard) make the steps.
    """
    problem, profile, scratch = state.problem, state.profile, state.scratch
    place, i = locate(profile, t)
    apply_owed(profile, profile.block[place])
    row = profile.row[profile.block[place], i]
    least, stair, times = scratch.stair_least, scratch.stair, scratch.stair_time
    for c in range(least.size):
        least[c] = 2147483647
    measure(problem, profile.free[row], least, scratch.shared, stair[0])
    times[0] = -inf
    steps, seen = 1, 0
    while steps < STEPS and seen < SEEN and stair[steps - 1, 0] > 0:
        i += 1
        if i >= profile.filled[profile.block[place]]:
            place, i = place + 1, 0
            while place < profile.size[BLOCKS] and profile.dips[profile.block[place]] == 0:
                place += 1
            if place >= profile.size[BLOCKS]:
                break
        block = profile.block[place]
        if profile.dip[block, i] == 0:
            continue
        seen += 1
        apply_owed(profile, block)
        measure(problem, profile.free[profile.row[block, i]], least, scratch.shared, stair[steps])
        if stair[steps, 0] < stair[steps - 1, 0]:
            times[steps] = profile.time[block, i]
            steps += 1
    measure_sizes(scratch, steps)
    spare = 0.0
    for k in range(problem.link_gbps.size):
        left = FULL + ROUNDING - profile.load[row, k]
        if left > 0:
            spare += problem.link_gbps[k] * (left / FULL)
    return row, steps, spare


@helper()
def lasts(stair: Any, times: Any, steps: int, procs: int, whole: int, end: float) -> bool:
    """Whether so many processes may go on from now until `end`, for all that `stair` knows."""
    if procs > stair[0, whole]:
        return False
    if procs <= stair[steps - 1, whole]:
        return True
    low, high = 1, steps - 1
    while low < high:  # the first step that leaves too little
        middle = (low + high) >> 1
        if stair[middle, whole] < procs:
            high = middle
        else:
            low = middle + 1
    return end <= times[low] + TOL


@helper()
def least_of(size: int) -> int:
    """Fewest processes of a size of job, of which each power of two has four."""
    return ((4 + size % 4) << (size // 4)) >> 2


@helper()
def size_of(procs: int) -> int:
    """The size of a job of so many processes; the last one takes what is larger."""
    twos = 0
    while procs >= 2 << twos and twos < SIZES // 4 - 1:
        twos += 1
    return min(4 * twos + ((procs << 2) >> twos) - 4, SIZES - 1)


@helper()
def measure_sizes(scratch: Scratch, steps: int) -> None:
    """Note until when each size of job may go on from now, for all that `stair` knows."""
    step = 0
    for size in range(SIZES - 1, -1, -1):
        while step < steps and scratch.stair[step, 0] >= least_of(size):
            step += 1
        scratch.until_size[size] = inf if step == steps else scratch.stair_time[step]


@helper()
def note_block(scratch: Scratch, block: int, count: int, late: bool, changed: bool) -> None:
    """Keep of a block and its stretch whether an item may start later only (`late`).

    And, if it has `changed`, the shortest run of each size among their live items.
    """
    top, stretch = scratch.block_top, scratch.live.size // BLOCK + 1 + block // BLOCK
    scratch.block_late[block] = late
    scratch.block_late[stretch] |= late
    if not changed:
        return
    top[block], top[stretch] = inf, inf
    for pos in range(block * BLOCK, min(block * BLOCK + BLOCK, count)):
        if scratch.live[pos] >= 0:
            size = size_of(scratch.live_procs[pos])
            top[block, size] = min(top[block, size], scratch.live_top[pos])
    first = block - block % BLOCK
    for other in range(first, min(first + BLOCK, (count + BLOCK - 1) // BLOCK)):
        for size in range(SIZES):
            top[stretch, size] = min(top[stretch, size], top[other, size])


@helper()
def may_hold(scratch: Scratch, block: int, t: float) -> bool:
    """Whether any live item of a block may go on from t, or is to be looked at in any case."""
    if scratch.block_late[block]:
        return True
    for size in range(SIZES):
        if scratch.until_size[size] < t:
            return False
        top = scratch.block_top[block, size]
        if top < inf and t + top <= scratch.until_size[size] + TOL:
            return True
    return False


@helper()
def next_block(scratch: Scratch, block: int, blocks: int, t: float) -> int:
    """The first block from this one on with an item that may go on from t; `blocks` if none."""
    while block < blocks:
        stretch = scratch.live.size // BLOCK + 1 + block // BLOCK
        if block % BLOCK == 0:
            if not may_hold(scratch, stretch, t):
                block += BLOCK
                continue
            scratch.block_late[stretch] = False  # until a block of it is found to be
        if may_hold(scratch, block, t):
            return block
        block += 1
    return blocks


@helper()
def promising(
    problem: Problem, scratch: Scratch, item: int, t: float, steps: int, spare: float
) -> bool:
    """Whether it is worth trying an item now, with all bookings that lie ahead.

    `spare` is the free capacity of all links, Gbit/s.
    """
    group, mode = problem.item_group[item], problem.mode_first[item]
    procs, splits, sums = problem.mode_procs[mode], problem.item_splits[item], scratch.sums
    if procs > sums[group, 0] or (not splits and procs > sums[group, 1]):
        return False
    # Each part but the largest has t <= n / 2, so that its link carries at least b t / 2.
    apart = procs - sums[group, 1]
    if apart > 0 and problem.item_gbps[item] * apart > 2.0 * spare * (1.0 + 1e-9):
        return False
    if steps == 1 or problem.mode_first[item + 1] - mode > 1:
        return True
    end = t + least_time(problem, item, mode, strongest(problem, scratch, group, procs))
    return lasts(scratch.stair, scratch.stair_time, steps, procs, 0 if splits else 1, end)
