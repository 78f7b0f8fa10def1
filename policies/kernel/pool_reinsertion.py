"""Jobs taken out of a schedule, and put elsewhere: compiled.

A few jobs that run near each other are taken out and put back in another order, again and again,
accepting what is better, or worse by little (annealing).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coalloc.policies.kernel.acceptance import accepts, draw
from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.pool_insertion import Placed, place
from coalloc.policies.kernel.pool_profile import book

MOST = 24
"""Jobs that are taken out at once, at most."""
LATE = 2.0
"""Weight of a makespan's relative excess, in shares of the weighted completion."""


class Goal(NamedTuple):
    """What is minimised."""

    cap: float  # s: what the makespan should not pass
    scale: float  # what passing it is measured in


class Moved(NamedTuple):
    """Jobs that are taken out, and how they were placed; `MOST` of each."""

    job: Any
    key: Any  # what their order is by
    row: Any
    start: Any
    end: Any

    @staticmethod
    def empty() -> Moved:
        """Working memory."""
        whole_numbers, floats = np.zeros((2, MOST), dtype=np.int64), np.zeros((3, MOST))
        return Moved(whole_numbers[0], floats[0], whole_numbers[1], floats[1], floats[2])


@helper(inline=True)
def judge(weight: Any, end: Any, goal: Any) -> Any:
    """What is minimised, weighted completion and delays; and the makespan."""
    cap = goal.cap
    makespan, total, late = 0.0, 0.0, 0.0
    for i in range(end.size):
        makespan = max(makespan, end[i])
        total += weight[i] * end[i]
        late += max(end[i] - cap, 0.0)
    delay = LATE * max(makespan / cap - 1.0, 0.0) + 2.0 * late / (cap * end.size)
    return total + goal.scale * delay, makespan


@helper(inline=True)
def choose(now: Any, cap: Any, makespan: Any, many: Any, state: Any, taken: Any) -> Any:
    """Pick jobs that run near each other, the first at random, or late; returns how many."""
    start, end = now.start, now.end
    n = start.size
    seed = min(int(draw(state) * n), n - 1)
    if makespan > cap and draw(state) < 0.4:
        for x in range(n):
            j = (seed + x) % n
            if end[j] > cap:
                seed = j
                break
    wanted = 2 + int(draw(state) * draw(state) * (many - 1))
    at = start[seed] + draw(state) * (min(end[seed], cap) - start[seed])
    reach = 0.2 * cap * draw(state)
    taken[0], got = seed, 1
    for _ in range(8 * wanted):
        j = min(int(draw(state) * n), n - 1)
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
def arrange(jobs: Any, row: Any, got: Any, rule: Any, state: Any, moved: Any) -> None:
    """Sort the chosen jobs: at random, by work, or by Smith's ratio, blurred."""
    job, key = moved.job, moved.key
    for x in range(got):
        j = job[x]
        u = draw(state)
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
def take_out(procs: Any, got: Any, now: Any, profile: Any, job: Any) -> None:
    """Free the processors of the chosen jobs."""
    for x in range(got):
        j = job[x]
        book(profile, now.start[j], now.end[j], -procs[now.row[j]])


@helper(inline=True)
def put_in(
    jobs: Any, costs: Any, got: Any, share: Any, cap: Any, now: Any, profile: Any, moved: Any
) -> Any:
    """Place the chosen jobs anew; returns whether all are where they were."""
    same = True
    for x in range(got):
        j = moved.job[x]
        moved.row[x], moved.start[x], moved.end[x] = now.row[j], now.start[j], now.end[j]
        a, s = place(jobs, costs, j, share, cap, profile)
        now.row[j], now.start[j], now.end[j] = a, s, s + jobs.times[a]
        same = same and s == moved.start[x] and a == moved.row[x]
        book(profile, s, now.end[j], jobs.procs[a])
    return same


@helper(inline=True)
def put_back(procs: Any, got: Any, now: Any, profile: Any, moved: Any) -> None:
    """Place the chosen jobs as they were."""
    for x in range(got):
        j = moved.job[x]
        now.row[j], now.start[j], now.end[j] = moved.row[x], moved.start[x], moved.end[x]
        book(profile, now.start[j], now.end[j], procs[now.row[j]])


@helper(inline=True)
def keep(now: Any, best: Any) -> None:
    """Copy the schedule at hand."""
    for j in range(now.row.size):
        best.row[j], best.start[j], best.end[j] = now.row[j], now.start[j], now.end[j]


@kernel
def improve(
    jobs: Any,
    costs: Any,
    goal: Any,
    cooling: Any,
    many: Any,
    state: Any,
    profile: Any,
    moved: Any,
    now: Any,
    best: Any,
) -> Any:
    """Take a few jobs out and put them back, so many times; returns the placements tried.

    Parameters
    ----------
    jobs, costs, goal, cooling, profile : Jobs, Costs, Goal, Cooling and Profile
    many : int
        Jobs at once, at most.
    state : array of int, 1
        Of the random numbers; not 0.
    moved : Moved
        Working memory.
    now, best : Placed
        The schedule in the profile, the last accepted on return; the best schedule.
    """
    current, makespan = judge(jobs.weight, now.end, goal)
    least = current
    keep(now, best)
    work = 0
    for trial in range(cooling.trials):
        got = choose(now, goal.cap, makespan, many, state, moved.job)
        work += got
        rule, u = draw(state), draw(state)
        share = 1.0 if u < 0.5 else 0.6 if u < 0.8 else 0.3
        arrange(jobs, now.row, got, rule, state, moved)
        take_out(jobs.procs, got, now, profile, moved.job)
        if put_in(jobs, costs, got, share, goal.cap, now, profile, moved):
            continue
        value, longest = judge(jobs.weight, now.end, goal)
        if accepts(cooling, trial, current, value, state):
            current, makespan = value, longest
            if value < least:
                least = value
                keep(now, best)
        else:
            take_out(jobs.procs, got, now, profile, moved.job)
            put_back(jobs.procs, got, now, profile, moved)
    return work


__all__ = ["MOST", "Goal", "Moved", "Placed", "improve"]
