"""Simulated annealing over what `listing` reads.

Notes
-----
A move changes a choice of one item or its place in the order, and the schedule is listed anew: up
to the limit. A tenth of the moves take an item that ends last in the current schedule. A search
gives the same however it is cut into calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coalloc.policies.kernel.annealing_loop import LIMIT, Annealing, annealer, shift
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.search.listing import listing
from coalloc.policies.kernel.search.listing_state import MADE, ListingGenes, ListingState
from coalloc.policies.kernel.state import MAKESPAN, Outcome
from coalloc.policies.kernel.xorshift import draw, pick

LATEST, LAST = 5, 3
"""Of an `Annealing`: what no end may pass, s; and the item that ends last, -1 is not known."""
STAYED, SHIFTED, SWAPPED = 0, 1, 2
Move = tuple[int, int, int, int, int, int, int, int, float]


@record
class Domains(NamedTuple):
    """Values that the choices of each item may have."""

    levels: Ints  # N x (2 + 2 C): how many levels an item may have, and which
    homes: Ints  # N x (3 + K): how many homes, and which
    modes: Ints  # N, how many
    sc: Floats  # S, values of sc
    loads: Ints  # N, whether sc matters


class ListingSearch(NamedTuple):
    """A listing whose genes the moves change."""

    listing: ListingState
    best: ListingGenes
    domains: Domains
    objective: int


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
def copy_genes(source: ListingGenes, target: ListingGenes) -> None:
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
def propose(search: ListingSearch, state: Annealing) -> tuple[bool, Move]:
    """Change one item's choices or place.

    A move is how its place changed (STAYED, SHIFTED, SWAPPED), its places before and after, the
    item, and its choices before.
    """
    domains, genes, random = search.domains, search.listing.genes, state.random
    order, size = genes.order, genes.order.size
    kind = draw(random)
    x = pick(random, size)
    if draw(random) < 0.1 and state.count[LAST] >= 0:
        x = place_of(order, state.count[LAST])
    item = order[x]
    a, b, moved = x, x, STAYED
    level, home, block = genes.level[item], genes.home[item], genes.block[item]
    mode, sc = genes.mode[item], genes.sc[item]
    if kind < 0.12 and domains.levels[item, 0] > 1:
        genes.level[item] = domains.levels[item, 1 + pick(random, domains.levels[item, 0])]
    elif kind < 0.22 and domains.homes[item, 0] > 1:
        genes.home[item] = domains.homes[item, 1 + pick(random, domains.homes[item, 0])]
    elif kind < 0.30:
        genes.block[item] = 1 - block
    elif kind < 0.45 and domains.modes[item] > 1:
        genes.mode[item] = pick(random, domains.modes[item])
    elif kind < 0.52 and domains.loads[item] > 0:
        genes.sc[item] = domains.sc[pick(random, domains.sc.size)]
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
    return True, (moved, a, b, item, level, home, block, mode, sc)


@helper(inline=True)
def undo(search: ListingSearch, move: Move) -> None:
    """Take back what `propose` did."""
    moved, a, b, item, level, home, block, mode, sc = move
    genes, order = search.listing.genes, search.listing.genes.order
    if moved == SHIFTED:
        shift(order, b, a)
    elif moved == SWAPPED:
        order[a], order[b] = order[b], order[a]
    genes.level[item], genes.home[item], genes.block[item] = level, home, block
    genes.mode[item], genes.sc[item] = mode, sc


@helper(inline=True)
def evaluate(search: ListingSearch, state: Annealing) -> float:
    """List everything by these choices; inf where that passes LIMIT or LATEST."""
    return listing(search.listing, search.objective, state.value[LIMIT], state.value[LATEST])


@helper(inline=True)
def accept(search: ListingSearch, state: Annealing, value: float) -> float:
    """Remember what ends last in what was just listed; the makespan or weighted completion."""
    state.count[LAST] = last_item(search.listing.genes.order, search.listing.out)
    return search.listing.desk.measure[MADE] if search.objective == MAKESPAN else value


@helper(inline=True)
def keep(search: ListingSearch) -> None:
    """Copy the choices: they are the best so far."""
    copy_genes(search.listing.genes, search.best)


anneal = annealer(__name__, propose=propose, evaluate=evaluate, accept=accept, keep=keep, undo=undo)
