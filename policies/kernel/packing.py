"""The compiled search for a schedule of equal nodes that ends by a given time.

Where all nodes are alike and links do not matter, a schedule that ends by C leaves exactly
slots * C - work idle: so much may be *wasted*. The search goes through the ends of jobs in time
order and starts, at each, jobs of rising type (equal jobs are one type with a count), most first;
what stays idle until the next end is wasted. Near a perfect packing hardly any set of jobs will do.

Why it is complete
------------------
Some schedule of least makespan has no job that could start sooner, so every start is the present or
an end. Then no job starts at an end if it would have fitted beside all since the end before, and
no end is passed while something fits that would be over by the next one.

Branches end where more would be wasted than may be, where a job is too long for the time left, and
where jobs longer than half of that time, which all run in the middle of it, are too wide together.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.jit import kernel

UNKNOWN, FOUND, NONE = 0, 1, 2
DEPTH, PLACED, REST, FREE, GAP, LOW = 0, 1, 2, 3, 4, 5
TIME, WASTE, SOON, LIMIT, ROOM, TOLERANCE = 0, 1, 2, 3, 4, 5
CLOSE = -1


@kernel
def fill(
    procs: Any,
    seconds: Any,
    left: Any,
    end: Any,
    held: Any,
    start: Any,
    kind: Any,
    past: Any,
    lasting: Any,
    number: Any,
    measure: Any,
    nodes: int,
) -> int:
    """Go on for so many nodes.

    Parameters
    ----------
    procs, seconds, left : T
        Of each type; how many jobs of it wait.
    end, held, start : R + N
        What runs at first, then each job started.
    kind : 2 N + R + 1
        Decisions: a type that was started, or CLOSE.
    past : 2 N + R + 1 x 3
        FREE, GAP and LOW before each decision.
    lasting : 2 N + R + 1 x 3
        TIME, WASTE and SOON before each decision.
    number : 6
        DEPTH, PLACED, REST (jobs that wait), FREE slots, GAP (slots idle before TIME), LOW (first
        type that may start now).
    measure : 6
        TIME, WASTE so far, SOON (the next end), LIMIT, ROOM (what may be wasted), TOLERANCE.

    Returns
    -------
    int
        FOUND, NONE (there is no such schedule), or UNKNOWN.
    """
    types = procs.size
    depth, placed, rest = number[DEPTH], number[PLACED], number[REST]
    free, gap, low = number[FREE], number[GAP], number[LOW]
    t, waste, soon = measure[TIME], measure[WASTE], measure[SOON]
    limit, room, tolerance = measure[LIMIT], measure[ROOM], measure[TOLERANCE]
    answer = UNKNOWN
    while nodes > 0:
        k = low
        while k < types and (
            left[k] == 0 or procs[k] > free or procs[k] <= gap or t + seconds[k] > limit
        ):
            k += 1
        if k < types:
            nodes -= 1
            kind[depth] = k
            lasting[depth, SOON] = soon
            depth += 1
            start[placed], end[placed], held[placed] = t, t + seconds[k], procs[k]
            soon = min(soon, end[placed])
            placed += 1
            left[k] -= 1
            rest -= 1
            free -= procs[k]
            low = k
            if rest == 0:
                answer = FOUND
                break
            continue
        good = soon < inf and waste + free * (soon - t) <= room
        if good:
            nodes -= 1
            later, freed, middle = inf, 0, 0
            half = (soon + limit) / 2.0
            for x in range(placed):
                if end[x] > soon + tolerance:
                    later = min(later, end[x])
                    if end[x] > half:
                        middle += held[x]
                elif end[x] > t + tolerance:
                    freed += held[x]
            total = free + freed
            for x in range(placed):
                if end[x] > soon + tolerance:
                    total += held[x]
            alone_s = 0.0
            for k in range(types):
                if left[k] > 0:
                    if soon + seconds[k] > limit or (
                        procs[k] <= free and seconds[k] <= soon - t + tolerance
                    ):
                        good = False
                        break
                    if 2.0 * seconds[k] > limit - soon + tolerance:
                        middle += left[k] * procs[k]
                    if 2 * procs[k] > total:
                        alone_s += left[k] * seconds[k]
            good = good and middle <= total and alone_s <= limit - soon
            if good:
                kind[depth] = CLOSE
                past[depth, 0], past[depth, 1], past[depth, 2] = free, gap, low
                lasting[depth, TIME], lasting[depth, WASTE] = t, waste
                lasting[depth, SOON] = soon
                depth += 1
                waste += free * (soon - t)
                gap = free
                free += freed
                t, soon, low = soon, later, 0
                continue
        while True:
            if depth == 0:
                answer = NONE
                break
            depth -= 1
            k = kind[depth]
            soon = lasting[depth, SOON]
            if k == CLOSE:
                free, gap = past[depth, 0], past[depth, 1]
                t, waste = lasting[depth, TIME], lasting[depth, WASTE]
                continue
            placed -= 1
            left[k] += 1
            rest += 1
            free += procs[k]
            low = k + 1
            might, shortest = 0, inf
            for j in range(low, types):
                if left[j] > 0 and procs[j] <= free and procs[j] > gap:
                    might += left[j] * procs[j]
                    shortest = min(shortest, seconds[j])
            idle = free - might
            if idle <= 0 or waste + idle * (min(soon, t + shortest) - t) <= room:
                break
        if answer == NONE:
            break
    number[DEPTH], number[PLACED], number[REST] = depth, placed, rest
    number[FREE], number[GAP], number[LOW] = free, gap, low
    measure[TIME], measure[WASTE], measure[SOON] = t, waste, soon
    return answer
