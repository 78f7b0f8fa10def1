"""Annealing of a list: the order and the allotments that are wanted change: compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.annealing_loop import LIMIT, Annealing, annealer, shift
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.pool.pool_insertion import Placed
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, Lists, decode
from coalloc.policies.kernel.pool.pool_profile import (
    Jobs,
    PoolProfile,
    Processors,
    book,
    first_fit,
    row_at,
)
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.xorshift import draw, pick

Move = tuple[int, int, int]
SAVED = 32
"""Profiles that are saved of a list in which each job gets its place in turn."""


@record
class Decoding(NamedTuple):
    """The way from a list to a schedule, and the worth of that."""

    late: float  # what a makespan of twice the rule's cap costs
    waits: bool  # processors may wait for a job though another fits


@record
class Turns(NamedTuple):
    """Profiles behind the first jobs of the list, up to places at equal distances."""

    edge: Floats  # SAVED x rows: a profile as in `PoolProfile`
    free: Ints  # SAVED x rows
    rows: Ints  # SAVED
    total: Floats  # SAVED: their weighted completion
    makespan: Floats  # SAVED, s
    known: Ints  # 2: how many of the places are known; the first place that a move changes

    @staticmethod
    def empty(rows: int) -> Turns:
        """Working memory for profiles of so many rows."""
        return Turns(
            np.zeros((SAVED, rows)),
            np.zeros((SAVED, rows), dtype=np.int64),
            np.zeros(SAVED, dtype=np.int64),
            np.zeros(SAVED),
            np.zeros(SAVED),
            np.zeros(2, dtype=np.int64),
        )


class ListSearch(NamedTuple):
    """A list that changes, and what its schedule needs.

    With `decoding.waits` places are given `in_turn`: lists never let processors wait, and not every
    optimum is a list.
    """

    jobs: Jobs
    there: Processors
    rule: ListRule
    decoding: Decoding
    listing: Listing
    best: Listing
    lists: Lists  # working memory
    profile: PoolProfile  # working memory
    turns: Turns  # working memory
    out: Placed


@helper(inline=True)
def measure(weight: Floats, end: Floats, cap: float, late: float) -> float:
    """The weighted completion, and what the delay of the makespan costs."""
    makespan, total = 0.0, 0.0
    for j in range(end.size):
        makespan = max(makespan, end[j])
        total += weight[j] * end[j]
    return total + late * max(makespan / cap - 1.0, 0.0)


@helper(inline=True)
def load(turns: Turns, c: int, there: Processors, profile: PoolProfile) -> None:
    """Go back to a place; the first one is before all jobs."""
    if turns.known[0] == 0:
        for x in range(there.starts.size):
            turns.edge[0, x], turns.free[0, x] = there.starts[x], there.capacity[x]
        turns.rows[0], turns.known[0] = there.starts.size, 1
    size = turns.rows[c]
    for x in range(size):
        profile.edge[x], profile.free[x] = turns.edge[c, x], turns.free[c, x]
    profile.rows[0] = size


@helper(inline=True)
def save(turns: Turns, c: int, profile: PoolProfile, total: float, makespan: float) -> None:
    """Remember a place."""
    size = profile.rows[0]
    for x in range(size):
        turns.edge[c, x], turns.free[c, x] = profile.edge[x], profile.free[x]
    turns.rows[c], turns.total[c], turns.makespan[c], turns.known[0] = size, total, makespan, c + 1


@helper(inline=True)
def fit_in(
    jobs: Jobs, i: int, wanted: int, squeeze: float, profile: PoolProfile
) -> tuple[int, float]:
    """Job i's allotment and start: the first on the least it takes, and up to what is wanted."""
    procs, a, size = jobs.procs, wanted, profile.rows[0]
    least = squeeze * procs[wanted]
    while a > jobs.first[i] and procs[a - 1] >= least:
        a -= 1
    s = first_fit(profile, procs[a], jobs.times[a], jobs.release[i], np.inf)
    y, e = row_at(profile, s) + 1, s + jobs.times[a]
    there = profile.free[y - 1]
    while y < size and profile.edge[y] < e:
        there = min(there, profile.free[y])
        y += 1
    while a < wanted and procs[a + 1] <= there:
        a += 1
    return a, s


@helper(inline=True)
def in_turn(search: ListSearch, limit: float) -> float:
    """Give each job in this order its place before any later one, on what is wanted or squeezed.

    Returns the value, or inf as soon as it must pass the limit: what is left starts no sooner than
    anything is free. Jobs before the move are not placed anew, but for those behind the last place
    that is saved.
    """
    jobs, listing, profile, turns = search.jobs, search.listing, search.profile, search.turns
    out = search.out
    order, wanted, n = listing.order, listing.wanted, listing.order.size
    cap, late = search.rule.cap, search.decoding.late
    stride, moved = (n + SAVED - 1) // SAVED, turns.known[1]
    c = min(max(turns.known[0] - 1, 0), moved // stride)
    load(turns, c, search.there, profile)
    total, makespan, least, weight = turns.total[c], turns.makespan[c], 0.0, 0.0
    for x in range(c * stride, n):
        i = order[x]
        least += jobs.weight[i] * jobs.times[wanted[i]]
        weight += jobs.weight[i]
    for x in range(c * stride, n):
        if c * stride < x <= moved and x % stride == 0:
            save(turns, x // stride, profile, total, makespan)
        i = order[x]
        w = jobs.weight[i]
        a, s = fit_in(jobs, i, wanted[i], search.rule.squeeze, profile)
        p = jobs.times[a]
        out.row[i], out.start[i], out.end[i] = a, s, s + p
        book(profile, s, s + p, jobs.procs[a])
        total, makespan = total + w * (s + p), max(makespan, s + p)
        least, weight = least - w * jobs.times[wanted[i]], weight - w
        soonest = profile.edge[1] if profile.free[0] == 0 else profile.edge[0]
        delay = late * max(makespan / cap - 1.0, 0.0)
        if total + least + weight * soonest + delay > limit:
            return np.inf
    return float(total + late * max(makespan / cap - 1.0, 0.0))


@helper(inline=True)
def propose(search: ListSearch, state: Annealing) -> tuple[bool, Move]:
    """Change a job's place in the order, its allotment, or both.

    A move is its places before and after, and its allotment before.
    """
    jobs, listing, random = search.jobs, search.listing, state.random
    order, wanted, n = listing.order, listing.wanted, listing.order.size
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
    search.turns.known[1] = min(x, y)
    return y != x or wanted[i] != before, (x, y, before)


@helper(inline=True)
def undo(search: ListSearch, move: Move) -> None:
    """Take back what `propose` did."""
    x, y, before = move
    order, wanted = search.listing.order, search.listing.wanted
    shift(order, y, x)
    wanted[order[x]] = before


@helper(inline=True)
def evaluate(search: ListSearch, state: Annealing) -> float:
    """The value of the list; inf where a job finds no place."""
    jobs, there, listing, out = search.jobs, search.there, search.listing, search.out
    rule, decoding = search.rule, search.decoding
    if decoding.waits:
        return in_turn(search, state.value[LIMIT])
    makespan, _ = decode(jobs, there, listing, rule, search.lists, out)
    if makespan == np.inf:
        return np.inf
    return measure(jobs.weight, out.end, rule.cap, decoding.late)


@helper(inline=True)
def accept(search: ListSearch, state: Annealing, value: float) -> float:
    """Forget the places behind the move."""
    turns, stride = search.turns, (search.listing.order.size + SAVED - 1) // SAVED
    turns.known[0] = min(turns.known[0], turns.known[1] // stride + 1)
    return value


@helper(inline=True)
def keep(search: ListSearch) -> None:
    """Copy the list: it is the best so far."""
    listing, best = search.listing, search.best
    for j in range(listing.order.size):
        best.order[j], best.wanted[j] = listing.order[j], listing.wanted[j]


anneal_list = annealer(
    __name__, propose=propose, evaluate=evaluate, accept=accept, keep=keep, undo=undo
)
