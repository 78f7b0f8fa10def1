"""The three decoders: strict and insert (`serial`), and event (`events`, with EASY's head)."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.loads import closes, data_ready
from coalloc.policies.kernel.profile import (
    locate,
    reset,
)
from coalloc.policies.kernel.record import Ints
from coalloc.policies.kernel.seek import Place, commit, recall, remember, seek
from coalloc.policies.kernel.state import (
    BLOCKS,
    EASY,
    FULL,
    INSERT,
    REMEMBERED,
    ROUNDING,
    SEEN,
    STAMP,
    STEPS,
    STRICT,
    TOL,
    USES,
    WINDOWS,
    Base,
    Outcome,
    Problem,
    Profile,
    Scratch,
)


@kernel
def serial(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    out: Outcome,
    fixed_mode: Ints,
    order: Any,
    strict: bool,
) -> None:
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
        start = max(lower, known)
        place = seek(problem, profile, scratch, out, fixed_mode, item, start, False)
        if place.end == inf:
            out.missing[item] = -1
            continue
        if not strict and lower <= now:
            remember(problem, scratch, item, place.first)
        commit(problem, profile, scratch, out, item, place)
        frontier = out.start[item]
        # children that the order names too early follow at once
        for x in range(problem.child_first[item], problem.child_first[item + 1]):
            child = problem.child[x]
            if out.missing[child] == 0 and scratch.position[child] >= 0:
                pos = min(pos, scratch.position[child])
    for pos in range(order.size):
        scratch.position[order[pos]] = -1


@helper()
def survey(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    group: int,
    row: int,
    head_row: int,
    t: float,
) -> None:
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
        if (
            problem.closed_first[c] < problem.closed_first[c + 1]
            and closes(problem, group, c, t) <= t
        ):
            count = 0
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


@helper()
def may_fit(
    problem: Problem, scratch: Scratch, item: int, t: float, head_start: float, spare: float
) -> bool:
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


@helper()
def following(profile: Profile, t: float) -> float:
    """When the row after the one in force at t begins, s; inf if that is the last."""
    place, i = locate(profile, t)
    if i + 1 < profile.filled[profile.block[place]]:
        return profile.time[profile.block[place], i + 1]
    if place + 1 < profile.size[BLOCKS]:
        return profile.time[profile.block[place + 1], 0]
    return inf


@helper()
def arriving(problem: Problem, out: Outcome, item: int, t: float) -> float:
    """When data that are on their way at t next reach a cluster, s; inf if none are."""
    soonest = inf
    for k in range(problem.link_gbps.size):
        ready = data_ready(problem, out, item, k)
        if ready > t:
            soonest = min(soonest, ready)
    return soonest


@helper()
def line_up(problem: Problem, scratch: Scratch, out: Outcome, order: Any) -> int:
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
        scratch.live_whole[count] = 0 if problem.item_splits[item] else 1
        scratch.live_ready[count] = out.ready[item]
        scratch.live_top[count] = problem.mode_scaled[last] / power + problem.mode_fixed[last]
        count += 1
    return count


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
def look_ahead(
    problem: Problem, profile: Profile, scratch: Scratch, t: float
) -> tuple[int, int, float]:
    """Write down how what is free from t on shrinks with the end of a run.

    Returns the row at t, the number of steps, and the free capacity of all links, Gbit/s.

    A run that begins at t and ends after stair_time[j] finds at most stair[j, 0] slots, and at most
    stair[j, 1] on one cluster. Bookings ahead (of the head, or of the guard) make the steps.
    """
    place, i = locate(profile, t)
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
        measure(problem, profile.free[profile.row[block, i]], least, scratch.shared, stair[steps])
        if stair[steps, 0] < stair[steps - 1, 0]:
            times[steps] = profile.time[block, i]
            steps += 1
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
def promising(
    problem: Problem, scratch: Scratch, item: int, t: float, steps: int, spare: float
) -> bool:
    """Whether an item is worth trying now: as `may_fit`, with all bookings that lie ahead."""
    if not may_fit(problem, scratch, item, t, inf, spare):
        return False
    group, mode = problem.item_group[item], problem.mode_first[item]
    if steps == 1 or problem.mode_first[item + 1] - mode > 1:
        return True
    procs = problem.mode_procs[mode]
    x = 0  # the strongest level at which enough processes are free
    while x + 1 < problem.group_size[group] and scratch.reach[group, x] < procs:
        x += 1
    power = problem.class_power[problem.group_class[group, x]]
    end = t + problem.mode_scaled[mode] / power + problem.mode_fixed[mode]
    whole = 0 if problem.item_splits[item] else 1
    return lasts(scratch.stair, scratch.stair_time, steps, procs, whole, end)


NOWHERE = Place(inf, inf, 0, 0, inf)


@kernel
def events(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    out: Outcome,
    fixed_mode: Ints,
    order: Any,
    t: float,
    easy: bool,
) -> None:
    """At each event start what fits now, in this order; `easy`: the head books its place.

    The first item that does not fit now is the head. Its booking stands until it starts: nobody
    who starts beside it delays it, so it would find the same place again. An item with a choice of
    allotments waits if it would end sooner so; else any single free slot would be its fate.
    """
    live, procs, ready = scratch.live, scratch.live_procs, scratch.live_ready
    top, whole = scratch.live_top, scratch.live_whole
    stair, times = scratch.stair, scratch.stair_time
    count = line_up(problem, scratch, out, order)
    head = -1
    while count > 0:
        scratch.counters[STAMP] += 1
        row, steps, spare = look_ahead(problem, profile, scratch, t)
        wake = inf
        kept = 0
        for pos in range(count):
            if ready[pos] > t:
                ready[pos] = out.ready[live[pos]]
                if ready[pos] > t:
                    wake = min(wake, ready[pos])
            # what decides for most stands here in the loop
            now = ready[pos] <= t
            tried = now and procs[pos] <= stair[0, whole[pos]]
            if tried and steps > 1 and procs[pos] > stair[steps - 1, whole[pos]]:
                tried = lasts(stair, times, steps, procs[pos], whole[pos], t + top[pos])
            heads = now and easy and head < 0
            if tried or heads:
                item = live[pos]
                group = problem.item_group[item]
                if scratch.stamp[group] != scratch.counters[STAMP]:
                    survey(problem, profile, scratch, group, row, -1, t)
                several = problem.mode_first[item + 1] - problem.mode_first[item] > 1
                place = NOWHERE
                tried = tried and procs[pos] <= scratch.sums[group, whole[pos]]
                if tried and promising(problem, scratch, item, t, steps, spare):
                    place = seek(problem, profile, scratch, out, fixed_mode, item, t, not several)
                if place.end == inf and problem.item_apart[item]:
                    wake = min(wake, arriving(problem, out, item, t))
                if place.end == inf and heads:
                    place = seek(problem, profile, scratch, out, fixed_mode, item, t, False)
                if place.end < inf and place.start > t and not heads:
                    out.ready[item] = place.start
                    ready[pos] = place.start
                    wake = min(wake, place.start)
                elif place.end < inf:
                    commit(problem, profile, scratch, out, item, place)
                    if out.start[item] > t:
                        head = item
                    row, steps, spare = look_ahead(problem, profile, scratch, t)
                    continue
            if kept < pos:
                live[kept], procs[kept], whole[kept] = live[pos], procs[pos], whole[pos]
                ready[kept], top[kept] = ready[pos], top[pos]
            kept += 1
        count = kept
        t = min(wake, following(profile, t))
        if t == inf:
            break
        if head >= 0 and out.start[head] <= t:
            head = -1


@kernel
def begin(problem: Problem, base: Base, profile: Profile, scratch: Scratch, out: Outcome) -> None:
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
    fixed_mode: Ints,
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
        serial(problem, profile, scratch, out, fixed_mode, first, False)
    if decoder <= INSERT:
        serial(problem, profile, scratch, out, fixed_mode, order, decoder == STRICT)
    else:
        now, easy = base.time[0], decoder == EASY
        events(problem, profile, scratch, out, fixed_mode, order, now, easy)
    return int(scratch.counters[WINDOWS])
