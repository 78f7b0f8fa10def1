"""The state of a replay (`stream`): its log, its running jobs, and changes of its profile."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from coalloc.policies.kernel.heap import pop, push
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import least_time
from coalloc.policies.kernel.profiles.profile import apply_owed, book, locate, remove
from coalloc.policies.kernel.record import Bools, Floats, Ints, record
from coalloc.policies.kernel.state import (
    FINEST,
    SHORTEST,
    Profile,
    ProfileState,
)

push_end, pop_end = helper()(push), helper()(pop)
INSTANT = 1e-6
"""What happens within this time is one instant, the latest of it; seconds."""

ARRIVED, FIRST, LAST, RUNNING, ENDED, INSTANTS, DEEPEST, DUE = 0, 1, 2, 3, 4, 5, 6, 7


@record
class Stream(NamedTuple):
    """The log, and how far its replay has come. N jobs by rising submit time."""

    key: Floats  # N, position in the queue: smaller first, ties by arrival
    scaled: Floats  # N, s at power 1: the real run time's part that scales with 1 / power
    fixed: Floats  # N, s
    exact: Bools  # N, whether the real run time is the estimate
    queue: Ints  # N, waiting jobs from count[FIRST] to count[LAST]
    second: Floats  # N, position in backfilling, where that has an order of its own; else empty
    line: Ints  # N, the same jobs as in the queue by `second`; else empty
    heap_time: Floats  # N, real ends of the running jobs
    heap_job: Ints  # 2 N: the heap's jobs, then those that end at this instant
    start: Floats  # N, s, nan before
    end: Floats  # N, s
    counts: Ints  # ARRIVED, FIRST, LAST, RUNNING, ENDED, INSTANTS, DEEPEST, DUE


@helper()
def tidy(profile: Profile, t: float) -> None:
    """Remove the row that begins at t if it is like the row before."""
    place, i = locate(profile, t)
    block = profile.block[place]
    if profile.time[block, i] != t or (place == 0 and i == 0):
        return
    if i > 0:
        before = profile.row[block, i - 1]
    else:
        other = profile.block[place - 1]
        apply_owed(profile, other)
        before = profile.row[other, profile.filled[other] - 1]
    apply_owed(profile, block)
    row = profile.row[block, i]
    for c in range(profile.free.shape[1]):
        if profile.free[row, c] != profile.free[before, c]:
            return
    for k in range(profile.load.shape[1]):
        if profile.load[row, k] != profile.load[before, k]:
            return
    remove(profile, place, i)


@helper()
def leave(state: ProfileState, item: int, t: float) -> None:
    """Give back what a job has booked from t on."""
    profile, out = state.profile, state.out
    if out.end[item] <= t:
        return
    begin = max(out.start[item], t)
    out.start[item] = begin
    book(state, item, -1)
    tidy(profile, out.end[item])
    tidy(profile, begin)


@helper()
def begin(state: ProfileState, stream: Stream, item: int, t: float) -> None:
    """Let a booked job run from t on."""
    problem, out = state.problem, state.out
    weakest = inf
    first = out.use_first[item]
    for u in range(first, first + out.use_count[item]):
        weakest = min(weakest, problem.class_power[out.use_class[u]])
    shortest = max(SHORTEST, FINEST * abs(t))
    end = out.end[item]
    if out.start[item] < t:  # booked for an earlier part of this instant
        end = t + max(least_time(problem, item, item, weakest), shortest)
    if not stream.exact[item]:
        length = max(stream.scaled[item] / weakest + stream.fixed[item], shortest)
        end = min(end, t + length)
    stream.start[item] = t
    stream.end[item] = end
    push_end(stream.heap_time, stream.heap_job, stream.counts, RUNNING, end, item)


@helper()
def insert(order: Ints, key: Floats, first: int, last: int, item: int) -> int:
    """Put a job among those from `first` to `last` by its key; its place."""
    at = last
    while at > first and key[order[at - 1]] > key[item]:
        order[at] = order[at - 1]
        at -= 1
    order[at] = item
    return at


@helper()
def promote(order: Ints, key: Floats, first: int, item: int) -> int:
    """Move a job of this order behind those that waited too long before it; its place."""
    at = first
    while order[at] != item:
        at += 1
    key[item] = -inf
    return insert(order, key, first, at, item)


@helper()
def line_up(stream: Stream, release: Floats, wait_limit: float, t: float) -> tuple[int, int]:
    """Take in jobs that arrive, and put first those that have waited for the limit.

    Returns the first places in the queue and in the order of backfilling that are new.
    """
    count = stream.counts
    first, apart = count[FIRST], stream.line.size > 0
    new, beside = count[LAST], count[LAST]
    while count[ARRIVED] < release.size and release[count[ARRIVED]] <= t:
        item, last = count[ARRIVED], count[LAST]
        new = min(new, insert(stream.queue, stream.key, first, last, item))
        if apart:
            beside = min(beside, insert(stream.line, stream.second, first, last, item))
        count[ARRIVED] += 1
        count[LAST] += 1
    while count[DUE] < count[ARRIVED] and t - release[count[DUE]] >= wait_limit:
        item = count[DUE]
        count[DUE] += 1
        if stream.start[item] != stream.start[item]:
            new = min(new, promote(stream.queue, stream.key, first, item))
            if apart:
                beside = min(beside, promote(stream.line, stream.second, first, item))
    return new, beside
