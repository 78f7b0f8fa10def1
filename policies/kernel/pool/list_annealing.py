"""Annealing of a list: the order and the allotments that are wanted change: compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.acceptance import Cooling, accepts
from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.moves import shift
from coalloc.policies.kernel.pool.pool_insertion import Placed, place_in_turn
from coalloc.policies.kernel.pool.pool_jobs import Jobs, Processors
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, Lists, decode
from coalloc.policies.kernel.pool.pool_profile import Profile
from coalloc.policies.kernel.record import Floats, record
from coalloc.policies.kernel.xorshift import State, draw, pick


@record
class Decoding(NamedTuple):
    """The way from a list to a schedule, and the worth of that."""

    late: float  # what a makespan of twice the rule's cap costs
    waits: bool  # processors may wait for a job though another fits


@helper(inline=True)
def measure(weight: Floats, end: Floats, cap: float, late: float) -> float:
    """The weighted completion, and what the delay of the makespan costs."""
    makespan, total = 0.0, 0.0
    for j in range(end.size):
        makespan = max(makespan, end[j])
        total += weight[j] * end[j]
    return total + late * max(makespan / cap - 1.0, 0.0)


@helper(inline=True)
def in_turn(jobs: Jobs, there: Processors, listing: Listing, profile: Profile, out: Placed) -> None:
    """Give each job in this order its place, on just what is wanted, before any later one."""
    size = there.starts.size
    for x in range(size):
        profile.edge[x], profile.free[x] = there.starts[x], there.capacity[x]
    profile.rows[0] = size
    for j in range(listing.wanted.size):
        out.row[j] = listing.wanted[j]
    place_in_turn(jobs, listing.order, profile, out)


@helper(inline=True)
def propose(jobs: Jobs, random: State, listing: Listing) -> tuple[int, int, int]:
    """Change a job's place in the order, its allotment, or both.

    Returns its places before and after, and its allotment before.
    """
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
    return x, y, before


@kernel
def anneal_list(
    jobs: Jobs,
    there: Processors,
    listing: Listing,
    rule: ListRule,
    decoding: Decoding,
    cooling: Cooling,
    random: State,
    lists: Lists,
    profile: Profile,
    out: Placed,
    best_listing: Listing,
) -> None:
    """Change the order and the allotments of a list a little, so many times.

    Parameters
    ----------
    jobs, there, rule, decoding, cooling, random : Jobs, Processors, ...
        With `decoding.waits` places are given `in_turn`: lists never let processors wait, and not
        every optimum is a list.
    listing : Listing
        Where to begin; the last accepted on return.
    lists, profile, out : Lists, Profile and Placed
        Working memory.
    best_listing : Listing
        The answer.
    """
    current, best = np.inf, np.inf
    for trial in range(cooling.trials):
        x, y, before = 0, 0, 0
        if trial > 0:
            x, y, before = propose(jobs, random, listing)
            if y == x and listing.wanted[listing.order[x]] == before:
                continue
        value, makespan = np.inf, 0.0
        if decoding.waits:
            in_turn(jobs, there, listing, profile, out)
        else:
            makespan, _ = decode(jobs, there, listing, rule, lists, out)
        if makespan < np.inf:
            value = measure(jobs.weight, out.end, rule.cap, decoding.late)
        if trial == 0 or accepts(cooling, trial, current, value, random):
            current = value
            if value < best:
                best = value
                for j in range(listing.order.size):
                    best_listing.order[j] = listing.order[j]
                    best_listing.wanted[j] = listing.wanted[j]
        else:
            shift(listing.order, y, x)
            listing.wanted[listing.order[x]] = before


__all__ = ["Decoding", "anneal_list"]
