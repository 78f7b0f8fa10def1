"""The arrays of the exact search from a planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.compiled import FULL, ROUNDING, Base, Problem
from coalloc.policies.kernel.decoding import Planner
from coalloc.policies.kernel.modes import Item
from coalloc.policies.oas.exact_kernel import Memo, Model, Stack
from coalloc.policies.oas.exact_patterns import Patterns, make_patterns
from coalloc.policies.oas.exact_prices import make_prices, make_rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_ITEMS = 62
"""Sets of items are bits of one integer."""
WORD = 1 << 62
"""Values of one word of the memo's key."""
WORDS = 2
PRICES = 8
"""Price vectors."""
STATES = 1 << 20
"""States that the memo keeps at most."""
NEAR = 1e-9
"""By so much, relative to a slot, a time may pass a boundary of the grid."""


class UnfitError(Exception):
    """The search does not apply; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The time axis of the search: absolute seconds, or slots from the present on."""

    now: float
    slot: float | None

    def up(self, seconds: float) -> float:
        """At or after this time."""
        if self.slot is None:
            return seconds
        return float(ceil((seconds - self.now) / self.slot - NEAR))

    def down(self, seconds: float) -> float:
        """At or before this time."""
        if self.slot is None:
            return seconds
        return float(floor((seconds - self.now) / self.slot + NEAR))

    def lasting(self, seconds: Floats) -> Floats:
        """So long, rounded up."""
        if self.slot is None:
            return seconds
        return np.maximum(np.ceil(seconds / self.slot - NEAR), 1.0)

    def seconds(self, time: float) -> float:
        """The time in absolute seconds."""
        return time if self.slot is None else self.now + time * self.slot

    def length(self, time: float) -> float:
        """How many seconds so much of the axis is."""
        return time if self.slot is None else time * self.slot


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchModel:
    """The model, with the way back to the planner's items.

    Attributes
    ----------
    order : N
        The item at each place of the model.
    index : P
        The pattern at each place of the model.
    """

    grid: Grid
    order: Ints
    index: Ints
    patterns: Patterns
    model: Model


def make_model(planner: Planner, slot: float | None, weighted: bool) -> SearchModel:
    """Lay out the items of a planner for the search.

    Parameters
    ----------
    slot : float or None
        Seconds; None is continuous time.
    weighted : bool
        Whether weights tell items apart.

    Raises
    ------
    UnfitError, TooManyError
    """
    compiled, items = planner.compiled, planner.items
    grid = Grid(now=planner.snapshot.time, slot=slot)
    patterns = make_patterns(compiled)
    words = _words(patterns)
    lasting = grid.lasting(patterns.seconds)
    windows = np.array(
        [[grid.down(a), grid.up(b)] for a, b in patterns.window.tolist()], dtype=np.float64
    ).reshape(-1, 2)
    least = _least(lasting, patterns.first)
    units = _least(patterns.use.sum(axis=1).astype(np.float64), patterns.first)
    order = np.lexsort((-units, -least * units))
    index = np.array(
        [p for i in order for p in range(patterns.first[i], patterns.first[i + 1])], dtype=np.int64
    )
    rows = _rows(compiled.base, windows[:, 1], grid)
    share, blocked = make_rows(compiled.problem, compiled.base, patterns)
    weights = make_prices(share, lasting, patterns.first, PRICES)
    price = share @ weights
    asked = price * lasting[:, None]
    energy = np.stack(
        [_least(asked[:, v], patterns.first) for v in range(asked.shape[1])], axis=1
    ).reshape(len(items), -1)
    weight = planner.weights[order]
    after = _after(items, least)
    place = np.argsort(order)
    word, unit = _digits(np.diff(patterns.first)[order], words)
    widths = np.diff(patterns.window_first)[index]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(weight[:, None] > 0.0, energy[order] / weight[:, None], inf)
    model = Model(
        first=_firsts(np.diff(patterns.first)[order]),
        use=patterns.use[index],
        load=patterns.load[index],
        seconds=lasting[index],
        window_first=_firsts(widths),
        window=windows[_ranges(patterns.window_first[:-1][index], widths)],
        release=np.array([grid.up(items[i].release) for i in order], dtype=np.float64),
        before=_sets([[place[p] for p, _ in items[i].parents] for i in order]),
        twin=_twins(items, order, weighted),
        weight=weight,
        tail=(least + after)[order],
        after=after[order],
        least=least[order],
        units=units[order].astype(np.int64),
        price=price[index],
        energy=energy[order],
        smith=np.argsort(ratio, axis=0, kind="stable").T.copy(),
        row_time=np.array([time for time, _ in rows], dtype=np.float64),
        row_free=compiled.base.free[[r for _, r in rows]].astype(np.int64),
        row_left=FULL + ROUNDING - compiled.base.load[[r for _, r in rows]],
        blocked=(blocked @ weights)[[r for _, r in rows]],
        word=word,
        unit=unit,
    )
    return SearchModel(grid=grid, order=order, index=index, patterns=patterns, model=model)


def _words(patterns: Patterns) -> int:
    counts = np.diff(patterns.first)
    if counts.size > MOST_ITEMS:
        raise UnfitError(f"more than {MOST_ITEMS} jobs")
    if (counts == 0).any():
        raise UnfitError("a job has no allocation that the links carry")
    return WORDS


def _digits(counts: Ints, words: int) -> tuple[Ints, Ints]:
    """Place of each item in the key: which word, and the worth of its digit there."""
    word, unit = np.zeros(counts.size, dtype=np.int64), np.ones(counts.size, dtype=np.int64)
    at, worth = 0, 1
    for j, count in enumerate(counts.tolist()):
        if worth * (count + 2) > WORD:
            at, worth = at + 1, 1
            if at == words:
                raise UnfitError("too many jobs and allocation patterns for the memo's key")
        word[j], unit[j] = at, worth
        worth *= count + 2
    return word, unit


def _least(values: Floats, first: Ints) -> Floats:
    return np.minimum.reduceat(values, first[:-1]) if first.size > 1 else np.zeros(0)


def _firsts(counts: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def _ranges(first: Ints, widths: Ints) -> Ints:
    return np.array(
        [x for a, n in zip(first.tolist(), widths.tolist(), strict=True) for x in range(a, a + n)],
        dtype=np.int64,
    )


def _sets(members: Sequence[Sequence[int]]) -> Ints:
    return np.array([sum({1 << int(m) for m in one}) for one in members], dtype=np.int64)


def _rows(base: Base, reopened: Floats, grid: Grid) -> list[tuple[float, int]]:
    """Times at which something becomes available, and the row of the base in force from then on."""
    rows: dict[float, int] = {}
    kept = set(reopened.tolist())
    last = 0
    for r, time in enumerate(base.time.tolist()):
        same = (base.free[r] == base.free[last]).all() and (base.load[r] == base.load[last]).all()
        if r == 0 or not same or grid.up(time) in kept:
            rows[grid.up(time)] = r
            last = r
    return sorted(rows.items())


def _after(items: Sequence[Item], least: Floats) -> Floats:
    """Time from the end of each item to the end of the longest chain behind it."""
    children: list[list[int]] = [[] for _ in items]
    waits = np.zeros(len(items), dtype=np.int64)
    for n, item in enumerate(items):
        for parent in {p for p, _ in item.parents}:
            children[parent].append(n)
            waits[parent] += 1
    after = np.zeros(len(items))
    ready = [n for n in range(len(items)) if not children[n]]
    while ready:
        n = ready.pop()
        for parent in {p for p, _ in items[n].parents}:
            after[parent] = max(after[parent], after[n] + least[n])
            waits[parent] -= 1
            if not waits[parent]:
                ready.append(parent)
    return after


def _twins(items: Sequence[Item], order: Ints, weighted: bool) -> Ints:
    """The item before each that cannot be told from it, or -1."""
    children: list[set[int]] = [set() for _ in items]
    for n, item in enumerate(items):
        for parent, _ in item.parents:
            children[parent].add(n)
    seen: dict[Any, int] = {}
    twins = np.full(len(items), -1, dtype=np.int64)
    for j, n in enumerate(order.tolist()):
        item = items[n]
        key = (
            *(tuple(item.modes), item.group, item.proc_gbps, item.splits, item.release),
            *(frozenset(p for p, _ in item.parents), frozenset(children[n])),
            item.job.weight if weighted else 0.0,
        )
        twins[j] = seen.get(key, -1)
        seen[key] = j
    return twins


def make_stack(model: Model) -> Stack:
    """Room for the search; frame 0 is the root."""
    items, vectors = model.energy.shape
    depth = 4 + 3 * items + model.row_time.size
    classes, clusters = model.use.shape[1], model.load.shape[1]

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    stack = Stack(
        time=np.zeros(depth),
        row=ints(depth),
        event=ints(depth),
        waiting=ints(depth),
        running=ints(depth),
        key=ints(depth, 2),
        free=ints(depth, classes),
        left=ints(depth, clusters),
        energy=np.zeros((depth, vectors)),
        busy=np.zeros((depth, vectors)),
        cost=np.zeros(depth),
        job=ints(depth),
        pattern=ints(depth),
        moved=ints(depth),
        start=np.zeros(items),
        end=np.zeros(items),
        chosen=ints(items),
        order=ints(items),
        best_start=np.zeros(items),
        best_end=np.zeros(items),
        best_chosen=ints(items),
        supply=np.zeros(vectors),
        counters=ints(6),
        limits=np.array([inf, inf, 0.0, 0.0]),
    )
    stack.time[0] = model.row_time[0]
    stack.waiting[0] = (1 << items) - 1
    stack.free[0] = model.row_free[0]
    stack.left[0] = model.row_left[0]
    stack.energy[0] = model.energy.sum(axis=0)
    return stack


def make_memo(items: int, states: int = STATES) -> Memo:
    """An empty memo."""
    return Memo(key=np.zeros((states, 2), dtype=np.int64), state=np.empty((states, items + 2)))
