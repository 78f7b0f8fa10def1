"""Simulated annealing: one loop for every search, its acceptance and its cooling; compiled.

A search gives five functions: `propose`, `evaluate`, `accept`, `keep` and `undo`, which stand below
with what each of them does. `annealer` compiles the loop with them. What they read and write is one
named tuple of records, the *search*, and the `Annealing`, whose entries behind those of the loop
are the search's own.

Notes
-----
A move stays if its value is at most the current one + temperature * -ln(u) (Metropolis). u is drawn
before the evaluation, so that this may end as soon as it passes the limit. The temperature falls
geometrically, with every trial. `Annealing` keeps all between calls: the next one goes on with the
temperature and the draws.
"""

from __future__ import annotations

from functools import partial
from math import inf, log
from typing import Any, NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import helper, specialized
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.xorshift import State, draw, seeded

CURRENT, BEST, WARMTH, COOLING, LIMIT = 0, 1, 2, 3, 4
TRIALS, IMPROVED, ACCEPTED = 0, 1, 2
ROUNDING = 1e-12
"""Share by which an answer is better, at least."""


@record
class Annealing(NamedTuple):
    """State of an annealing between calls."""

    value: Floats  # 8: CURRENT, BEST, WARMTH, COOLING (a trial), LIMIT; then the search's own
    count: Any  # 8: TRIALS, IMPROVED (the trial), ACCEPTED; then the search's own
    random: State


def make_annealing(seed: int) -> Annealing:
    """The state of an annealing that has not begun, and accepts everything."""
    value = np.zeros(8)
    value[[CURRENT, BEST, COOLING, LIMIT]] = inf, inf, 1.0, inf
    return Annealing(value, np.zeros(8, dtype=np.int64), seeded(seed))


def warm_up(state: Annealing, hot: float, cold: float, value: float, trials: int) -> None:
    """Begin a cycle of so many trials; the temperatures at both ends are shares of a value."""
    state.value[WARMTH], state.value[COOLING] = hot * value, (cold / hot) ** (1.0 / trials)


@helper(inline=True)
def cooled(state: Annealing) -> float:
    """The temperature of the next trial."""
    heat = state.value[WARMTH]
    state.count[TRIALS] += 1
    state.value[WARMTH] *= state.value[COOLING]
    return float(heat)


@helper(inline=True)
def draw_limit(state: Annealing, heat: float) -> None:
    """Draw the largest value that is gone on from: Metropolis' rule."""
    worse = -heat * log(max(draw(state.random), 1e-300))
    state.value[LIMIT] = state.value[CURRENT] + worse


@helper(inline=True)
def shift(order: Ints, source: int, target: int) -> None:
    """Move an entry to another place; those between give way."""
    entry = order[source]
    step = 1 if target > source else -1
    while source != target:
        order[source] = order[source + step]
        source += step
    order[source] = entry


def propose(search: Any, state: Annealing) -> tuple[bool, Any]:
    """Change something a little; whether that changed anything, and what `undo` needs to know."""
    raise NotImplementedError


def evaluate(search: Any, state: Annealing) -> float:
    """The value of what is at hand, or any other above LIMIT where it is above that."""
    raise NotImplementedError


def accept(search: Any, state: Annealing, value: float) -> float:
    """Go on from what was just evaluated; what it is worth as an answer."""
    raise NotImplementedError


def keep(search: Any) -> None:
    """Copy what is at hand: it is the best answer so far."""
    raise NotImplementedError


def undo(search: Any, move: Any) -> None:
    """Take back what `propose` did."""
    raise NotImplementedError


def anneal(search: Any, state: Annealing, trials: int, first: bool) -> float:
    """So many moves; the best answer is what `keep` copied last. Returns what was evaluated last.

    With `first`, what is at hand is evaluated before the first move, and is accepted up to LIMIT.
    """
    value = inf
    for trial in range(-1 if first else 0, trials):
        if trial >= 0:
            heat = cooled(state)
            changed, move = propose(search, state)
            if not changed:
                continue
            draw_limit(state, heat)
        value = evaluate(search, state)
        if value <= state.value[LIMIT]:
            state.value[CURRENT] = value
            if trial >= 0:
                state.count[ACCEPTED] += 1
            reached = accept(search, state, value)
            if reached < state.value[BEST] * (1.0 - ROUNDING):
                state.value[BEST] = reached
                state.count[IMPROVED] = state.count[TRIALS]
                keep(search)
        elif trial >= 0:
            undo(search, move)
    return value


annealer = partial(specialized, anneal)
"""Compiles the loop for the search of a module, with its five functions."""
