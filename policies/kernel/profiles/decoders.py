"""The decoders: strict and insert (`serial`), event, easy and reserve (`events`)."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from coalloc.policies.kernel.jit import kernel
from coalloc.policies.kernel.profiles.events import events
from coalloc.policies.kernel.profiles.profile import reset
from coalloc.policies.kernel.profiles.seek import commit, recall, remember, seek
from coalloc.policies.kernel.record import Ints
from coalloc.policies.kernel.state import (
    EASY,
    INSERT,
    REMEMBERED,
    RESERVE,
    STAMP,
    STRICT,
    USES,
    WINDOWS,
    Base,
    ProfileState,
)


@kernel
def serial(state: ProfileState, order: Any, strict: bool) -> None:
    """Place the items in this order; `strict`: starts never decrease."""
    problem, profile, scratch, out = state.problem, state.profile, state.scratch, state.out
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
        place = seek(state, item, start, False)
        if place.end == inf:
            out.missing[item] = -1
            continue
        if not strict and lower <= now:
            remember(problem, scratch, item, place.first)
        commit(state, item, place)
        frontier = out.start[item]
        # children that the order names too early follow at once
        for x in range(problem.child_first[item], problem.child_first[item + 1]):
            child = problem.child[x]
            if out.missing[child] == 0 and scratch.position[child] >= 0:
                pos = min(pos, scratch.position[child])
    for pos in range(order.size):
        scratch.position[order[pos]] = -1


@kernel
def begin(state: ProfileState, base: Base) -> None:
    """Empty the profile and the outcome."""
    problem, profile, scratch, out = state.problem, state.profile, state.scratch, state.out
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
    state: ProfileState, base: Base, first: Any, order: Any, decoder: int, queue: Ints
) -> int:
    """Place everything: `first` by insertion, then `order` by the decoder; the work done.

    `queue` is the order in which EASY chooses the head, where it is another one; else empty.

    No kernel, since a kernel contains the code of all that it calls, and this one would contain
    everything. A compiled search calls `begin` and a decoder itself.
    """
    begin(state, base)
    if first.size:
        serial(state, first, False)
    if decoder <= INSERT:
        serial(state, order, decoder == STRICT)
    else:
        now, easy, every = base.time[0], decoder >= EASY, decoder == RESERVE
        events(state, order, now, easy, every, queue)
    return int(state.scratch.counters[WINDOWS])
