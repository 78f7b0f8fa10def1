"""Items that cannot run at the same time, in pairs and in sets.

Two items exclude each other if their processes are more than the slots of all that either may use,
or if every pair of their splits overdraws a slot count of a cluster or a link. A clique of them
runs one after the other.

Of any set that can run together, weights of the items sum to 1 at most (`best_weights`). Such
weights are a row like any other (see `coalloc.policies.bounds.rows`), made for the items at hand:
the sum of weight * seconds bounds the makespan. The best ones are the dual of the program that
covers every item's run time by sets that can run at once, the configurations.

Notes
-----
`links_exclude` looks for a pair of splits cluster by cluster: how many processes of one item can
be placed at most if the other has placed so many. The other's counts are cut into runs; a run
counts its largest number of processes and costs its least slots and its least load, so that a pair
which this rules out is truly impossible. With runs of one process it is exact. What is left of a
link admits 0..w or n - w..n processes; the upper part stands on one cluster at most.

What is tested of a set is less than what a plan must keep: the slots in all, the least loads on all
links together, and exclusion pair by pair. So the weights hold for every plan. Prices are sought
by a linear program; the heaviest set under them, found by depth first search, becomes a cut of it
and scales the prices to valid weights. Where that search does not end in its limit of
nodes, what is left of it gives a weight that no set passes.

Where every item stays whole on one of several clusters, an item of v has the weight v / seconds on
each, and v are sought by the heaviest sets of widths on each of them, knapsacks. Shares of an item
on several clusters cannot be told from the whole item on one.

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

from coalloc.policies.bounds.columns import low_sides
from coalloc.policies.bounds.lp import LinearProgram
from coalloc.policies.bounds.supply import Flags, Floats, Ints


def heaviest_clique(excluded: Flags, weight: Floats, seeds: int) -> Ints:
    """Seek a set of pairwise excluded items of large weight: greedy from several first items.

    `excluded` (N x N): symmetric.
    """
    best: list[int] = []
    most = 0.0
    order = np.argsort(-weight, kind="stable")
    reach = excluded @ weight + weight
    for seed in np.argsort(-reach, kind="stable")[:seeds]:
        chosen = [int(seed)]
        open_ = excluded[seed] & (weight > 0.0)
        while open_.any():
            # the item that leaves most weight to choose from, itself included
            rest = np.flatnonzero(open_)
            if rest.size > 64:
                n = int(order[open_[order]][0])
            else:
                n = int(rest[(excluded[np.ix_(rest, rest)] @ weight[rest] + weight[rest]).argmax()])
            chosen.append(n)
            open_ &= excluded[n]
        total = float(weight[chosen].sum())
        if total > most:
            best, most = chosen, total
    return np.array(sorted(best), dtype=np.int64)


def links_exclude(
    procs: Ints,
    gbps: Floats,
    room: Ints,
    links: Floats,
    slots: Ints,
    pairs: Ints,
    runs: int,
    stop: Callable[[], bool],
) -> Flags:
    """Whether every way to place a pair overdraws something; False where that is not sure.

    `room` (N x K): processes of an item that a cluster takes.
    `links`, `slots`: capacity of an empty cluster.
    `runs`: runs into which the counts of the second item of a pair are cut, per cluster.
    """
    out = np.zeros(len(pairs), dtype=np.bool_)
    chunk = max(1, 200_000 // max(runs * runs * len(slots), 1))
    for at in range(0, len(pairs), chunk):
        if stop():
            break
        part = pairs[at : at + chunk]
        out[at : at + chunk] = _exclude(procs, gbps, room, links, slots, part, runs)
    return out


def _exclude(
    procs: Ints, gbps: Floats, room: Ints, links: Floats, slots: Ints, pairs: Ints, runs: int
) -> Flags:
    i, j = pairs[:, 0], pairs[:, 1]
    n, m = procs[i], procs[j]
    step = np.maximum(-(-np.minimum(m, slots.max()) // runs), 1)  # Q
    target = -(-m // step)  # runs that hold all processes of j
    states = int(target.max()) + 1
    # most processes of i, with nothing or one cluster above the half, by runs of j so far
    reached = np.full((2, pairs.shape[0], states), -1.0)
    reached[0, :, 0] = 0.0
    for k in range(slots.size):
        following = np.full_like(reached, -1.0)
        for run in range(int(target.max()) + 1):
            least = np.where(run > 0, (run - 1) * step + 1, 0)
            last = np.minimum(run * step, np.minimum(m, room[j, k]))
            possible = (least <= last) & (least <= slots[k])
            if not possible.any():
                break
            load = _least_load(m, gbps[j], least, np.minimum(last, slots[k]))
            small, large = _beside(n, gbps[i], room[i, k], slots[k] - least, links[k] - load)
            if run:
                possible &= links[k] * (1.0 + 1e-9) - load >= 0.0
            for lead in (0, 1):
                for gain, upto in ((small, lead), (large, lead + 1)):
                    if upto > 1:
                        continue
                    grown = np.where(
                        possible[:, None] & (gain >= 0)[:, None] & (reached[lead] >= 0.0),
                        reached[lead] + gain[:, None],
                        -1.0,
                    )[:, : states - run]
                    np.maximum(following[upto, :, run:], grown, out=following[upto, :, run:])
        reached = following
    ends = np.take_along_axis(
        np.maximum.accumulate(reached.max(axis=0)[:, ::-1], axis=1)[:, ::-1],
        target[:, None],
        axis=1,
    )[:, 0]
    return np.asarray(ends < n)


def _least_load(m: Ints, gbps: Floats, least: Ints, last: Ints) -> Floats:
    """Smallest load of least..last of m processes: concave, so at an end."""
    over = np.maximum(m - 1, 1)
    ends = [gbps * t * (m - t) / over for t in (least, np.maximum(last, least))]
    return np.asarray(np.minimum(*ends))


def _beside(n: Ints, gbps: Floats, room: Ints, slots: Ints, link: Floats) -> tuple[Ints, Ints]:
    """Most of n processes on one cluster, on the low side and above it (-1: none)."""
    cap = np.minimum(room, slots)
    low = low_sides(n, gbps, np.maximum(link, 0.0) * (1.0 + 1e-9))
    small = np.minimum(low, cap)
    large = np.where(np.minimum(cap, n) >= n - low, np.minimum(cap, n), -1)
    return np.where(cap >= 0, small, -1), large


NODES = 4000
"""Of one search for the heaviest set."""
ENOUGH = 1e-4
"""The search for weights ends where they could be better by less than this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """Sets of n items that can run together."""

    need: Floats
    """Shares of all there is of D things, that each item takes."""
    excluded: Flags


def best_weights(
    seconds: Floats,
    heaviest_set: Callable[[int, Floats], tuple[Ints, float]],
    first: list[Floats],
    rounds: int,
    known: float,
    stop: Callable[[], bool],
) -> tuple[float, Floats]:
    """Seek v of the N items with a large sum, by the sets that can run together on K places.

    Item j weighs v_j / `seconds` (K x N; infinite where it cannot run) on a place. Of weights
    there, `heaviest_set` gives a heavy set, and what no set passes; this comes to 1 over all places
    for the v that are returned behind their sum. The search starts from the v in `first`, none of
    them all 0, looks for heavy sets `rounds` times, and ends once no v reach more than the seconds
    known.
    """
    (count, size), least = seconds.shape, seconds.min(axis=0)
    program = LinearProgram(np.append(-least, np.zeros(count)), np.zeros(size + count), np.inf)
    program.add(np.zeros(count, dtype=np.int64), np.arange(size, size + count), 1.0)
    program.close(1, 1.0, 1.0)

    def cut(k: int, members: Ints) -> None:
        weights = least[members] / seconds[k, members]
        program.cut(np.append(members, size + k), np.append(weights, -1.0), 0.0)

    for k, n in np.argwhere(np.isfinite(seconds)).tolist():
        cut(k, np.array([n]))
    best, chosen, hope = 0.0, np.zeros(size), np.inf
    for number in range(rounds):
        if number < len(first):
            value = first[number]
        elif (solved := program.solve()) is None:
            break
        else:
            hope, value = -solved[0], np.maximum(solved[1][:size], 0.0) * least
        if hope <= max(best, known) * (1.0 + ENOUGH) or (number and stop()):
            break
        most = 0.0
        for k in range(count):
            members, weight = heaviest_set(k, value / seconds[k])
            cut(k, members)
            most += weight
        if value.sum() > best * most:
            best, chosen = float(value.sum() / most), value / most
    return best, chosen


def heaviest_by_width(procs: Ints, weight: Floats, slots: int) -> tuple[Floats, Ints]:
    """Weights of the heaviest sets on 0, 1 ... slots, and the members of the last one."""
    top, some = np.zeros(slots + 1), np.flatnonzero((weight > 0.0) & (procs <= slots))
    taken = np.zeros((some.size, slots + 1), dtype=np.bool_)
    for place, n in enumerate(some.tolist()):
        width = int(procs[n])
        with_it = top[: slots + 1 - width] + weight[n]
        taken[place, width:] = with_it > top[width:]
        top[width:] = np.maximum(top[width:], with_it)
    members, left = list[int](), slots
    for place in range(some.size - 1, -1, -1):
        if taken[place, left]:
            members.append(int(some[place]))
            left -= int(procs[some[place]])
    return top, np.array(members, dtype=np.int64)


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
