"""Moldable jobs, processors that are free over time, and where a run fits in: compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.record import Floats, Ints, record


@record
class Jobs(NamedTuple):
    """N jobs with A allotments in all, of one pool of processors; see `MoldableQueue`."""

    first: Ints  # N + 1, allotments of each job
    procs: Ints  # A, rising in a job
    times: Floats  # A, s, falling in a job
    weight: Floats  # N
    release: Floats  # N, s


@record
class Processors(NamedTuple):
    """The processors of a pool over S stretches of time."""

    starts: Floats  # S, s
    capacity: Ints  # S


@kernel
def canonical_allotments(
    jobs: Jobs, guess: float, out_procs: Ints, out_work: Floats, out_half: Floats
) -> bool:
    """For each job, what it needs at least to end by a guess; false if one cannot.

    That is the fewest processors, the least work in processor-seconds, and the least work of an
    allotment that runs for at most half the guess; inf where there is none.
    """
    for i in range(jobs.release.size):
        limit = guess - jobs.release[i]
        out_procs[i], out_work[i], out_half[i] = 0, np.inf, np.inf
        for a in range(jobs.first[i], jobs.first[i + 1]):
            if jobs.times[a] > limit:
                continue
            if out_procs[i] == 0:
                out_procs[i] = jobs.procs[a]
            work = jobs.procs[a] * jobs.times[a]
            out_work[i] = min(out_work[i], work)
            if jobs.times[a] <= guess / 2.0:
                out_half[i] = min(out_half[i], work)
        if out_procs[i] == 0:
            return False
    return True


@record
class PoolProfile(NamedTuple):
    """Rows of free processors; the last row holds without end."""

    edge: Floats  # s from which a row holds
    free: Ints
    rows: Ints  # 1: how many there are


@helper(inline=True)
def row_at(profile: PoolProfile, t: float) -> int:
    """The row that holds at t."""
    low, high = 0, profile.rows[0]
    while high - low > 1:
        middle = (low + high) >> 1
        if profile.edge[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@helper(inline=True)
def split(edge: Floats, free: Ints, size: int, a: int, t: float) -> None:
    """Cut row a - 1 at t; row a is new."""
    for x in range(size, a, -1):
        edge[x], free[x] = edge[x - 1], free[x - 1]
    edge[a], free[a] = t, free[a - 1]


@helper(inline=True)
def join(edge: Floats, free: Ints, size: int, a: int) -> int:
    """Drop row a where it is like the one before; returns how many rows are left."""
    if free[a] != free[a - 1]:
        return size
    for x in range(a, size - 1):
        edge[x], free[x] = edge[x + 1], free[x + 1]
    return size - 1


@helper(inline=True)
def take(profile: PoolProfile, a: int, b: int, e: float, k: int) -> None:
    """Take k processors from the begin of row a to e; row b is the last one before e."""
    edge, free, size = profile.edge, profile.free, profile.rows[0]
    if b + 1 == size or edge[b + 1] > e:
        split(edge, free, size, b + 1, e)
        size += 1
    for x in range(a, b + 1):
        free[x] -= k
    size = join(edge, free, size, b + 1)
    if a > 0:
        size = join(edge, free, size, a)
    profile.rows[0] = size


@helper(inline=True)
def begin_row(profile: PoolProfile, a: int, s: float) -> int:
    """The row that begins at s, which lies in row a: that, or a new one behind it."""
    if profile.edge[a] >= s:
        return a
    split(profile.edge, profile.free, profile.rows[0], a + 1, s)
    profile.rows[0] += 1
    return a + 1


@helper(inline=True)
def book(profile: PoolProfile, s: float, e: float, k: int) -> None:
    """Take k processors from s to e, or give back -k."""
    a = begin_row(profile, row_at(profile, s), s)
    b, edge, size = a, profile.edge, profile.rows[0]
    while b + 1 < size and edge[b + 1] < e:
        b += 1
    take(profile, a, b, e, k)


@helper(inline=True)
def first_fit(profile: PoolProfile, k: int, p: float, s: float, last: float) -> float:
    """The first start from s on of a run of p seconds; -1 where that would end after `last`."""
    edge, free, size = profile.edge, profile.free, profile.rows[0]
    y = row_at(profile, s)
    while True:
        if free[y] < k:
            y += 1
            if y >= size:
                return -1.0
            s = edge[y]
            if s + p > last:
                return -1.0
        elif y + 1 >= size or edge[y + 1] >= s + p:
            return s
        else:
            y += 1


@helper(inline=True)
def last_fit(profile: PoolProfile, k: int, p: float, s: float, release: float) -> float:
    """The last start up to s; -1 where that is before the release."""
    edge, free = profile.edge, profile.free
    e = s + p
    y = row_at(profile, e)
    if edge[y] >= e and y > 0:
        y -= 1
    while True:
        if free[y] < k:
            e = edge[y]
            s = e - p
            if s + p > e:
                s -= 2.0**-52 * e
            if s < release:
                return -1.0
        elif edge[y] <= s:
            return s
        y -= 1
