"""Simulated annealing over what `listing` reads.

Notes
-----
A move changes a choice of one item or its place in the order, the schedule is listed anew, and
stays if its value is at most the current one + temperature * -ln(u), u drawn before: so the listing
can end as soon as it passes that. A tenth of the moves take an item that ends last in the current
schedule. The temperature falls geometrically. `Anneal.state` keeps all
between calls: a search goes on where it was, and gives the same however it is cut into calls.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from coalloc.policies.kernel.acceptance import acceptable
from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.moves import shift
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.search.listing import listing
from coalloc.policies.kernel.search.listing_state import MADE, Desk, Genes, Rows
from coalloc.policies.kernel.state import MAKESPAN, Outcome, Problem
from coalloc.policies.kernel.xorshift import State, draw, pick

CURRENT, BEST, WARMTH, COOLING, LATEST = 0, 1, 2, 3, 4
TRIALS, PLACED, IMPROVED, ACCEPTED, LAST = 0, 1, 2, 3, 4
STAYED, SHIFTED, SWAPPED = 0, 1, 2


@record
class Anneal(NamedTuple):
    """State of a search between calls."""

    value: Floats  # CURRENT, BEST, WARMTH, COOLING, LATEST
    count: Any  # TRIALS, PLACED, IMPROVED (trial), ACCEPTED, LAST (item; -1 not known)
    random: State  # 1, uint64
    levels: Ints  # N x (2 + 2 C): how many levels an item may have, and which
    homes: Ints  # N x (3 + K): how many homes, and which
    modes: Ints  # N, how many
    sc: Floats  # S, values of sc
    loads: Ints  # N, whether sc matters


@helper(inline=True)
def last_item(order: Any, out: Outcome) -> int:
    """An item that ends last in a schedule that is listed to its end."""
    chosen = order[0]
    for x in range(order.size):
        if out.end[order[x]] > out.end[chosen]:
            chosen = order[x]
    return chosen


@helper(inline=True)
def place_of(order: Any, item: int) -> int:
    """Place of an item in the order."""
    x = 0
    while order[x] != item:
        x += 1
    return x


@helper(inline=True)
def copy_genes(source: Genes, target: Genes) -> None:
    """Copy all choices."""
    for x in range(source.order.size):
        target.order[x] = source.order[x]
    for item in range(source.mode.size):
        target.mode[item] = source.mode[item]
        target.level[item] = source.level[item]
        target.home[item] = source.home[item]
        target.block[item] = source.block[item]
        target.sc[item] = source.sc[item]


@helper(inline=True)
def propose(state: Anneal, genes: Genes) -> tuple[int, int, int, int, int, int, int, int, float]:
    """Change one item's choices or place; what `undo` takes back.

    That is how its place changed (STAYED, SHIFTED, SWAPPED), its places before and after, the item,
    and its choices before.
    """
    random, order = state.random, genes.order
    size = order.size
    kind = draw(random)
    x = pick(random, size)
    if draw(random) < 0.1 and state.count[LAST] >= 0:
        x = place_of(order, state.count[LAST])
    item = order[x]
    a, b, moved = x, x, STAYED
    level, home, block = genes.level[item], genes.home[item], genes.block[item]
    mode, sc = genes.mode[item], genes.sc[item]
    if kind < 0.12 and state.levels[item, 0] > 1:
        genes.level[item] = state.levels[item, 1 + pick(random, state.levels[item, 0])]
    elif kind < 0.22 and state.homes[item, 0] > 1:
        genes.home[item] = state.homes[item, 1 + pick(random, state.homes[item, 0])]
    elif kind < 0.30:
        genes.block[item] = 1 - block
    elif kind < 0.45 and state.modes[item] > 1:
        genes.mode[item] = pick(random, state.modes[item])
    elif kind < 0.52 and state.loads[item] > 0:
        genes.sc[item] = state.sc[pick(random, state.sc.size)]
    elif size > 1:
        b = pick(random, size - 1)
        if b >= a:
            b += 1
        if draw(random) < 0.5:
            reach = 1 + pick(random, 1 + size // 10)
            b = min(max(a + (reach if draw(random) < 0.5 else -reach), 0), size - 1)
        if draw(random) < 0.5:
            moved = SWAPPED
            order[a], order[b] = order[b], order[a]
        else:
            moved = SHIFTED
            shift(order, a, b)
    return moved, a, b, item, level, home, block, mode, sc


@helper(inline=True)
def undo(genes: Genes, move: Any) -> None:
    """Take back what `propose` did."""
    moved, a, b, item, level, home, block, mode, sc = move
    order = genes.order
    if moved == SHIFTED:
        shift(order, b, a)
    elif moved == SWAPPED:
        order[a], order[b] = order[b], order[a]
    genes.level[item], genes.home[item], genes.block[item] = level, home, block
    genes.mode[item], genes.sc[item] = mode, sc


@helper(inline=True)
def accept(
    state: Anneal, genes: Genes, best: Genes, desk: Desk, out: Outcome, objective: int, value: float
) -> None:
    """Go on from a schedule that was just listed; keep its choices if it is the best."""
    state.count[ACCEPTED] += 1
    state.value[CURRENT] = value
    state.count[LAST] = last_item(genes.order, out)
    if objective == MAKESPAN:
        value = desk.measure[MADE]
    if value < state.value[BEST] * (1.0 - 1e-12):
        state.value[BEST] = value
        state.count[IMPROVED] = state.count[TRIALS]
        copy_genes(genes, best)


@kernel
def anneal(
    problem: Problem,
    rows: Rows,
    genes: Genes,
    best: Genes,
    desk: Desk,
    out: Outcome,
    state: Anneal,
    objective: int,
    trials: int,
) -> float:
    """So many moves; the best choices are left in `best`.

    With 0 trials the choices are listed as they are, up to CURRENT and LATEST, and nothing else
    changes: a kernel of its own for that would compile `listing` once more.

    Returns
    -------
    float
        The energy of what was listed last; inf where that passed what it may be.
    """
    value = inf
    for _ in range(max(trials, 1)):
        cutoff, move = state.value[CURRENT], (STAYED, 0, 0, 0, 0, 0, 0, 0, 1.0)
        if trials > 0:
            state.count[TRIALS] += 1
            move = propose(state, genes)
            cutoff = acceptable(cutoff, state.value[WARMTH], state.random)
        value = listing(problem, rows, genes, desk, out, objective, cutoff, state.value[LATEST])
        if trials > 0:
            state.count[PLACED] += genes.order.size
            if value <= cutoff:
                accept(state, genes, best, desk, out, objective, value)
            else:
                undo(genes, move)
            state.value[WARMTH] *= state.value[COOLING]
    return value
