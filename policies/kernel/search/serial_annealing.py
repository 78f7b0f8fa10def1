"""Simulated annealing over what `serial_sgs` reads.

Notes
-----
A move changes the place of an item in the order, its cluster, its processes or how it is split, or
it hands processes of one item to another that runs at the same time; half of them concern an item
of a chain that ends last. The energy is the makespan + a small share of the mean end, or the
weighted completion.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from coalloc.policies.kernel.annealing_loop import ACCEPTED, Annealing, annealer, shift
from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.search.serial_sgs import schedule
from coalloc.policies.kernel.search.serial_state import (
    ANY,
    CHAIN,
    IDLE,
    MADE,
    SPLIT,
    SUM,
    Items,
    Out,
    SerialGenes,
    SerialState,
)
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.kernel.xorshift import draw

REFRESH = 8
"""Accepted moves after which the chain that ends last is sought anew."""
Move = tuple[int, int, int, int, float, int]


class SerialSearch(NamedTuple):
    """Genes that moves change, and the builder that reads them; with places in desk.place."""

    builder: SerialState
    genes: SerialGenes
    best: SerialGenes
    objective: int


@helper(inline=True)
def meets(out: Out, one: int, other: int) -> bool:
    """Whether two items share a cluster."""
    shared = False
    for k in range(out.parts.shape[1]):
        shared |= out.parts[one, k] > 0 and out.parts[other, k] > 0
    return shared


@helper()
def find_chain(builder: SerialState, genes: SerialGenes) -> int:
    """Write into desk.chain a chain of items, each waiting for the next, from the last end on."""
    problem, desk, out = builder.problem, builder.desk, builder.out
    order, length = genes.order, 0
    item = order[0]
    for x in range(order.size):
        if out.end[order[x]] > out.end[item]:
            item = order[x]
    while length < order.size:
        desk.chain[length] = item
        length += 1
        begun, found = out.start[item], -1
        for x in range(problem.parent_first[item], problem.parent_first[item + 1]):
            parent = problem.parent[x]
            if desk.place[parent] >= 0 and (found < 0 or out.end[parent] > out.end[found]):
                found = parent
        if found < 0 or out.end[found] < begun - 1e-9 * (1.0 + abs(begun)):
            closest = found
            for x in range(order.size):
                other = order[x]
                if other != item and abs(out.end[other] - begun) <= 1e-9 * (1.0 + abs(begun)):
                    closest = other
                    if meets(out, other, item):
                        break
            found = closest
        if found < 0:
            break
        item = found
    return length


@helper(inline=True)
def move_to(order: Any, place: Any, source: int, target: int) -> None:
    """Move an entry to another place, and write down the new places."""
    shift(order, source, target)
    for x in range(min(source, target), max(source, target) + 1):
        place[order[x]] = x


@helper()
def new_place(builder: SerialState, genes: SerialGenes, random: Any, item: int) -> Any:
    """Another place in the order, behind the parents and before the children."""
    problem, desk = builder.problem, builder.desk
    a, b, size = 0, genes.order.size - 1, genes.order.size
    for x in range(problem.parent_first[item], problem.parent_first[item + 1]):
        a = max(a, desk.place[problem.parent[x]] + 1)
    for x in range(problem.child_first[item], problem.child_first[item + 1]):
        other = desk.place[problem.child[x]]
        if other >= 0:
            b = min(b, other - 1)
    if draw(random) < 0.5:
        reach = 2 + size // 10
        a, b = max(a, desk.place[item] - reach), min(b, desk.place[item] + reach)
    return a + min(int(draw(random) * (b - a + 1)), b - a) if b > a else desk.place[item]


@helper(inline=True)
def other_count(items: Items, random: Any, item: int, n: int, most: int) -> Any:
    """Another number of processes of at most `most`."""
    a, b = items.table_first[item], items.table_first[item + 1]
    if a < b:
        return items.table_procs[a + int(draw(random) * (b - a))]
    u, wanted = draw(random), n
    if u < 0.4:
        reach = 1 + n // 8
        wanted = n + int(draw(random) * (2 * reach + 1)) - reach
    elif u < 0.8:
        wanted = int(n * (0.5 + 1.5 * draw(random)) + 0.5)
    elif u < 0.9:
        wanted = items.low[item] + int(draw(random) * (most - items.low[item] + 1))
    else:
        wanted = most
    return max(items.low[item], min(wanted, most, items.high[item]))


@helper(inline=True)
def lay_open(genes: SerialGenes, item: int) -> None:
    """Let `parts` say where an item runs that has one home."""
    if genes.home[item] >= 0:
        for k in range(genes.parts.shape[1]):
            genes.parts[item, k] = 0
        genes.parts[item, genes.home[item]] = genes.procs[item]
        genes.home[item] = SPLIT


@helper(inline=True)
def join(genes: SerialGenes, item: int) -> None:
    """Count `parts`; an item on one cluster has a home there."""
    total, used, lone = 0, 0, -1
    for k in range(genes.parts.shape[1]):
        total += genes.parts[item, k]
        if genes.parts[item, k] > 0:
            used += 1
            lone = k
    genes.procs[item] = total
    if used == 1:
        genes.home[item] = lone


@helper()
def hand_over(builder: SerialState, genes: SerialGenes, random: Any, item: int) -> Any:
    """Give an item some processes that another has at the same time; the other, or -1."""
    items, out, order, chosen = builder.items, builder.out, genes.order, -1
    for _ in range(4):
        other = order[int(draw(random) * order.size)]
        beside = out.start[other] < out.end[item] and out.end[other] > out.start[item]
        if beside and other != item and genes.home[other] != ANY:
            chosen = other
            break
    fixed = items.table_first[item] < items.table_first[item + 1]
    if chosen < 0 or fixed or genes.home[item] == ANY:
        return -1
    if items.table_first[chosen] < items.table_first[chosen + 1]:
        return -1
    k = genes.home[chosen]
    if k < 0:
        k = int(draw(random) * genes.parts.shape[1])
    if items.splits[item] == 0 and genes.home[item] != k:
        return -1
    room = min(genes.procs[chosen] - items.low[chosen], items.high[item] - genes.procs[item])
    lay_open(genes, item)
    lay_open(genes, chosen)
    room = min(room, genes.parts[chosen, k])
    count = min(1 + int(draw(random) * room), room)
    if count > 0:
        genes.parts[item, k] += count
        genes.parts[chosen, k] -= count
    join(genes, item)
    join(genes, chosen)
    return chosen


@helper()
def change_split(builder: SerialState, genes: SerialGenes, random: Any, item: int) -> None:
    """Move processes of an item to, from or between clusters; join them if one is left."""
    site, items, group = builder.site, builder.items, builder.problem.item_group[item]
    clusters = site.rows.size
    lay_open(genes, item)
    source, target = int(draw(random) * clusters), int(draw(random) * clusters)
    parts, kind = genes.parts[item], draw(random)
    room = site.room[group, target] - parts[target]
    count = 0
    if items.table_first[item] < items.table_first[item + 1] or kind < 0.5:
        count = min(int(draw(random) * (parts[source] + 1)), room)
        if kind < 0.1:
            count = min(parts[source], room)
        if source != target:
            parts[source] -= count
            parts[target] += count
    elif kind < 0.8:
        count = min(int(draw(random) * (room + 1)), items.high[item] - genes.procs[item])
        parts[target] += max(count, 0)
    elif parts[source] > 0:
        count = min(int(draw(random) * (parts[source] + 1)), genes.procs[item] - items.low[item])
        parts[source] -= max(count, 0)
    join(genes, item)


@helper()
def change(builder: SerialState, genes: SerialGenes, random: Any, item: int, kind: float) -> None:
    """Change where an item runs, or on how many processes."""
    problem, site, items = builder.problem, builder.site, builder.items
    clusters, group = problem.link_gbps.size, problem.item_group[item]
    n, home = genes.procs[item], genes.home[item]
    if home == SPLIT or (kind > 0.88 and items.splits[item] > 0 and home >= 0):
        if kind < 0.7 or kind > 0.88:
            change_split(builder, genes, random, item)
            return
        best = 0
        for k in range(1, clusters):
            if genes.parts[item, k] > genes.parts[item, best]:
                best = k
        if items.table_first[item] == items.table_first[item + 1]:
            n = max(genes.parts[item, best], items.low[item])
        if site.room[group, best] >= n:
            genes.home[item], genes.procs[item] = best, n
        return
    if kind > 0.72:
        home = int(draw(random) * clusters)
        if kind < 0.75:
            home = ANY
        elif items.table_first[item] < items.table_first[item + 1]:
            if site.room[group, home] < n:
                return
        elif site.room[group, home] < items.low[item]:
            return
        genes.home[item] = home
        if home >= 0 and site.first[home + 1] > site.first[home] + 1:
            count = site.first[home + 1] - site.first[home]
            genes.low[item] = problem.class_power[site.first[home] + int(draw(random) * count)]
        else:
            genes.low[item] = 0.0
    most = items.high[item]
    if home >= 0:
        most = min(most, site.room[group, home])
    if kind < 0.84:
        n = other_count(items, random, item, n, most)
    genes.procs[item] = min(n, most)


@helper(inline=True)
def propose(search: SerialSearch, state: Annealing) -> tuple[bool, Move]:
    """Change one item's place or choices, or two items'.

    A move is the item, its place, processes, home and least power before, and who gave it
    processes, or -1. Its parts before are left in desk.saved. IDLE says whether nothing changed:
    such a move is rejected, since it may have written parts that are not in use.
    """
    builder, genes, desk = search.builder, search.genes, search.builder.desk
    random, size = state.random, genes.order.size
    item = genes.order[min(int(draw(random) * size), size - 1)]
    if state.count[CHAIN] > 0 and draw(random) < 0.5:
        item = desk.chain[int(draw(random) * state.count[CHAIN])]
    before, n = desk.place[item], genes.procs[item]
    home, low = genes.home[item], genes.low[item]
    for k in range(desk.saved.size):
        desk.saved[k] = genes.parts[item, k]
    u, other = draw(random), -1
    if u < 0.35 and size > 1:
        target = new_place(builder, genes, random, item)
        move_to(genes.order, desk.place, before, target)
    elif u < 0.5:
        other = hand_over(builder, genes, random, item)
    else:
        change(builder, genes, random, item, draw(random))
    state.count[IDLE] = (
        desk.place[item] == before
        and genes.procs[item] == n
        and genes.home[item] == home
        and genes.low[item] == low
        and home != SPLIT
    )
    return True, (item, before, n, home, low, other)


@helper(inline=True)
def undo(search: SerialSearch, move: Move) -> None:
    """Take back what `propose` did."""
    genes, desk = search.genes, search.builder.desk
    item, before, n, home, low, other = move
    clusters = genes.parts.shape[1]
    if desk.place[item] != before:
        move_to(genes.order, desk.place, desk.place[item], before)
    if other >= 0:  # it had what the item has more of now
        lay_open(genes, item)
        lay_open(genes, other)
        if home >= 0:
            for k in range(clusters):
                desk.saved[k] = 0
            desk.saved[home] = n
        for k in range(clusters):
            genes.parts[other, k] += genes.parts[item, k] - desk.saved[k]
        join(genes, other)
    genes.procs[item], genes.home[item], genes.low[item] = n, home, low
    for k in range(clusters):
        genes.parts[item, k] = desk.saved[k]


@helper(inline=True)
def evaluate(search: SerialSearch, state: Annealing) -> float:
    """Schedule everything; inf where that passes LIMIT, or the last move has changed nothing."""
    if state.count[IDLE] > 0:
        return inf
    return schedule(search.builder, search.genes, state, search.objective)


@helper(inline=True)
def accept(search: SerialSearch, state: Annealing, value: float) -> float:
    """Find the chain that ends last, now and then; the makespan or weighted completion."""
    genes, count = search.genes, state.count
    if genes.order.size > 0 and (count[CHAIN] == 0 or count[ACCEPTED] % REFRESH == 0):
        count[CHAIN] = find_chain(search.builder, genes)
    return state.value[MADE] if search.objective == MAKESPAN else state.value[SUM]


@helper(inline=True)
def keep(search: SerialSearch) -> None:
    """Copy all choices: they are the best so far."""
    genes, best = search.genes, search.best
    for x in range(genes.order.size):
        best.order[x] = genes.order[x]
    for y in range(genes.procs.size):
        best.procs[y], best.home[y] = genes.procs[y], genes.home[y]
        best.low[y] = genes.low[y]
        for k in range(genes.parts.shape[1]):
            best.parts[y, k] = genes.parts[y, k]


anneal = annealer(__name__, propose=propose, evaluate=evaluate, accept=accept, keep=keep, undo=undo)
