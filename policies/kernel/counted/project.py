"""Search for the order of items that share one node and licences: a project, compiled.

An individual is an order. Its schedule, each item as early as its parents and all amounts allow, is
justified to the right and to the left, which makes none longer; it becomes the order of its starts.

References
----------
S. Hartmann, "A competitive genetic algorithm for resource-constrained project scheduling", Naval
Research Logistics 45(7), 1998: lists, and how two are crossed.
V. Valls, F. Ballestin, S. Quintanilla, "Justification and RCPSP: a technique that pays", European
Journal of Operational Research 165(2), 2005.
"""

from __future__ import annotations

from typing import NamedTuple

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.xorshift import State, draw, pick

FILLED, STALE = range(2)
"""Places in ``told``: individuals, and children in a row that made none of them better."""
SWAPS = 0.05
"""Share of neighbours in a list that change places, where they may."""


@record
class Project(NamedTuple):
    """N items, R amounts that all share, P individuals."""

    length: Floats
    take: Floats  # N x R
    size: Floats  # R
    parent_first: Ints
    parent: Ints
    child_first: Ints
    child: Ints
    tail: Floats  # longest path from an item's start to the end
    lists: Ints  # P x N
    worth: Floats  # P x 2: the last end, the sum of starts
    told: Ints
    best: Ints  # the best order of all
    least: Floats  # its last end
    order: Ints  # this and below: working memory
    spare: Ints
    used: Ints
    start: Floats
    key: Floats
    time: Floats  # 2 N + 1 instants
    free: Floats  # 2 N + 1 x R, from each instant to the next


@helper()
def serial(b: Project, first: Ints, link: Ints) -> float:
    """Schedule ``order``, each item after those that `link` names; the last end."""
    kinds, points, last = b.size.size, 1, 0.0
    b.time[0] = 0.0
    for r in range(kinds):
        b.free[0, r] = b.size[r]
    for pos in range(b.order.size):
        i, t = b.order[pos], 0.0
        for j in range(first[i], first[i + 1]):
            t = max(t, b.start[link[j]] + b.length[link[j]])
        p = points - 1
        while b.time[p] > t:
            p -= 1
        q, e = p, t + b.length[i]
        while q < points and (q == p or b.time[q] < e):
            short = False
            for r in range(kinds):
                short |= b.take[i, r] > b.free[q, r]
            q += 1
            if short:  # at the last instant nothing is
                p, t, e = q, b.time[q], b.time[q] + b.length[i]
        if b.time[p] < t:
            p += 1
            q += 1
            insert(b, points, p, t)
            points += 1
        if q == points or b.time[q] > e:
            insert(b, points, q, e)
            points += 1
        for x in range(p, q):
            for r in range(kinds):
                b.free[x, r] -= b.take[i, r]
        b.start[i] = t
        last = max(last, e)
    return last


@helper()
def insert(b: Project, points: int, at: int, t: float) -> None:
    """One more instant, at which as much is free as before it."""
    for x in range(points, at, -1):
        b.time[x] = b.time[x - 1]
        for r in range(b.size.size):
            b.free[x, r] = b.free[x - 1, r]
    b.time[at] = t
    for r in range(b.size.size):
        b.free[at, r] = b.free[at - 1, r]


@helper()
def turn(b: Project, sign: float) -> None:
    """Sort ``order`` by starts, or (-1) by ends, the last first; what is equal keeps its turn."""
    n = b.order.size
    for x in range(n // 2 if sign < 0.0 else 0):
        b.order[x], b.order[n - 1 - x] = b.order[n - 1 - x], b.order[x]
    for i in range(n):
        b.key[i] = b.start[i] if sign > 0.0 else -b.start[i] - b.length[i]
    for pos in range(1, n):  # it is nearly sorted
        i, at = b.order[pos], pos
        while at > 0 and b.key[b.order[at - 1]] > b.key[i]:
            b.order[at] = b.order[at - 1]
            at -= 1
        b.order[at] = i


@helper()
def judge(b: Project, row: int) -> None:
    """Schedule and justify ``order``; it replaces an individual that is worse."""
    n, last, total = b.order.size, 0.0, 0.0
    for back in range(3):
        if back == 1:
            serial(b, b.child_first, b.child)
        else:
            last = serial(b, b.parent_first, b.parent)
        turn(b, 1.0 if back == 2 else -1.0)
    for i in range(n):
        total += b.start[i]
    filling = row == b.told[FILLED]
    better = filling or (last, total) < (b.worth[row, 0], b.worth[row, 1])
    for pos in range(n):
        b.best[pos] = b.order[pos] if last < b.least[0] else b.best[pos]
        b.lists[row, pos] = b.order[pos] if better else b.lists[row, pos]
    b.least[0] = min(b.least[0], last)
    b.told[FILLED] += 1 if filling else 0
    b.told[STALE] = 0 if better else b.told[STALE] + 1
    if better:
        b.worth[row, 0], b.worth[row, 1] = last, total


@helper()
def draw_order(b: Project, random: State) -> None:
    """Fill ``order`` at random; of two that may come next, the one with more behind it."""
    n, left = b.order.size, 0
    for i in range(n):
        b.used[i] = b.parent_first[i + 1] - b.parent_first[i]
        if b.used[i] == 0:
            b.spare[left] = i
            left += 1
    for pos in range(n):
        x, y = pick(random, left), pick(random, left)
        if b.tail[b.spare[y]] > b.tail[b.spare[x]]:
            x = y
        i = b.spare[x]
        left -= 1
        b.spare[x], b.order[pos] = b.spare[left], i
        for j in range(b.child_first[i], b.child_first[i + 1]):
            b.used[b.child[j]] -= 1
            if b.used[b.child[j]] == 0:
                b.spare[left] = b.child[j]
                left += 1


@helper()
def cross(b: Project, mother: int, father: int, random: State) -> None:
    """Fill ``order`` from both: the middle comes from the father, then some neighbours swap."""
    n, at = b.order.size, 0
    low, high = pick(random, n + 1), pick(random, n + 1)
    for i in range(n):
        b.used[i] = 0
    for turn_of in range(3):
        row = father if turn_of == 1 else mother
        until = n if turn_of == 2 else max(low, high) if turn_of == 1 else min(low, high)
        pos = 0
        while at < until:
            i = b.lists[row, pos]
            pos += 1
            if b.used[i] == 0:
                b.used[i] = 1
                b.order[at] = i
                at += 1
    for pos in range(n - 1):
        if draw(random) < SWAPS:
            i, k, tied = b.order[pos], b.order[pos + 1], False
            for j in range(b.child_first[i], b.child_first[i + 1]):
                tied |= b.child[j] == k
            if not tied:
                b.order[pos], b.order[pos + 1] = k, i


@kernel
def breed(b: Project, random: State, children: int, patience: int) -> None:
    """So many more individuals; others are drawn for all after so many children in vain."""
    rows = b.worth.shape[0]
    for _ in range(children):
        if b.told[STALE] >= patience:
            b.told[FILLED] = b.told[STALE] = 0
        if b.told[FILLED] < rows:
            draw_order(b, random)
            judge(b, b.told[FILLED])
            continue
        mother, father = pick(random, rows), pick(random, rows)
        cross(b, mother, father, random)
        x, y = pick(random, rows), pick(random, rows)
        judge(b, x if b.worth[x, 0] >= b.worth[y, 0] else y)
