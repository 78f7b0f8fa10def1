"""List scheduling of moldable jobs whose allotments give way: compiled.

At each instant, in order, every job that is there starts on the allotment that is wanted for it, if
that is free; on less, down to a share of it (*squeeze*); on more, where it would end after the cap;
and, once nothing else can start, on what is left over, up to a multiple of it (*stretch*).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.acceptance import Cooling, accepts
from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.moves import shift
from coalloc.policies.kernel.pool.pool_insertion import Placed, place_in_turn
from coalloc.policies.kernel.pool.pool_jobs import Jobs, Processors
from coalloc.policies.kernel.pool.pool_profile import Profile
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.xorshift import State, draw, pick


@record
class Shares(NamedTuple):
    """Of the allotment that is wanted, what a job starts on."""

    squeeze: float  # at least; 1 at most
    stretch: float  # at most; 1 at least


@record
class Lists(NamedTuple):
    """Working memory of a list of N jobs."""

    waiting: Ints  # N
    running: Ints  # N


@helper(inline=True)
def room_for(there: Processors, level: int, used: int, until: float) -> int:
    """Processors that stay free from now, in row `level` of what is there, until then."""
    starts, capacity = there.starts, there.capacity
    least = capacity[level]
    x = level + 1
    while x < starts.size and starts[x] < until:
        least = min(least, capacity[x])
        x += 1
    return least - used


@helper(inline=True)
def allotment_at(jobs: Jobs, i: int, wanted: int, squeeze: float, left: float, room: int) -> int:
    """Job i's allotment with so much time left and processors free; -1 to wait."""
    procs = jobs.procs
    a = wanted
    if procs[a] * squeeze > room:
        return -1
    while a + 1 < jobs.first[i + 1] and jobs.times[a] > left and procs[a + 1] <= room:
        a += 1
    while a > jobs.first[i] and procs[a] > room:
        a -= 1
    return a if squeeze * procs[wanted] <= procs[a] <= room else -1


@helper(inline=True)
def stretched(jobs: Jobs, i: int, a: int, most: float, room: int) -> int:
    """Job i's largest allotment of at most so many processors, so many more than those of `a`."""
    widest = min(jobs.procs[a] + room, most)
    while a + 1 < jobs.first[i + 1] and jobs.procs[a + 1] <= widest:
        a += 1
    return a


@helper(inline=True)
def drop_ended(jobs: Jobs, running: Ints, active: int, out: Placed, t: float) -> tuple[int, int]:
    """Take who has ended by t out of the running jobs; how many are left, and what is freed."""
    kept, freed = 0, 0
    for x in range(active):
        i = running[x]
        if out.end[i] <= t:
            freed += jobs.procs[out.row[i]]
        else:
            running[kept] = i
            kept += 1
    return kept, freed


@helper(inline=True)
def decode(
    jobs: Jobs,
    there: Processors,
    order: Ints,
    wanted: Ints,
    shares: Shares,
    cap: float,
    lists: Lists,
    out: Placed,
) -> bool:
    """List all jobs in this order; see `list_flexibly`."""
    procs, times = jobs.procs, jobs.times
    waiting, running = lists.waiting, lists.running
    left = order.size
    for x in range(left):
        waiting[x] = order[x]
    t, level, used, active = 0.0, 0, 0, 0
    while left > 0:
        room = there.capacity[level] - used
        begun, kept, soonest = active, 0, np.inf
        for x in range(left):
            i = waiting[x]
            a = -1
            if jobs.release[i] > t:
                soonest = min(soonest, jobs.release[i])
            elif room > 0:
                a = allotment_at(jobs, i, wanted[i], shares.squeeze, cap - t, room)
            if a >= 0 and room_for(there, level, used, t + times[a]) < procs[a]:
                a = -1
            if a < 0:
                waiting[kept] = i
                kept += 1
                continue
            out.row[i] = a
            running[active] = i
            active += 1
            used += procs[a]
            room -= procs[a]
        left = kept
        for x in range(begun, active):
            i = running[x]
            a = stretched(jobs, i, out.row[i], shares.stretch * procs[wanted[i]], room)
            more = procs[a] - procs[out.row[i]]
            if more > 0 and room_for(there, level, used, t + times[a]) >= more:
                out.row[i] = a
                used += more
                room -= more
            out.start[i], out.end[i] = t, t + times[out.row[i]]
        for x in range(active):
            soonest = min(soonest, out.end[running[x]])
        if level + 1 < there.starts.size:
            soonest = min(soonest, there.starts[level + 1])
        if soonest == np.inf:
            return left == 0
        t = soonest
        while level + 1 < there.starts.size and there.starts[level + 1] <= t:
            level += 1
        active, freed = drop_ended(jobs, running, active, out, t)
        used -= freed
    return True


@kernel
def list_flexibly(
    jobs: Jobs,
    there: Processors,
    order: Ints,
    wanted: Ints,
    shares: Shares,
    cap: float,
    lists: Lists,
    out: Placed,
) -> bool:
    """List all jobs in this order; returns whether all found a place.

    Parameters
    ----------
    jobs, there, shares, lists : Jobs, Processors, Shares and Lists
    wanted : array of int, N
        Each job's allotment.
    cap : float
        What no job should end after, seconds.
    out : Placed
        The answer.
    """
    return decode(jobs, there, order, wanted, shares, cap, lists, out)


@helper(inline=True)
def measure(weight: Floats, end: Floats, cap: float, late: float) -> float:
    """The weighted completion, and what the delay of the makespan costs."""
    makespan, total = 0.0, 0.0
    for j in range(end.size):
        makespan = max(makespan, end[j])
        total += weight[j] * end[j]
    return total + late * max(makespan / cap - 1.0, 0.0)


@helper(inline=True)
def in_turn(
    jobs: Jobs, there: Processors, order: Ints, wanted: Ints, profile: Profile, out: Placed
) -> None:
    """Give each job in this order its place, on just what is wanted, before any later one."""
    size = there.starts.size
    for x in range(size):
        profile.edge[x], profile.free[x] = there.starts[x], there.capacity[x]
    profile.rows[0] = size
    for j in range(wanted.size):
        out.row[j] = wanted[j]
    place_in_turn(jobs, order, profile, out)


@helper(inline=True)
def propose(jobs: Jobs, random: State, order: Ints, wanted: Ints) -> tuple[int, int, int]:
    """Change a job's place in the order, its allotment, or both.

    Returns its places before and after, and its allotment before.
    """
    n = order.size
    x = pick(random, n)
    y, u = x, draw(random)
    if u < 0.6:
        far = 1.0 + 0.5 * n * draw(random) ** 3
        y = int(min(max(x + far * (1.0 if draw(random) < 0.5 else -1.0), 0.0), n - 1.0))
    i = order[x]
    before = wanted[i]
    if u > 0.4:
        a = before + (1 if draw(random) < 0.5 else -1) * (1 + int(3.0 * draw(random) ** 2))
        wanted[i] = min(max(a, jobs.first[i]), jobs.first[i + 1] - 1)
    shift(order, x, y)
    return x, y, before


@kernel
def anneal_lists(
    jobs: Jobs,
    there: Processors,
    order: Ints,
    wanted: Ints,
    shares: Shares,
    cap: float,
    late: float,
    cooling: Cooling,
    random: State,
    lists: Lists,
    profile: Profile,
    waits: bool,
    out: Placed,
    best_order: Ints,
    best_wanted: Ints,
) -> None:
    """Change the order and the allotments of a list a little, so many times.

    Parameters
    ----------
    order, wanted : arrays, N
        Where to begin, as in `list_flexibly`; the last accepted on return.
    profile : Profile
        Working memory.
    waits : bool
        Processors may wait for a job though another fits: places are given `in_turn`. Lists never
        let them, and not every optimum is a list.
    late : float
        What a makespan of twice the cap costs.
    cooling : Cooling
    random : State
    best_order, best_wanted : arrays of int, N
        The answers.
    """
    current, best = np.inf, np.inf
    for trial in range(cooling.trials):
        x, y, before = 0, 0, 0
        if trial > 0:
            x, y, before = propose(jobs, random, order, wanted)
            if y == x and wanted[order[x]] == before:
                continue
        value, placed = np.inf, True
        if waits:
            in_turn(jobs, there, order, wanted, profile, out)
        else:
            placed = decode(jobs, there, order, wanted, shares, cap, lists, out)
        if placed:
            value = measure(jobs.weight, out.end, cap, late)
        if trial == 0 or accepts(cooling, trial, current, value, random):
            current = value
            if value < best:
                best = value
                for j in range(order.size):
                    best_order[j], best_wanted[j] = order[j], wanted[j]
        else:
            shift(order, y, x)
            wanted[order[x]] = before


__all__ = ["Lists", "Shares", "anneal_lists", "list_flexibly"]
