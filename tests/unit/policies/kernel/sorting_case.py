"""A small search for the loop of annealing: an order of a few numbers that should be sorted."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.annealing_loop import LIMIT, Annealing, annealer
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.record import Ints, record
from coalloc.policies.kernel.xorshift import pick

EVALUATED, ENDED = 3, 4
"""Of an `Annealing`: evaluations, and those that ended early."""
SIZE = 8


@record
class Numbers(NamedTuple):
    """An order, and the best one."""

    order: Ints
    best: Ints


class Sorting(NamedTuple):
    """Search for a sorted order."""

    numbers: Numbers
    scale: int


@helper(inline=True)
def propose(search: Sorting, state: Annealing) -> tuple[bool, tuple[int, int]]:
    """Swap two places, or one with itself."""
    order = search.numbers.order
    x, y = pick(state.random, order.size), pick(state.random, order.size)
    order[x], order[y] = order[y], order[x]
    return x != y, (x, y)


@helper(inline=True)
def undo(search: Sorting, move: tuple[int, int]) -> None:
    """Swap them once more."""
    x, y = move
    order = search.numbers.order
    order[x], order[y] = order[y], order[x]


@helper(inline=True)
def evaluate(search: Sorting, state: Annealing) -> float:
    """Sum of the distances; inf above LIMIT."""
    state.count[EVALUATED] += 1
    total = 0.0
    for x in range(search.numbers.order.size):
        total += search.scale * abs(search.numbers.order[x] - x)
        if total > state.value[LIMIT]:
            state.count[ENDED] += 1
            return inf
    return total


@helper(inline=True)
def accept(search: Sorting, state: Annealing, value: float) -> float:
    """Answers are worth their values."""
    return value


@helper(inline=True)
def keep(search: Sorting) -> None:
    """Copy the order."""
    for x in range(search.numbers.order.size):
        search.numbers.best[x] = search.numbers.order[x]


anneal = annealer(__name__, propose=propose, evaluate=evaluate, accept=accept, keep=keep, undo=undo)


def reversed_numbers() -> Sorting:
    return Sorting(Numbers(np.arange(SIZE)[::-1].copy(), np.zeros(SIZE, dtype=np.int64)), 1)
