"""Jobs taken out of a schedule, and put elsewhere: compiled.

A few jobs that run near each other are taken out and put back in another order, again and again,
accepting what is better, or worse by little (annealing).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.annealing_loop import Annealing, annealer
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.pool.pool_insertion import Costs, Placed, place
from coalloc.policies.kernel.pool.pool_profile import Jobs, PoolProfile, book
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.xorshift import State, draw

MOST = 24
"""Jobs that are taken out at once, at most."""
LATE = 2.0
"""Weight of a makespan's relative excess, in shares of the weighted completion."""
MADE, TRIED, TAKEN = 5, 6, 3
"""Of an `Annealing`: the makespans now and of what is tried, s; placements tried so far."""


@record
class Goal(NamedTuple):
    """The objective."""

    cap: float  # s: what the makespan should not pass
    scale: float  # what passing it is measured in


@record
class Moved(NamedTuple):
    """Jobs that are taken out, and how they were placed; `MOST` of each."""

    job: Ints
    key: Floats  # what their order is by
    row: Ints
    start: Floats
    end: Floats

    @staticmethod
    def empty() -> Moved:
        """Working memory."""
        whole_numbers, floats = np.zeros((2, MOST), dtype=np.int64), np.zeros((3, MOST))
        return Moved(whole_numbers[0], floats[0], whole_numbers[1], floats[1], floats[2])


class Reinsertion(NamedTuple):
    """A schedule that changes, and what moves need."""

    jobs: Jobs
    costs: Costs
    goal: Goal
    many: int  # jobs at once, at most
    profile: PoolProfile  # with the schedule
    moved: Moved  # working memory
    now: Placed
    best: Placed


@helper(inline=True)
def judge(weight: Floats, end: Floats, goal: Goal) -> tuple[float, float]:
    """The objective, weighted completion and delays; and the makespan."""
    cap = goal.cap
    makespan, total, late = 0.0, 0.0, 0.0
    for i in range(end.size):
        makespan = max(makespan, end[i])
        total += weight[i] * end[i]
        late += max(end[i] - cap, 0.0)
    delay = LATE * max(makespan / cap - 1.0, 0.0) + 2.0 * late / (cap * end.size)
    return total + goal.scale * delay, makespan


@helper(inline=True)
def choose(search: Reinsertion, makespan: float, random: State) -> int:
    """Pick jobs that run near each other, the first at random, or late; returns how many."""
    start, end, cap = search.now.start, search.now.end, search.goal.cap
    taken = search.moved.job
    n = start.size
    seed = min(int(draw(random) * n), n - 1)
    if makespan > cap and draw(random) < 0.4:
        for x in range(n):
            j = (seed + x) % n
            if end[j] > cap:
                seed = j
                break
    wanted = 2 + int(draw(random) * draw(random) * (search.many - 1))
    at = start[seed] + draw(random) * (min(end[seed], cap) - start[seed])
    reach = 0.2 * cap * draw(random)
    taken[0], got = seed, 1
    for _ in range(8 * wanted):
        j = min(int(draw(random) * n), n - 1)
        if start[j] > at + reach or end[j] < at - reach:
            continue
        known = False
        for z in range(got):
            known = known or taken[z] == j
        if not known:
            taken[got] = j
            got += 1
            if got >= wanted:
                break
    return got


@helper(inline=True)
def arrange(search: Reinsertion, got: int, rule: float, random: State) -> None:
    """Sort the chosen jobs: at random, by work, or by Smith's ratio, blurred."""
    jobs, row, job, key = search.jobs, search.now.row, search.moved.job, search.moved.key
    for x in range(got):
        j = job[x]
        u = draw(random)
        key[x] = u
        if rule > 0.7:
            key[x] = -jobs.weight[j] / (jobs.procs[row[j]] * jobs.times[row[j]]) * (0.5 + u)
        elif rule > 0.4:
            key[x] = -jobs.procs[row[j]] * jobs.times[row[j]] * (0.5 + u)
    for x in range(got):
        z = x
        for y in range(x + 1, got):
            if key[y] < key[z]:
                z = y
        job[x], job[z] = job[z], job[x]
        key[x], key[z] = key[z], key[x]


@helper(inline=True)
def take_out(search: Reinsertion, got: int) -> None:
    """Free the processors of the chosen jobs."""
    now = search.now
    for x in range(got):
        j = search.moved.job[x]
        book(search.profile, now.start[j], now.end[j], -search.jobs.procs[now.row[j]])


@helper(inline=True)
def put_in(search: Reinsertion, got: int, share: float) -> bool:
    """Place the chosen jobs anew; returns whether all are where they were."""
    jobs, now, profile, moved = search.jobs, search.now, search.profile, search.moved
    same = True
    for x in range(got):
        j = moved.job[x]
        moved.row[x], moved.start[x], moved.end[x] = now.row[j], now.start[j], now.end[j]
        a, s = place(jobs, search.costs, j, share, search.goal.cap, profile)
        now.row[j], now.start[j], now.end[j] = a, s, s + jobs.times[a]
        same = same and s == moved.start[x] and a == moved.row[x]
        book(profile, s, now.end[j], jobs.procs[a])
    return same


@helper(inline=True)
def put_back(search: Reinsertion, got: int) -> None:
    """Place the chosen jobs as they were."""
    now, moved = search.now, search.moved
    for x in range(got):
        j = moved.job[x]
        now.row[j], now.start[j], now.end[j] = moved.row[x], moved.start[x], moved.end[x]
        book(search.profile, now.start[j], now.end[j], search.jobs.procs[now.row[j]])


@helper(inline=True)
def propose(search: Reinsertion, state: Annealing) -> tuple[bool, int]:
    """Take a few jobs out and put them back; the move is how many."""
    random = state.random
    got = choose(search, state.value[MADE], random)
    state.count[TAKEN] += got
    rule, u = draw(random), draw(random)
    share = 1.0 if u < 0.5 else 0.6 if u < 0.8 else 0.3
    arrange(search, got, rule, random)
    take_out(search, got)
    return not put_in(search, got, share), got


@helper(inline=True)
def undo(search: Reinsertion, got: int) -> None:
    """Put the jobs back where they were."""
    take_out(search, got)
    put_back(search, got)


@helper(inline=True)
def evaluate(search: Reinsertion, state: Annealing) -> float:
    """The objective of the schedule at hand."""
    value, state.value[TRIED] = judge(search.jobs.weight, search.now.end, search.goal)
    return value


@helper(inline=True)
def accept(search: Reinsertion, state: Annealing, value: float) -> float:
    """Remember the makespan."""
    state.value[MADE] = state.value[TRIED]
    return value


@helper(inline=True)
def keep(search: Reinsertion) -> None:
    """Copy the schedule at hand: it is the best so far."""
    now, best = search.now, search.best
    for j in range(now.row.size):
        best.row[j], best.start[j], best.end[j] = now.row[j], now.start[j], now.end[j]


reinsert = annealer(
    __name__, propose=propose, evaluate=evaluate, accept=accept, keep=keep, undo=undo
)
