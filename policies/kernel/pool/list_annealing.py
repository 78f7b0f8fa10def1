"""Annealing of a list: the order and the allotments that are wanted change: compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.annealing_loop import CURRENT, LIMIT, Annealing, annealer, shift
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.pool.pool_insertion import Costs, Placed, cost_at
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, Lists, decode
from coalloc.policies.kernel.pool.pool_profile import (
    Jobs,
    PoolProfile,
    Processors,
    begin_row,
    row_at,
    take,
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
    least: Ints  # A: the fewest processors instead of each allotment, as an index of one
    doubt: float  # what a trial may be too dear by at the prices; inf: they are not asked


@record
class Turns(NamedTuple):
    """A list in which jobs get their places in turn, and what is known of the one before it.

    Profiles are saved behind the first jobs, up to places at equal distances.
    """

    edge: Floats  # SAVED x rows: a profile as in `PoolProfile`
    free: Ints  # SAVED x rows
    rows: Ints  # SAVED
    total: Floats  # SAVED: their weighted completion
    makespan: Floats  # SAVED, s
    known: Ints  # 4: known places; first and last that a move changes; jobs placed in a trial
    cost: Floats  # N: what each job costs at the prices in the schedule that is gone on from
    tried: Floats  # N: the same of the schedule that is tried
    delay: Floats  # N, by place: what the delay of jobs up to it costs there
    later: Floats  # N: the same of the schedule that is tried

    @staticmethod
    def empty(rows: int, jobs: int) -> Turns:
        """Working memory for profiles of so many rows, and so many jobs."""
        cost, tried, delay, later = np.zeros((4, jobs))
        return Turns(
            np.zeros((SAVED, rows)),
            np.zeros((SAVED, rows), dtype=np.int64),
            np.zeros(SAVED, dtype=np.int64),
            np.zeros(SAVED),
            np.zeros(SAVED),
            np.zeros(4, dtype=np.int64),
            cost,
            tried,
            delay,
            later,
        )

    def forget(self) -> None:
        """Know nothing of any list."""
        self.known[:] = 0, 0, self.cost.size, 0


class ListSearch(NamedTuple):
    """A list that changes, and what its schedule needs.

    With `decoding.waits` places are given `in_turn`: lists never let processors wait, and not every
    optimum is a list.
    """

    jobs: Jobs
    there: Processors
    rule: ListRule
    decoding: Decoding
    costs: Costs  # prices by which trials are given up
    listing: Listing
    best: Listing
    lists: Lists  # working memory
    profile: PoolProfile  # working memory
    turns: Turns  # working memory
    now: Placed  # working memory: the schedule that is gone on from
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
def save(
    turns: Turns, c: int, profile: PoolProfile, head: int, total: float, makespan: float
) -> None:
    """Remember a place, without the rows before `head`."""
    size = profile.rows[0] - head
    for x in range(size):
        turns.edge[c, x], turns.free[c, x] = profile.edge[head + x], profile.free[head + x]
    turns.rows[c], turns.total[c], turns.makespan[c], turns.known[0] = size, total, makespan, c + 1


@helper(inline=True)
def fit_in(
    jobs: Jobs, i: int, least: int, wanted: int, profile: PoolProfile, head: int
) -> tuple[int, float]:
    """Give job i its place: the first on the least it takes, and up to what is wanted.

    Returns its allotment and start. Nothing is free before row `head`.
    """
    edge, free, size, procs, a = profile.edge, profile.free, profile.rows[0], jobs.procs, least
    x, s = head, edge[head]
    if jobs.release[i] > s:
        s = jobs.release[i]
        x = row_at(profile, s)
    y, k, room = x, procs[a], procs[wanted]
    while y < size and (y == x or edge[y] < s + jobs.times[a]):
        if free[y] < k:
            x, s, room = y + 1, edge[min(y + 1, size - 1)], procs[wanted]
        else:
            room = min(room, free[y])
        y += 1
    if procs[wanted] <= room:
        a = wanted
    while a < wanted and procs[a + 1] <= room:
        a += 1
    e = s + jobs.times[a]
    while y - 1 > x and edge[y - 1] >= e:
        y -= 1
    z = begin_row(profile, x, s)
    take(profile, z, y - 1 + z - x, e, procs[a])
    return a, s


@helper(inline=True)
def still_to_place(search: ListSearch, first: int) -> tuple[float, float]:
    """The weight of the jobs from a place on, and the sum of weight times seconds."""
    jobs, order, wanted = search.jobs, search.listing.order, search.listing.wanted
    weight, least = 0.0, 0.0
    for x in range(first, order.size):
        i = order[x]
        weight += jobs.weight[i]
        least += jobs.weight[i] * jobs.times[wanted[i]]
    return weight, least


@helper(inline=True)
def in_turn(search: ListSearch, limit: float, current: float) -> float:
    """Give each job in this order its place before any later one, on what is wanted or squeezed.

    Returns the value, or inf as soon as it must pass the limit (what is left starts no sooner than
    anything is free), or would by the prices: what jobs behind the move lose or gain by it is about
    the value of the processor time that it takes or leaves. Jobs before the move are not placed
    anew, but for those behind the last place that is saved; nor is any behind it once all are where
    they were.
    """
    jobs, listing, profile, turns = search.jobs, search.listing, search.profile, search.turns
    out, rule, decoding, now = search.out, search.rule, search.decoding, search.now
    order, wanted, n = listing.order, listing.wanted, listing.order.size
    stride, moved, last = (n + SAVED - 1) // SAVED, turns.known[1], turns.known[2]
    c = min(max(turns.known[0] - 1, 0), moved // stride)
    load(turns, c, search.there, profile)
    total, makespan, head = turns.total[c], turns.makespan[c], 0
    weight, least = still_to_place(search, c * stride)
    allowed, dearer, others = limit - current + decoding.doubt, 0.0, 0
    for x in range(c * stride, n):
        if c * stride < x <= moved and x % stride == 0:
            save(turns, x // stride, profile, head, total, makespan)
        i = order[x]
        w = jobs.weight[i]
        a, s = fit_in(jobs, i, decoding.least[wanted[i]], wanted[i], profile, head)
        while profile.free[head] == 0 and head + 1 < profile.rows[0]:
            head += 1
        p = jobs.times[a]
        out.row[i], out.start[i], out.end[i] = a, s, s + p
        total, makespan = total + w * (s + p), max(makespan, s + p)
        least, weight = least - w * jobs.times[wanted[i]], weight - w
        turns.tried[i] = cost_at(search.costs, w, jobs.procs[a], p, s, 1.0)
        turns.later[x] = delay = decoding.late * max(makespan / rule.cap - 1.0, 0.0)
        turns.known[3] = x + 1
        if x >= moved and (a != now.row[i] or s != now.start[i]):
            others += 1
            dearer += turns.tried[i] - turns.cost[i]
        if x >= last and others == 0:
            return current
        if total + least + weight * profile.edge[head] + delay > limit or (
            x >= moved and dearer + delay - turns.delay[x] > allowed
        ):
            return np.inf
    return float(total + decoding.late * max(makespan / rule.cap - 1.0, 0.0))


@helper(inline=True)
def propose(search: ListSearch, state: Annealing) -> tuple[bool, Move]:
    """Change a job's place in the order, its allotment, or both.

    A move is its places before and after, and its allotment before.
    """
    jobs, listing, random = search.jobs, search.listing, state.random
    order, wanted, n = listing.order, listing.wanted, listing.order.size
    x = pick(random, n)
    y, u = x, draw(random)
    if u < 0.5:
        far = 1.0 + 0.12 * n * draw(random) ** 3
        y = int(min(max(x + far * (1.0 if draw(random) < 0.5 else -1.0), 0.0), n - 1.0))
    i = order[x]
    before = wanted[i]
    if u > 0.45:
        a = before + (1 if draw(random) < 0.5 else -1) * (1 + int(3.0 * draw(random) ** 2))
        if draw(random) < 0.3:  # by up to half of it
            a = before + int((before - jobs.first[i] + 1) * (draw(random) - 0.5))
        wanted[i] = min(max(a, jobs.first[i]), jobs.first[i + 1] - 1)
    shift(order, x, y)
    search.turns.known[1], search.turns.known[2] = min(x, y), max(x, y)
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
        return in_turn(search, state.value[LIMIT], state.value[CURRENT])
    makespan, _ = decode(jobs, there, listing, rule, search.lists, out)
    if makespan == np.inf:
        return np.inf
    return measure(jobs.weight, out.end, rule.cap, decoding.late)


@helper(inline=True)
def accept(search: ListSearch, state: Annealing, value: float) -> float:
    """Forget the places behind the move, and remember where its jobs are."""
    turns, now, out, order = search.turns, search.now, search.out, search.listing.order
    if search.decoding.waits:
        stride = (order.size + SAVED - 1) // SAVED
        turns.known[0] = min(turns.known[0], turns.known[1] // stride + 1)
        for x in range(turns.known[1], turns.known[3]):
            i = order[x]
            now.row[i], now.start[i] = out.row[i], out.start[i]
            turns.cost[i], turns.delay[x] = turns.tried[i], turns.later[x]
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
