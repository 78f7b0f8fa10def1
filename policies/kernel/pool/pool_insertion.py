"""Moldable jobs put into a profile of free processors: compiled.

A job goes where it costs least at prices of processor time: w (s + p) + k * integral of the prices
over its run. The cheapest start of each allotment in an empty profile is known (`price_rows`); from
there the nearest free place is sought on both sides, for one allotment after the other until those
that are left cannot be cheaper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.pool.pool_profile import Jobs, PoolProfile, book, first_fit, last_fit
from coalloc.policies.kernel.record import Floats, Ints, record


@record
class Costs(NamedTuple):
    """Costs of N jobs with A allotments at prices on G slots of one width."""

    least: Floats  # A, where nothing is in the way
    ideal: Floats  # A, s: the start for that
    ranked: Ints  # A, each job's allotments by that cost
    price: Floats  # G, of a processor-second
    total: Floats  # G + 1, its integral up to each edge
    width: float  # s


@record
class Placed(NamedTuple):
    """A schedule of N jobs."""

    row: Ints  # N, index of an allotment
    start: Floats  # N, s
    end: Floats  # N, s


@helper(inline=True)
def cost_at(costs: Costs, w: float, k: int, p: float, s: float, share: float) -> float:
    """Cost of k processors from s for p seconds."""
    price, total, width = costs.price, costs.total, costs.width
    slots = price.size
    e = s + p
    g, h = int(s / width), int(e / width)
    before, after = total[slots], total[slots]
    if g < slots:
        before = total[g] + price[g] * (s - g * width)
    if h < slots:
        after = total[h] + price[h] * (e - h * width)
    return w * e + share * k * (after - before)


@helper(inline=True)
def place(
    jobs: Jobs, costs: Costs, i: int, share: float, cap: float, profile: PoolProfile
) -> tuple[int, float]:
    """Find job i's allotment and start."""
    w, release = jobs.weight[i], jobs.release[i]
    best, found, begin = np.inf, -1, 0.0
    for x in range(jobs.first[i], jobs.first[i + 1]):
        a = costs.ranked[x]
        if costs.least[a] >= best:
            break
        k, p = jobs.procs[a], jobs.times[a]
        wanted = min(max(costs.ideal[a], release), cap - p)
        if wanted < release:
            continue
        s = first_fit(profile, k, p, wanted, min(cap, best / w))
        if s >= 0.0:
            value = cost_at(costs, w, k, p, s, share)
            if value < best:
                best, found, begin = value, a, s
        if s == wanted:
            continue
        s = last_fit(profile, k, p, wanted, release)
        if s >= 0.0:
            value = cost_at(costs, w, k, p, s, share)
            if value < best:
                best, found, begin = value, a, s
    if found < 0:
        return place_soon(jobs, i, profile)
    return found, begin


@helper(inline=True)
def place_soon(jobs: Jobs, i: int, profile: PoolProfile) -> tuple[int, float]:
    """Job i's allotment and start where it ends first."""
    best, found, begin = np.inf, -1, 0.0
    for a in range(jobs.first[i], jobs.first[i + 1]):
        p = jobs.times[a]
        s = first_fit(profile, jobs.procs[a], p, jobs.release[i], best)
        if s >= 0.0 and s + p < best:
            best, found, begin = s + p, a, s
    return found, begin


@kernel
def insert_all(
    jobs: Jobs,
    costs: Costs,
    order: Ints,
    share: float,
    cap: float,
    profile: PoolProfile,
    out: Placed,
) -> None:
    """Place all jobs in this order into a profile.

    `share`: what part of the prices is paid.
    `cap`: what no job should end after, seconds.
    """
    for x in range(order.size):
        i = order[x]
        a, s = place(jobs, costs, i, share, cap, profile)
        out.row[i], out.start[i], out.end[i] = a, s, s + jobs.times[a]
        book(profile, s, out.end[i], jobs.procs[a])


@kernel
def settle(jobs: Jobs, order: Ints, profile: PoolProfile, out: Placed) -> None:
    """Place all jobs in this order into a profile, each on its allotment as early as it fits."""
    for x in range(order.size):
        i = order[x]
        k, p = jobs.procs[out.row[i]], jobs.times[out.row[i]]
        s = first_fit(profile, k, p, jobs.release[i], np.inf)
        out.start[i], out.end[i] = s, s + p
        book(profile, s, s + p, k)
