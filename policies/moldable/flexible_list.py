"""List scheduling of moldable jobs whose allotments give way: compiled.

At each instant, in order, every job that is there starts on the allotment that is wanted for it, if
that is free; on less, down to a share of it (*squeeze*); on more, where it would end after the cap;
and, once nothing else can start, on what is left over, up to a multiple of it (*stretch*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalloc.policies.kernel.jit import alone, inlined


@inlined
def room_for(starts: Any, capacity: Any, level: Any, used: Any, until: Any) -> Any:
    """Processors that stay free from now, in row `level` of what is there, until then."""
    least = capacity[level]
    x = level + 1
    while x < starts.size and starts[x] < until:
        least = min(least, capacity[x])
        x += 1
    return least - used


@inlined
def allotment_at(
    low: Any,
    high: Any,
    procs: Any,
    times: Any,
    wanted: Any,
    squeeze: Any,
    left: Any,
    room: Any,
) -> Any:
    """The allotment to start on with so much time left and processors free; -1 to wait."""
    a = wanted
    if procs[a] * squeeze > room:
        return -1
    while a + 1 < high and times[a] > left and procs[a + 1] <= room:
        a += 1
    while a > low and procs[a] > room:
        a -= 1
    return a if squeeze * procs[wanted] <= procs[a] <= room else -1


@inlined
def decode(
    first: Any,
    procs: Any,
    times: Any,
    release: Any,
    starts: Any,
    capacity: Any,
    order: Any,
    wanted: Any,
    squeeze: Any,
    stretch: Any,
    cap: Any,
    waiting: Any,
    running: Any,
    row: Any,
    start: Any,
    end: Any,
) -> Any:
    """List all jobs in this order; see `list_flexibly`."""
    left = order.size
    for x in range(left):
        waiting[x] = order[x]
    t, level, used, active = 0.0, 0, 0, 0
    while left > 0:
        room = capacity[level] - used
        begun, kept, soonest = active, 0, np.inf
        for x in range(left):
            i = waiting[x]
            a = -1
            if release[i] > t:
                soonest = min(soonest, release[i])
            elif room > 0:
                a = allotment_at(
                    first[i], first[i + 1], procs, times, wanted[i], squeeze, cap - t, room
                )
            if a >= 0 and room_for(starts, capacity, level, used, t + times[a]) < procs[a]:
                a = -1
            if a < 0:
                waiting[kept] = i
                kept += 1
                continue
            row[i] = a
            running[active] = i
            active += 1
            used += procs[a]
            room -= procs[a]
        left = kept
        for x in range(begun, active):
            i = running[x]
            a, most = row[i], stretch * procs[wanted[i]]
            while a + 1 < first[i + 1] and procs[a + 1] <= min(procs[row[i]] + room, most):
                a += 1
            more = procs[a] - procs[row[i]]
            if more > 0 and room_for(starts, capacity, level, used, t + times[a]) >= more:
                row[i] = a
                used += more
                room -= more
            start[i], end[i] = t, t + times[row[i]]
        for x in range(active):
            soonest = min(soonest, end[running[x]])
        if level + 1 < starts.size:
            soonest = min(soonest, starts[level + 1])
        if soonest == np.inf:
            return left == 0
        t, kept = soonest, 0
        while level + 1 < starts.size and starts[level + 1] <= t:
            level += 1
        for x in range(active):
            i = running[x]
            if end[i] <= t:
                used -= procs[row[i]]
            else:
                running[kept] = i
                kept += 1
        active = kept
    return True


@alone
def list_flexibly(
    first: Any,
    procs: Any,
    times: Any,
    release: Any,
    starts: Any,
    capacity: Any,
    order: Any,
    wanted: Any,
    squeeze: Any,
    stretch: Any,
    cap: Any,
    waiting: Any,
    running: Any,
    row: Any,
    start: Any,
    end: Any,
) -> Any:
    """List all jobs in this order; returns whether all found a place.

    Parameters
    ----------
    starts, capacity : arrays, S
        Processors that are there, from when.
    wanted : array of int, N
        Each job's allotment, an index into `procs`.
    squeeze, stretch : float
        At most 1, and at least 1.
    cap : float
        What no job should end after, seconds.
    waiting, running : arrays of int, N
        Working memory.
    row, start, end : arrays, N
        The answers.
    """
    return decode(
        first,
        procs,
        times,
        release,
        starts,
        capacity,
        order,
        wanted,
        squeeze,
        stretch,
        cap,
        waiting,
        running,
        row,
        start,
        end,
    )


@inlined
def draw(state: Any) -> Any:
    """A number in 0..1 by xorshift; `state` holds one int64 other than 0."""
    x = state[0]
    x ^= (x << 13) & 0x7FFFFFFFFFFFFFFF
    x ^= x >> 7
    x ^= (x << 17) & 0x7FFFFFFFFFFFFFFF
    state[0] = x
    return (x >> 11) / float(1 << 52)


@inlined
def shift(order: Any, x: Any, y: Any) -> None:
    """Move what is at x to y, and what is between by one."""
    i = order[x]
    way = 1 if y > x else -1
    while x != y:
        order[x] = order[x + way]
        x += way
    order[y] = i


@alone
def anneal_lists(
    first: Any,
    procs: Any,
    times: Any,
    weight: Any,
    release: Any,
    starts: Any,
    capacity: Any,
    order: Any,
    wanted: Any,
    squeeze: Any,
    stretch: Any,
    cap: Any,
    late: Any,
    trials: Any,
    hot: Any,
    cold: Any,
    state: Any,
    waiting: Any,
    running: Any,
    row: Any,
    start: Any,
    end: Any,
    best_order: Any,
    best_wanted: Any,
) -> None:
    """Change the order and the allotments of a list a little, so many times.

    Parameters
    ----------
    order, wanted : arrays, N
        Where to begin, as in `list_flexibly`; the last accepted on return.
    late : float
        What a makespan of twice the cap costs.
    hot, cold : float
        Temperatures at the begin and end.
    state : array of int, 1
        Of the random numbers; not 0.
    best_order, best_wanted : arrays of int, N
        The answers.
    """
    n = order.size
    current, best = np.inf, np.inf
    for trial in range(trials):
        x, y, i, before = 0, 0, 0, 0
        if trial > 0:
            x = min(int(draw(state) * n), n - 1)
            u = draw(state)
            if u < 0.6:
                far = 1.0 + 0.5 * n * draw(state) ** 3
                y = int(min(max(x + far * (1.0 if draw(state) < 0.5 else -1.0), 0.0), n - 1.0))
            else:
                y = x
            i = order[x]
            before = wanted[i]
            if u > 0.4:
                a = before + (1 if draw(state) < 0.5 else -1) * (1 + int(3.0 * draw(state) ** 2))
                wanted[i] = min(max(a, first[i]), first[i + 1] - 1)
            if y == x and wanted[i] == before:
                continue
            shift(order, x, y)
        complete = decode(
            first,
            procs,
            times,
            release,
            starts,
            capacity,
            order,
            wanted,
            squeeze,
            stretch,
            cap,
            waiting,
            running,
            row,
            start,
            end,
        )
        value = np.inf
        if complete:
            makespan, value = 0.0, 0.0
            for j in range(n):
                makespan = max(makespan, end[j])
                value += weight[j] * end[j]
            value += late * max(makespan / cap - 1.0, 0.0)
        heat = hot * (cold / hot) ** (trial / trials)
        if trial == 0 or value <= current - heat * np.log(max(draw(state), 1e-300)):
            current = value
            if value < best:
                best = value
                for j in range(n):
                    best_order[j], best_wanted[j] = order[j], wanted[j]
        else:
            shift(order, y, x)
            wanted[i] = before


__all__ = ["anneal_lists", "list_flexibly"]
