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
from typing import NamedTuple

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.record import Floats, Ints, record

UNKNOWN, FOUND, NONE = 0, 1, 2
DEPTH, PLACED, REST, FREE, GAP, LOW = 0, 1, 2, 3, 4, 5
TIME, WASTE, SOON, LIMIT, ROOM, TOLERANCE = 0, 1, 2, 3, 4, 5
CLOSE = -1


@record
class Packing(NamedTuple):
    """State of a search: T types of N jobs, R jobs that run at first."""

    procs: Ints  # T, of each type
    seconds: Floats  # T
    left: Ints  # T, jobs of the type that wait
    end: Floats  # R + N, of what runs at first, then of each job started
    held: Ints  # R + N
    start: Floats  # R + N
    kind: Ints  # 2 N + R + 1 decisions: a type that was started, or CLOSE
    past: Ints  # 2 N + R + 1 x 3: FREE, GAP and LOW before each decision
    lasting: Floats  # 2 N + R + 1 x 3: TIME, WASTE and SOON before each decision
    number: Ints  # 6: DEPTH, PLACED, REST (jobs that wait), FREE slots, GAP, LOW
    measure: Floats  # 6: TIME, WASTE so far, SOON (the next end), LIMIT, ROOM, TOLERANCE


@helper(inline=True)
def startable(packing: Packing, low: int, free: int, gap: int, t: float) -> int:
    """The first type from `low` on that may start now and would end in time; T if none may.

    `gap`: slots that were idle up to now: what would have fitted there starts no later.
    """
    k, procs = low, packing.procs
    while k < procs.size and (
        packing.left[k] == 0
        or procs[k] > free
        or procs[k] <= gap
        or t + packing.seconds[k] > packing.measure[LIMIT]
    ):
        k += 1
    return k


@helper(inline=True)
def look_ahead(
    packing: Packing, placed: int, free: int, t: float, soon: float
) -> tuple[bool, float, int]:
    """Whether all that waits may run from the next end on; the end behind it, and what it frees."""
    procs, seconds, left = packing.procs, packing.seconds, packing.left
    limit, tolerance = packing.measure[LIMIT], packing.measure[TOLERANCE]
    later, freed, middle, held = inf, 0, 0, 0
    half = (soon + limit) / 2.0
    for x in range(placed):
        end = packing.end[x]
        if end > soon + tolerance:
            later = min(later, end)
            held += packing.held[x]
            if end > half:
                middle += packing.held[x]
        elif end > t + tolerance:
            freed += packing.held[x]
    total = free + freed + held
    alone_s = 0.0
    for k in range(procs.size):
        if left[k] > 0:
            fitted = procs[k] <= free and seconds[k] <= soon - t + tolerance
            if fitted or soon + seconds[k] > limit:
                return False, later, freed
            if 2.0 * seconds[k] > limit - soon + tolerance:
                middle += left[k] * procs[k]
            if 2 * procs[k] > total:
                alone_s += left[k] * seconds[k]
    return middle <= total and alone_s <= limit - soon, later, freed


@helper(inline=True)
def may_fill(
    packing: Packing, low: int, free: int, gap: int, t: float, waste: float, soon: float
) -> bool:
    """Whether types from `low` on might leave no more idle than may be wasted."""
    might, shortest = 0, inf
    for j in range(low, packing.procs.size):
        procs = packing.procs[j]
        if packing.left[j] > 0 and procs <= free and procs > gap:
            might += packing.left[j] * procs
            shortest = min(shortest, packing.seconds[j])
    idle = free - might
    return idle <= 0 or waste + idle * (min(soon, t + shortest) - t) <= packing.measure[ROOM]


@helper()
def put(packing: Packing, depth: int, placed: int, k: int, t: float, soon: float) -> None:
    """Start a job of type k at t, and note that at this depth."""
    packing.kind[depth] = k
    packing.lasting[depth, SOON] = soon
    packing.start[placed], packing.end[placed] = t, t + packing.seconds[k]
    packing.held[placed] = packing.procs[k]
    packing.left[k] -= 1


@helper()
def close(
    packing: Packing, depth: int, free: int, gap: int, low: int, t: float, waste: float, soon: float
) -> None:
    """Note at this depth that nothing more starts at t, and how everything was then."""
    past, lasting = packing.past, packing.lasting
    packing.kind[depth] = CLOSE
    past[depth, 0], past[depth, 1], past[depth, 2] = free, gap, low
    lasting[depth, TIME], lasting[depth, WASTE], lasting[depth, SOON] = t, waste, soon


@kernel
def fill(packing: Packing, nodes: int) -> int:
    """Go on for so many nodes: FOUND, NONE (there is no such schedule), or UNKNOWN."""
    procs, seconds, left = packing.procs, packing.seconds, packing.left
    kind, past, lasting = packing.kind, packing.past, packing.lasting
    number, measure = packing.number, packing.measure
    depth, placed, rest = number[DEPTH], number[PLACED], number[REST]
    free, gap, low = number[FREE], number[GAP], number[LOW]
    t, waste, soon = measure[TIME], measure[WASTE], measure[SOON]
    answer = UNKNOWN
    while nodes > 0:
        k = startable(packing, low, free, gap, t)
        if k < procs.size:
            nodes -= 1
            put(packing, depth, placed, k, t, soon)
            depth += 1
            soon = min(soon, t + seconds[k])
            placed += 1
            rest -= 1
            free -= procs[k]
            low = k
            if rest == 0:
                answer = FOUND
                break
            continue
        if soon < inf and waste + free * (soon - t) <= measure[ROOM]:
            nodes -= 1
            good, later, freed = look_ahead(packing, placed, free, t, soon)
            if good:
                close(packing, depth, free, gap, low, t, waste, soon)
                depth += 1
                waste += free * (soon - t)
                gap = free
                free += freed
                t, soon, low = soon, later, 0
                continue
        while depth > 0:
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
            if may_fill(packing, low, free, gap, t, waste, soon):
                break
        else:
            answer = NONE
            break
    number[DEPTH], number[PLACED], number[REST] = depth, placed, rest
    number[FREE], number[GAP], number[LOW] = free, gap, low
    measure[TIME], measure[WASTE], measure[SOON] = t, waste, soon
    return answer
