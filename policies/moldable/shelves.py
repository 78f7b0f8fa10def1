"""Shelves of doubling length, filled by a knapsack: the selection of `demt`.

Notes
-----
With C* the approximate makespan and t_min the shortest time of any job on any allotment,
K = floor(log2(C* / t_min)) and t_j = C* / 2**(K - j). Shelf j begins at t_j and is as long. It may
hold the jobs with p_i(k) <= t_j for some k, each on the smallest such k. Of these, the jobs with
p_i(1) <= t_j / 2 are put on stacks of length t_j, by falling weight and next fit; a stack takes one
processor and weighs the sum. A knapsack selects jobs and stacks of the largest weight on m
processors. Then stacks are jobs again, sorted by Smith's ratio w / (k p).

The knapsack costs O(m) for each entry of each shelf, the greedy choice by w / k a sort.

Deviations
----------
- After shelf K it goes on doubling until every job is in a shelf; the published loop may leave
  some out.
- Processors over time: m of shelf j is what stays there from t_j to t_{j+1}, and a job is not
  offered to shelves that begin before its release. Without running jobs, reservations and releases
  this is the published rule.

References
----------
Dutot, Eyraud-Dubois, Mounie, Trystram, "Bi-criteria algorithm for scheduling jobs on cluster
platforms", SPAA 2004, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import Any

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.kernel.pool.shelf_packing import knapsack, stack_up, take_in_turn
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.queue import MoldableQueue

CELLS = 10_000_000
"""Entries times processors up to which ``auto`` takes the knapsack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Jobs that are to start together."""

    length: float
    """Seconds; t_j, also when it begins."""
    jobs: Ints
    """Jobs in their local order, and their allotments, indices into the queue's `procs`."""
    rows: Ints
    stacked: int
    """How many of the jobs came in stacks of two or more."""


def shelf_length(queue: MoldableQueue, guess: float) -> float:
    """t_0 = C* / 2**K, seconds: the shortest useful shelf."""
    shortest = max(float(queue.times.min(initial=np.inf)), SHORTEST)
    if guess <= shortest:
        return shortest
    return float(guess / 2.0 ** floor(log2(guess / shortest)))


def fill_shelves(queue: MoldableQueue, guess: float, selection: str = "auto") -> list[Shelf]:
    """Put every job in a shelf; the shelves that are not empty, by length.

    The guess is the approximate makespan C*, seconds; `select` tells the selections.
    """
    left = np.argsort(-queue.weight, kind="stable")
    length, shelves = shelf_length(queue, guess), list[Shelf]()
    while left.size:
        rows = queue.fitting(left, length)
        room = _room(queue, length)
        is_offered = (rows >= 0) & (queue.release[left] <= length)
        is_offered[is_offered] = queue.procs[rows[is_offered]] <= room
        if is_offered.any():
            jobs, rows = left[is_offered], rows[is_offered]
            entry, count = _entries(queue, jobs, length)
            weight = np.zeros(count)
            np.add.at(weight, entry, queue.weight[jobs])
            size = np.ones(count, dtype=np.int64)
            size[entry] = queue.procs[rows]
            chosen = select(weight, size, room, selection)[entry]
            shelves.append(_shelf(queue, length, jobs[chosen], rows[chosen], entry[chosen]))
            is_offered[is_offered] = chosen
            left = left[~is_offered]
        length *= 2.0
    return shelves


def _room(queue: MoldableQueue, begin: float) -> int:
    """Processors that are there throughout the shelf from `begin` to twice that."""
    a = int(np.searchsorted(queue.starts, begin, side="right")) - 1
    b = int(np.searchsorted(queue.starts, 2.0 * begin, side="left"))
    return int(queue.capacity[a : max(b, a + 1)].min())


def _entries(queue: MoldableQueue, jobs: Ints, length: float) -> tuple[Ints, int]:
    """Stack, or job alone, with which each job is selected; and how many there are."""
    smallest = queue.first[jobs]
    seconds = queue.times[smallest]
    is_small = (queue.procs[smallest] == 1) & (seconds <= length / 2.0)
    entry = np.empty(jobs.size, dtype=np.int64)
    return entry, int(stack_up(seconds, is_small, length, entry))


def select(weight: Floats, size: Ints, room: int, selection: str) -> Flags:
    """Choose entries of much weight on so many processors; sizes are 1..room.

    By the selection *knapsack* the most weight; by *greedy* whatever still fits by falling weight /
    size; *auto* is the knapsack where it is small.
    """
    if int(size.sum()) <= room:
        return np.ones(size.size, dtype=np.bool_)
    chosen = np.zeros(size.size, dtype=np.bool_)
    if selection == "greedy" or (selection == "auto" and size.size * room > CELLS):
        take_in_turn(np.argsort(-weight / size, kind="stable"), size, room, chosen)
        return chosen
    takes = np.empty((size.size, room + 1), dtype=np.bool_)
    knapsack(weight, size, room, np.empty((2, room + 1)), takes, chosen)
    return chosen


def _shelf(queue: MoldableQueue, length: float, jobs: Ints, rows: Ints, entry: Ints) -> Shelf:
    work: Any = np.maximum(queue.procs[rows] * queue.times[rows], SHORTEST)
    order = np.argsort(-queue.weight[jobs] / work, kind="stable")
    _, place, members = np.unique(entry, return_inverse=True, return_counts=True)
    return Shelf(
        length=length,
        jobs=jobs[order],
        rows=rows[order],
        stacked=int((members[place] > 1).sum()),
    )
