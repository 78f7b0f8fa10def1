"""List scheduling of moldable jobs on one pool of processors: compiled.

At each instant, in order, every job that is there starts on the allotment that is wanted for it, if
that is free; on less, down to a share of it (*squeeze*); on more, where it would end after the cap;
and, once nothing else can start, on what is left over, up to a multiple of it (*stretch*). With
shares of 1 and no cap the allotments are fixed. A start costs O(log n): what waits and what is due
are trees of minima over the list, as arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.pool.pool_insertion import Placed
from coalloc.policies.kernel.pool.pool_profile import Jobs, Processors
from coalloc.policies.kernel.record import Floats, Ints, record


@helper(inline=True)
def put(tree: Floats, leaf: int, value: float) -> None:
    """Change a leaf of a tree of minima; tree[1] is the root, leaves are its last half."""
    tree[leaf] = value
    p = leaf >> 1
    while p > 0:
        least = min(tree[2 * p], tree[2 * p + 1])
        if tree[p] == least:
            break
        tree[p] = least
        p >>= 1


@helper(inline=True)
def leaf_within(tree: Floats, leaf: int, limit: float) -> int:
    """The first leaf from this one on whose value is at most `limit`; 0 if none is."""
    half = tree.size >> 1
    p = leaf
    while tree[p] > limit:
        while p & 1:
            p >>= 1
        if p == 0:
            return 0
        p += 1
    while p < half:
        p *= 2
        if tree[p] > limit:
            p += 1
    return p


@helper(inline=True)
def grow(tree: Floats) -> None:
    """Fill in all that is above the leaves."""
    for p in range((tree.size >> 1) - 1, 0, -1):
        tree[p] = min(tree[2 * p], tree[2 * p + 1])


def empty_tree(leaves: int) -> Floats:
    """Space for a tree of at least so many leaves."""
    half = 1 << max(leaves - 1, 0).bit_length()
    return np.empty(2 * half)


@record
class Listing(NamedTuple):
    """N jobs in an order, and the allotment that is wanted for each."""

    order: Ints  # N
    wanted: Ints  # N


@record
class ListRule(NamedTuple):
    """Limits within which allotments give way, and of the value."""

    squeeze: float  # of the allotment that is wanted, what a job starts on at least; 1 at most
    stretch: float  # at most; 1 at least
    cap: float  # what no job should end after, s
    most: float  # of the weighted completion; for allotments that do not give way


@record
class Lists(NamedTuple):
    """Working memory of a list of N jobs; see `lists_for`."""

    needs: Floats  # tree of minima over the order: fewest processors that what waits starts on
    due: Floats  # likewise: when a job arrives, or what runs ends, s
    begun: Ints  # N, places in the order of what starts at one instant
    taken: Ints  # processors that jobs hold at the begin of each stretch up to the last dip


def lists_for(jobs: int, capacity: Ints) -> Lists:
    """Working memory for so many jobs, and processors that are there in each stretch of time.

    After the last dip, a stretch that offers less than the one before it, nothing that fits now
    can be in the way of anything.
    """
    dips = np.flatnonzero(np.diff(capacity) < 0)
    taken = np.zeros(int(dips.max(initial=-1)) + 2, dtype=np.int64)
    return Lists(empty_tree(jobs), empty_tree(jobs), np.zeros(jobs, dtype=np.int64), taken)


@helper(inline=True)
def plant(jobs: Jobs, listing: Listing, squeeze: float, lists: Lists, out: Placed) -> None:
    """Nothing has started; jobs wait, or have not arrived."""
    order, needs, due, half = listing.order, lists.needs, lists.due, lists.needs.size >> 1
    for x in range(half):
        needs[half + x], due[half + x] = np.inf, np.inf
    for x in range(order.size):
        i = order[x]
        out.row[i] = -1
        if jobs.release[i] > 0.0:
            due[half + x] = jobs.release[i]
        else:
            needs[half + x] = squeeze * jobs.procs[listing.wanted[i]]
    grow(needs)
    grow(due)


@helper(inline=True)
def still_to_end(jobs: Jobs, listing: Listing) -> tuple[float, float]:
    """The weight of all jobs, and the sum of weight times seconds."""
    weight, least = 0.0, 0.0
    for x in range(listing.order.size):
        i = listing.order[x]
        weight += jobs.weight[i]
        least += jobs.weight[i] * jobs.times[listing.wanted[i]]
    return weight, least


@helper(inline=True)
def take_until(there: Processors, taken: Ints, first: int, end: float, procs: int) -> bool:
    """Take processors in the stretches from `first` on that begin before an end, if free."""
    s = first
    while s < taken.size and there.starts[s] < end:
        if there.capacity[s] - taken[s] < procs:
            return False
        s += 1
    for y in range(first, s):
        taken[y] += procs
    return True


@helper(inline=True)
def give_until(there: Processors, taken: Ints, first: int, end: float, procs: int) -> None:
    """Give back what `take_until` has taken."""
    s = first
    while s < taken.size and there.starts[s] < end:
        taken[s] -= procs
        s += 1


@helper(inline=True)
def take_due(
    jobs: Jobs, listing: Listing, squeeze: float, lists: Lists, out: Placed, now: float
) -> int:
    """Let in jobs that arrive by now, take out those that end; the processors that they free."""
    freed, due, half = 0, lists.due, lists.due.size >> 1
    while due[1] <= now:
        p = leaf_within(due, half, now)
        i = listing.order[p - half]
        if out.row[i] < 0:
            put(lists.needs, p, squeeze * jobs.procs[listing.wanted[i]])
        else:
            freed += jobs.procs[out.row[i]]
        put(due, p, np.inf)
    return freed


@helper(inline=True)
def allotment_at(jobs: Jobs, i: int, wanted: int, rule: ListRule, now: float, room: int) -> int:
    """Job i's allotment with so many processors free; -1 to wait."""
    procs, left = jobs.procs, rule.cap - now
    a = wanted
    while a + 1 < jobs.first[i + 1] and jobs.times[a] > left and procs[a + 1] <= room:
        a += 1
    while a > jobs.first[i] and procs[a] > room:
        a -= 1
    return a if rule.squeeze * procs[wanted] <= procs[a] <= room else -1


@helper(inline=True)
def start_fitting(
    jobs: Jobs,
    there: Processors,
    listing: Listing,
    rule: ListRule,
    lists: Lists,
    level: int,
    now: float,
    room: int,
    out: Placed,
) -> tuple[int, int]:
    """Start what fits in stretch `level`, in order; how many jobs, and the processors left."""
    needs, half, begun = lists.needs, lists.needs.size >> 1, 0
    p = leaf_within(needs, half, room)
    while p > 0:
        i = listing.order[p - half]
        a = allotment_at(jobs, i, listing.wanted[i], rule, now, room)
        if a >= 0 and take_until(there, lists.taken, level + 1, now + jobs.times[a], jobs.procs[a]):
            put(needs, p, np.inf)
            out.row[i] = a
            lists.begun[begun] = p
            begun += 1
            room -= jobs.procs[a]
        p = leaf_within(needs, p + 1, room) if p + 1 < 2 * half else 0
    return begun, room


@helper(inline=True)
def widen(
    jobs: Jobs, there: Processors, taken: Ints, i: int, a: int, most: float, first: int, now: float
) -> int:
    """Change job i, which starts now, to its largest allotment of at most so many processors."""
    procs, times, b = jobs.procs, jobs.times, a
    while b + 1 < jobs.first[i + 1] and procs[b + 1] <= most:
        b += 1
    if b > a:
        give_until(there, taken, first, now + times[a], procs[a])
        if take_until(there, taken, first, now + times[b], procs[b]):
            return b
        take_until(there, taken, first, now + times[a], procs[a])
    return a


@helper(inline=True)
def decode(
    jobs: Jobs, there: Processors, listing: Listing, rule: ListRule, lists: Lists, out: Placed
) -> tuple[float, float]:
    """List all jobs; see `list_on_pool`."""
    starts, order, wanted, half = there.starts, listing.order, listing.wanted, lists.due.size >> 1
    plant(jobs, listing, rule.squeeze, lists, out)
    rest, least = still_to_end(jobs, listing)
    for s in range(lists.taken.size):
        lists.taken[s] = 0
    makespan, total, left, level, used, now = 0.0, 0.0, order.size, 0, 0, 0.0
    while left > 0:
        while level + 1 < starts.size and starts[level + 1] <= now:
            level += 1
        used -= take_due(jobs, listing, rule.squeeze, lists, out, now)
        room = there.capacity[level] - used
        begun, room = start_fitting(jobs, there, listing, rule, lists, level, now, room, out)
        for x in range(begun):
            p = lists.begun[x]
            i = order[p - half]
            a = out.row[i]
            most = min(jobs.procs[a] + room, rule.stretch * jobs.procs[wanted[i]])
            b = widen(jobs, there, lists.taken, i, a, most, level + 1, now)
            room -= jobs.procs[b] - jobs.procs[a]
            out.row[i], out.start[i], out.end[i] = b, now, now + jobs.times[b]
            put(lists.due, p, out.end[i])
            makespan = max(makespan, out.end[i])
            total += jobs.weight[i] * out.end[i]
            rest -= jobs.weight[i]
            least -= jobs.weight[i] * jobs.times[wanted[i]]
        left -= begun
        used = there.capacity[level] - room
        now = lists.due[1]
        if level + 1 < starts.size:
            now = min(now, starts[level + 1])
        if left > 0 and (now == np.inf or total + rest * now + least > rule.most):
            return np.inf, np.inf
    if total > rule.most:
        return np.inf, np.inf
    return makespan, total


@kernel
def list_on_pool(
    jobs: Jobs, there: Processors, listing: Listing, rule: ListRule, lists: Lists, out: Placed
) -> tuple[float, float]:
    """List all jobs; makespan, seconds, and weighted completion.

    Both are inf where `out`, the answer, is not whole: a job finds no place, or the list is given
    up.
    """
    return decode(jobs, there, listing, rule, lists, out)
