"""Sets of items that can run together: weights under which no such set weighs more than 1.

Such weights are a row like any other (see `coalloc.policies.bounds.rows`), made for the items at
hand: sum of weight * seconds bounds the makespan. The best ones are the dual of the program that
covers every item's run time by sets that can run at once, the configurations.

Notes
-----
What is tested of a set is less than what a plan must keep: the slots in all, the least loads on all
links together, and exclusion pair by pair. So the weights hold for every plan. Prices are sought
against a pool of configurations; the heaviest set under them, found by depth first search, joins
the pool and scales the prices to valid weights. Where that search does not end in its limit of
nodes, what is left of it gives a weight that no set passes.

References
----------
Gilmore, Gomory: A linear programming approach to the cutting-stock problem. Operations Research 9
(1961). Farley: A note on bounding a class of linear programming problems, including cutting stock
problems. Operations Research 38 (1990).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coalloc.policies.bounds.prices import Game
from coalloc.policies.bounds.supply import Flags, Floats, Ints

NODES = 4000
"""Of one search for the heaviest set."""
ENOUGH = 1e-3
"""The search for weights ends where they could be better by less than this share."""
GAME = 80
"""Rounds of the game against the pool between two searches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """Sets of n items that can run together."""

    seconds: Floats
    """Run time, positive."""
    need: Floats
    """What each takes of D things, as shares of all there is of it."""
    excluded: Flags


def best_weights(
    sets: Sets, first: list[Floats], rounds: int, known: float, stop: Callable[[], bool]
) -> tuple[float, Floats]:
    """Seek weights of the items with a large sum of weight times seconds; the sum, and the weights.

    No set that can run together weighs more than 1. The search starts from the weights in `first`,
    none of them all 0, looks for a heaviest set `rounds` times, and ends once no weights reach more
    than the seconds known.
    """
    size = sets.seconds.size
    pool = [np.array([j]) for j in range(size)]
    best, chosen, hope = 0.0, np.zeros(size), np.inf
    for number in range(rounds):
        price = first[number] if number < len(first) else np.zeros(0)
        if not price.size:
            price, hope = _against(pool, sets.seconds)
        if hope <= max(best, known) * (1.0 + ENOUGH) or (number and stop()):
            break
        members, most = heaviest(sets, price)
        value = float(price @ sets.seconds) / most
        if value > best:
            best, chosen = value, price / most
        pool.append(members)
    return best, chosen


def _against(pool: list[Ints], seconds: Floats) -> tuple[Floats, float]:
    """Prices, of sum 1 with the seconds, under which no set of the pool is heavy; and the value."""
    member = np.zeros((seconds.size, len(pool)))
    for c, members in enumerate(pool):
        member[members, c] = 1.0
    game = Game(-member / seconds[:, None], np.zeros(1, dtype=np.int64))
    for number in range(GAME):
        game.step(number)
    return game.average / seconds, float(1.0 / max(-game.upper, 1e-300))


def heaviest(sets: Sets, price: Floats, nodes: int = NODES) -> tuple[Ints, float]:
    """Return a heavy set that can run together, and a weight that none of them passes.

    Both agree where the search ends within its limit of nodes.
    """
    order = np.argsort(-price / np.maximum(sets.need[:, 0], 1e-12), kind="stable")
    order = order[price[order] > 0.0]
    allowed = ~sets.excluded[np.ix_(order, order)]
    search = _SetSearch(
        value=price[order].tolist(),
        need=[tuple(row) for row in sets.need[order].tolist()],
        beside=[sum(1 << int(j) for j in np.flatnonzero(row)) for row in allowed],
    )
    most = search.run(nodes)
    chosen = [j for j in range(order.size) if search.members >> j & 1]
    return order[chosen], most


@dataclass(slots=True)
class _SetSearch:
    """Depth first over items by falling weight per slot; sets are bit masks."""

    value: list[float]
    need: list[tuple[float, ...]]
    beside: list[int]
    best: float = 0.0
    members: int = 0

    def run(self, nodes: int) -> float:
        """Search; return what no set passes."""
        room = tuple(1.0 + 1e-9 for _ in self.need[0]) if self.need else ()
        stack = [((1 << len(self.value)) - 1, 0, 0.0, room, float("inf"))]
        while stack:
            if not nodes:
                return max(self.best, max(entry[-1] for entry in stack))
            nodes -= 1
            left, taken, weight, room, above = stack.pop()
            if weight > self.best:
                self.best, self.members = weight, taken
            if above <= self.best * (1.0 + 1e-12):
                continue
            left, pick, hope = self._look(left, room)
            hope += weight
            if pick < 0 or hope <= self.best * (1.0 + 1e-12):
                continue
            left &= ~(1 << pick)
            rest = tuple(a - b for a, b in zip(room, self.need[pick], strict=True))
            stack.append((left, taken, weight, room, hope))
            stack.append(
                (
                    left & self.beside[pick],
                    taken | 1 << pick,
                    weight + self.value[pick],
                    rest,
                    hope,
                )
            )
        return self.best

    def _look(self, left: int, room: tuple[float, ...]) -> tuple[int, int, float]:
        """Items that still fit, the first of them, and their largest weight by slots."""
        slots, hope, pick, scan = room[0], 0.0, -1, left
        while scan:
            bit = scan & -scan
            scan ^= bit
            j = bit.bit_length() - 1
            need = self.need[j]
            if any(a > b for a, b in zip(need, room, strict=True)):
                left ^= bit
                continue
            if pick < 0:
                pick = j
            if need[0] >= slots:
                hope += self.value[j] * (slots / need[0] if need[0] > 0.0 else 1.0)
                break
            slots -= need[0]
            hope += self.value[j]
        return left, pick, hope
