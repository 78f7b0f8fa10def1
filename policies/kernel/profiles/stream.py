"""Replay of rigid jobs on one profile that is changed in place; compiled.

Where `decode` builds a plan from a snapshot, `advance` here follows a whole log: the profile holds
the running jobs (and, for `INSERT`, what the waiting ones have booked), an end gives slots back,
and at every instant only what can have changed is looked at. It starts a job exactly when a round
of the daemon would, because it asks the same `seek` on the same profile:

STRICT
    The first job of the queue starts if its earliest end begins now, else no job does.
EVENT, EASY
    One pass over the queue as in `events`; the head's booking is taken back after it. Where
    nothing was given back since the last pass, only new jobs are tried: what did not fit then
    fits even less later. Where backfilling has an order of its own, the queue gives the head and
    the pass goes over that order. Jobs that have waited for a limit go first in both.
INSERT
    Bookings stay. A job that ends at its estimate changes nothing that was not planned; one that
    ends earlier has all bookings made afresh in arrival order (compression).
"""

from __future__ import annotations

from math import inf

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.profiles.lookahead import look_ahead, promising, survey
from coalloc.policies.kernel.profiles.profile import apply_owed, forget, locate, reset
from coalloc.policies.kernel.profiles.seek import hold, seek
from coalloc.policies.kernel.profiles.stream_state import (
    ARRIVED,
    DEEPEST,
    ENDED,
    FIRST,
    INSTANT,
    INSTANTS,
    LAST,
    RUNNING,
    Stream,
    begin,
    leave,
    line_up,
    pop_end,
)
from coalloc.policies.kernel.record import Ints
from coalloc.policies.kernel.state import (
    EASY,
    INSERT,
    STAMP,
    STRICT,
    Base,
    Problem,
    Profile,
    ProfileState,
)


@helper()
def start_strictly(state: ProfileState, stream: Stream, t: float) -> None:
    """Start from the front of the queue while the earliest end begins now."""
    problem, profile = state.problem, state.profile
    count = stream.counts
    while count[FIRST] < count[LAST]:
        item = stream.queue[count[FIRST]]
        place, i = locate(profile, t)
        apply_owed(profile, profile.block[place])
        if problem.mode_procs[item] > profile.total[profile.block[place], i]:
            return
        found = seek(state, item, t, False)
        if found.end == inf or found.start > t:
            return
        hold(state, item, found)
        begin(state, stream, item, t)
        count[FIRST] += 1


@helper()
def start_first(state: ProfileState, stream: Stream, t: float) -> int:
    """Start from the front of the queue what fits now; the first that does not, booked; or -1."""
    out = state.out
    count = stream.counts
    for pos in range(count[FIRST], count[LAST]):
        item = stream.queue[pos]
        found = seek(state, item, t, True)
        if found.end == inf:
            found = seek(state, item, t, False)
        if found.end < inf:
            hold(state, item, found)
            if out.start[item] > t:
                return item
            begin(state, stream, item, t)
    return -1


@helper()
def start_fitting(
    state: ProfileState, stream: Stream, t: float, order: Ints, head: int, new: int
) -> None:
    """Start what fits beside the head, which is booked, in this order, and give the booking back.

    `new`: the first job not tried since a release. `head`: below 0 where there is none.
    """
    problem, scratch = state.problem, state.scratch
    count = stream.counts
    scratch.counters[STAMP] += 1
    row, steps, spare, fresh = 0, 0, 0.0, False
    kept = new
    for pos in range(new, count[LAST]):
        item = order[pos]
        if stream.start[item] == stream.start[item]:
            continue
        if not fresh:
            fresh = True
            row, steps, spare = look_ahead(state, t)
        if problem.mode_procs[item] <= scratch.stair[0, 0] and item != head:
            group = problem.item_group[item]
            if scratch.stamp[group] != scratch.counters[STAMP]:
                survey(state, group, row, t)
            if promising(problem, scratch, item, t, steps, spare):
                found = seek(state, item, t, True)
                if found.end < inf:
                    hold(state, item, found)
                    begin(state, stream, item, t)
                    fresh = False
                    continue
        order[kept] = item
        kept += 1
    count[LAST] = kept
    if head >= 0:
        leave(state, head, t)


@helper()
def drop_started(stream: Stream, last: int) -> None:
    """Take out of the queue, which went on to `last`, who has started."""
    kept = stream.counts[FIRST]
    for pos in range(kept, last):
        item = stream.queue[pos]
        if stream.start[item] != stream.start[item]:
            stream.queue[kept] = item
            kept += 1


@helper()
def start_booked(state: ProfileState, stream: Stream, t: float, new: int, again: bool) -> None:
    """Book the new jobs, or all of them again, and start what is booked for now."""
    out = state.out
    count, queue = stream.counts, stream.queue
    if again:
        for pos in range(count[FIRST], new):
            leave(state, queue[pos], t)
        new = count[FIRST]
    for pos in range(new, count[LAST]):
        item = queue[pos]
        found = seek(state, item, t, False)
        if found.end < inf:
            hold(state, item, found)
        else:
            out.start[item] = inf
            out.end[item] = -inf
    kept = count[FIRST]
    for pos in range(count[FIRST], count[LAST]):
        item = queue[pos]
        if out.start[item] <= t:
            begin(state, stream, item, t)
        else:
            queue[kept] = item
            kept += 1
    count[LAST] = kept


@kernel
def clear_profile(problem: Problem, base: Base, profile: Profile) -> None:
    """Empty the profile."""
    reset(problem, base, profile)


@helper()
def end_jobs(
    state: ProfileState, stream: Stream, t: float, arrival: float
) -> tuple[float, bool, bool]:
    """End what ends within an instant of t.

    Returns the time of the last of these ends and of `arrival`, if that is as near, s; whether
    anything ended, and whether any of it earlier than booked.
    """
    problem, out = state.problem, state.out
    count, limit, jobs = stream.counts, t + INSTANT, problem.item_release.size
    if arrival <= limit:
        t = max(t, arrival)
    first = count[ENDED]
    while count[RUNNING] > 0 and stream.heap_time[0] <= limit:
        t = max(t, stream.heap_time[0])
        job = pop_end(stream.heap_time, stream.heap_job, count, RUNNING)
        stream.heap_job[jobs + count[ENDED] - first] = job
        count[ENDED] += 1
    ended, early = count[ENDED] - first, 0
    for x in range(ended):
        item = stream.heap_job[jobs + x]
        early += out.end[item] > t + INSTANT
        leave(state, item, t)
    return t, ended > 0, early > 0


@kernel
def advance(
    state: ProfileState, stream: Stream, decoder: int, wait_limit: float, instants: int
) -> bool:
    """Go on for so many instants; False when nothing can happen any more.

    A job that has waited for `wait_limit` seconds goes first.
    """
    problem, profile = state.problem, state.profile
    count, release = stream.counts, problem.item_release
    jobs = release.size
    for _ in range(instants):
        arrival = release[count[ARRIVED]] if count[ARRIVED] < jobs else inf
        t = min(arrival, stream.heap_time[0]) if count[RUNNING] > 0 else arrival
        if t == inf:
            return False
        t, freed, early = end_jobs(state, stream, t, arrival)
        forget(profile, t)
        new, beside = line_up(stream, release, wait_limit, t)
        count[INSTANTS] += 1
        count[DEEPEST] = max(count[DEEPEST], count[LAST] - count[FIRST])
        if decoder == STRICT:
            if freed or new == count[FIRST]:
                start_strictly(state, stream, t)
        elif decoder == INSERT:
            start_booked(state, stream, t, new, early)
        else:
            apart, last, head = stream.line.size > 0, count[LAST], -1
            again = freed or new == count[FIRST]
            if decoder == EASY:
                before = stream.queue[count[FIRST]] if count[LAST] > 0 else -1
                head = start_first(state, stream, t)
                again = again or head != before
            order, tried = (stream.line, beside) if apart else (stream.queue, new)
            start_fitting(state, stream, t, order, head, count[FIRST] if again else tried)
            if apart:
                drop_started(stream, last)
    return True
