"""Annealing of a list: the order and the allotments that are wanted change: compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.annealing_loop import Annealing, annealer, shift
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.pool.pool_insertion import Placed, place_in_turn
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, Lists, decode
from coalloc.policies.kernel.pool.pool_profile import Jobs, PoolProfile, Processors
from coalloc.policies.kernel.record import Floats, record
from coalloc.policies.kernel.xorshift import draw, pick

Move = tuple[int, int, int]


@record
class Decoding(NamedTuple):
    """The way from a list to a schedule, and the worth of that."""

    late: float  # what a makespan of twice the rule's cap costs
    waits: bool  # processors may wait for a job though another fits


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
def in_turn(
    jobs: Jobs, there: Processors, listing: Listing, profile: PoolProfile, out: Placed
) -> None:
    """Give each job in this order its place, on just what is wanted, before any later one."""
    size = there.starts.size
    for x in range(size):
        profile.edge[x], profile.free[x] = there.starts[x], there.capacity[x]
    profile.rows[0] = size
    for j in range(listing.wanted.size):
        out.row[j] = listing.wanted[j]
    place_in_turn(jobs, listing.order, profile, out)


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
    rule, decoding, makespan = search.rule, search.decoding, 0.0
    if decoding.waits:
        in_turn(jobs, there, listing, search.profile, out)
    else:
        makespan, _ = decode(jobs, there, listing, rule, search.lists, out)
    if makespan == np.inf:
        return np.inf
    return measure(jobs.weight, out.end, rule.cap, decoding.late)


@helper(inline=True)
def accept(search: ListSearch, state: Annealing, value: float) -> float:
    """There is nothing else to know about a list than its value."""
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
