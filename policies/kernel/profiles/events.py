"""The event decoder: at each event what fits starts, in order; with EASY's head beside it.

The scan stays whole: what it keeps from one item to the next are six numbers. Once there is a head,
it skips blocks of items, and stretches of blocks, none of which is short and small enough; what has
started leaves a gap until half of them have.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.loads import data_ready, least_time
from coalloc.policies.kernel.profiles.lookahead import (
    lasts,
    look_ahead,
    next_block,
    note_block,
    promising,
    survey,
)
from coalloc.policies.kernel.profiles.profile import forget, locate
from coalloc.policies.kernel.profiles.seek import NOWHERE, Place, commit, seek
from coalloc.policies.kernel.record import Ints
from coalloc.policies.kernel.state import (
    BLOCK,
    BLOCKS,
    STAMP,
    Outcome,
    Problem,
    Profile,
    ProfileState,
)


@helper()
def following(profile: Profile, t: float) -> float:
    """Begin of the row after the one in force at t, s; inf if that is the last."""
    place, i = locate(profile, t)
    if i + 1 < profile.filled[profile.block[place]]:
        return profile.time[profile.block[place], i + 1]
    if place + 1 < profile.size[BLOCKS]:
        return profile.time[profile.block[place + 1], 0]
    return inf


@helper()
def arriving(problem: Problem, out: Outcome, item: int, t: float) -> float:
    """Next arrival, on any cluster, of data that are on their way at t, s; inf if none are."""
    soonest = inf
    for k in range(problem.link_gbps.size):
        ready = data_ready(problem, out, item, k)
        if ready > t:
            soonest = min(soonest, ready)
    return soonest


@helper()
def line_up(state: ProfileState, order: Any) -> int:
    """List what has no place yet, with what decides quickly; how many."""
    problem, scratch, out = state.problem, state.scratch, state.out
    count = 0
    for pos in range(order.size):
        item = order[pos]
        if out.start[item] == out.start[item]:
            continue
        first, last = problem.mode_first[item], problem.mode_first[item + 1] - 1
        group = problem.item_group[item]
        power = problem.class_power[problem.group_class[group, 0]]
        scratch.live[count] = item
        scratch.position[item] = count
        scratch.live_procs[count] = problem.mode_procs[first]
        scratch.live_whole[count] = 0 if problem.item_splits[item] else 1
        scratch.live_ready[count] = out.ready[item]
        scratch.live_top[count] = least_time(problem, item, last, power)
        count += 1
    for block in range((count + BLOCK - 1) // BLOCK):
        note_block(scratch, block, count, True, True)
    return count


@helper()
def take_first(state: ProfileState, queue: Ints, t: float, count: int) -> tuple[int, int]:
    """Start from the front of the queue what fits now, and book the first that does not.

    That one, or -1; and how many of the `count` that were listed have a place now.
    """
    problem, scratch, out = state.problem, state.scratch, state.out
    live, taken = scratch.live, 0
    for pos in range(queue.size):
        item = queue[pos]
        if out.start[item] == out.start[item] or out.ready[item] > t:
            continue
        several = problem.mode_first[item + 1] - problem.mode_first[item] > 1
        place = seek(state, item, t, not several)
        if place.end == inf:
            place = seek(state, item, t, False)
        if place.end < inf:
            commit(state, item, place)
            block = scratch.position[item] // BLOCK
            live[scratch.position[item]] = -1
            note_block(scratch, block, count, scratch.block_late[block], True)
            taken += 1
            if out.start[item] > t:
                return item, taken
    return -1, taken


@helper()
def fitting(state: ProfileState, pos: int, t: float, steps: int, spare: float) -> Place:
    """Place that a live item finds in what is free at t, or nowhere."""
    problem, scratch = state.problem, state.scratch
    item, group = scratch.live[pos], problem.item_group[scratch.live[pos]]
    if scratch.live_procs[pos] > scratch.sums[group, scratch.live_whole[pos]]:
        return NOWHERE
    if not promising(problem, scratch, item, t, steps, spare):
        return NOWHERE
    several = problem.mode_first[item + 1] - problem.mode_first[item] > 1
    return seek(state, item, t, not several)


@helper()
def attend(
    state: ProfileState,
    pos: int,
    t: float,
    row: int,
    steps: int,
    spare: float,
    tried: bool,
    heads: bool,
) -> tuple[bool, float]:
    """Book a live item in what is free now, if `tried`, or where it ends first, if it `heads`.

    Whether it is booked; and when to look again, s, inf if nothing is known of that.
    """
    problem, scratch, out = state.problem, state.scratch, state.out
    item = scratch.live[pos]
    group = problem.item_group[item]
    if scratch.stamp[group] != scratch.counters[STAMP]:
        survey(state, group, row, t)
    place, wake = NOWHERE, inf
    if tried:
        place = fitting(state, pos, t, steps, spare)
    if place.end == inf and problem.item_apart[item] >= 0:
        wake = arriving(problem, out, item, t)
    if place.end == inf and heads:
        place = seek(state, item, t, False)
    if place.end == inf:
        return False, wake
    if place.start > t and not heads:
        out.ready[item] = place.start
        scratch.live_ready[pos] = place.start
        return False, min(wake, place.start)
    commit(state, item, place)
    return True, wake


@kernel
def events(state: ProfileState, order: Any, t: float, easy: bool, every: bool, queue: Ints) -> None:
    """At each event start what fits now, in this order; `easy`: the head books its place.

    `every`: so does each other item that does not fit now, in this order.

    The first item that does not fit now is the head: in this order, or in that of `queue` where
    that is not empty. Its booking stands until it starts: nothing that starts beside it delays it,
    so it would find the same place again. An item with a choice of allotments waits if it would end
    sooner so; else any single free slot would be its fate.
    """
    profile, scratch, out = state.profile, state.scratch, state.out
    live, procs, ready = scratch.live, scratch.live_procs, scratch.live_ready
    top, whole = scratch.live_top, scratch.live_whole
    stair, times = scratch.stair, scratch.stair_time
    count = line_up(state, order)
    left, front = count, 0
    head = -1
    while left > 0:
        if head < 0:
            head, taken = take_first(state, queue, t, count)
            left -= taken
        if 2 * left < count:
            count = line_up(state, order)
            left, front = count, 0
        while front < count and live[front] < 0:
            front += 1
        scratch.counters[STAMP] += 1
        forget(profile, t)
        row, steps, spare = look_ahead(state, t)
        wake = inf
        block, blocks = front // BLOCK - 1, (count + BLOCK - 1) // BLOCK
        while block + 1 < blocks:
            block += 1
            if not (easy and (head < 0 or every)):
                block = next_block(scratch, block, blocks, t)
            late, before = False, left
            for pos in range(block * BLOCK, min(block * BLOCK + BLOCK, count)):
                if live[pos] < 0:
                    continue
                if ready[pos] > t:
                    ready[pos] = out.ready[live[pos]]
                    if ready[pos] > t:
                        wake = min(wake, ready[pos])
                # what decides for most stands here in the loop
                now = ready[pos] <= t
                tried = now and procs[pos] <= stair[0, whole[pos]]
                if tried and steps > 1 and procs[pos] > stair[steps - 1, whole[pos]]:
                    tried = lasts(stair, times, steps, procs[pos], whole[pos], t + top[pos])
                heads = now and easy and (head < 0 or every)
                if tried or heads:
                    placed, later = attend(state, pos, t, row, steps, spare, tried, heads)
                    wake = min(wake, later)
                    if placed:
                        if out.start[live[pos]] > t:
                            head = live[pos]
                        live[pos] = -1
                        left -= 1
                        row, steps, spare = look_ahead(state, t)
                        continue
                late = late or ready[pos] > t
            if block < blocks:
                note_block(scratch, block, count, late, left < before)
        t = min(wake, following(profile, t))
        if t == inf:
            break
        if head >= 0 and out.start[head] <= t:
            head = -1
