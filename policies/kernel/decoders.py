"""The three decoders: strict and insert (`serial`), and event (`events`, with EASY's head)."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from coalloc.policies.kernel.fit import closes
from coalloc.policies.kernel.jit import kernel, part
from coalloc.policies.kernel.profile import (
    locate,
    reset,
)
from coalloc.policies.kernel.seek import commit, recall, remember, seek
from coalloc.policies.kernel.state import (
    BLOCKS,
    EASY,
    FULL,
    INSERT,
    REMEMBERED,
    ROUNDING,
    SPARE,
    STAMP,
    STRICT,
    TOL,
    USES,
    WINDOWS,
    Base,
    Choice,
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
    choice: Choice,
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


@part
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


@part
def following(profile: Profile, t: float) -> float:
    """When the row after the one in force at t begins, s; inf if that is the last."""
    place, i = locate(profile, t)
    if i + 1 < profile.count[profile.block[place]]:
        return profile.time[profile.block[place], i + 1]
    if place + 1 < profile.size[BLOCKS]:
        return profile.time[profile.block[place + 1], 0]
    return inf


@part
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
        scratch.live_ready[count] = out.ready[item]
        scratch.live_top[count] = problem.mode_scaled[last] / power + problem.mode_fixed[last]
        count += 1
    return count


@part
def look(
    problem: Problem, profile: Profile, scratch: Scratch, out: Outcome, head: int, t: float
) -> tuple[int, int]:
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
def events(
    problem: Problem,
    profile: Profile,
    scratch: Scratch,
    out: Outcome,
    choice: Choice,
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
                several = problem.mode_first[item + 1] - problem.mode_first[item] > 1
                end = inf
                if tried and may_fit(problem, scratch, item, t, head_start, spare):
                    end = seek(problem, profile, scratch, out, choice, item, t, not several)
                if easy and head < 0:
                    if end == inf:
                        end = seek(problem, profile, scratch, out, choice, item, t, False)
                elif end < inf and scratch.pick_cost[3] > t:
                    out.ready[item] = scratch.pick_cost[3]
                    ready[pos] = out.ready[item]
                    wake = min(wake, ready[pos])
                    end = inf
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
