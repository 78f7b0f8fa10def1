"""The arrays of the exact search from a planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any

import numpy as np

from coalloc.policies.array_types import Floats, Ints, firsts
from coalloc.policies.bounds.supply import threshold_of
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.graph import children_of, graph_of
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.record import room_for
from coalloc.policies.kernel.search.branch_state import ENERGY, TIME, WAITING, Memo, Model, Stack
from coalloc.policies.kernel.state import FULL, ROUNDING, Base
from coalloc.policies.oas.exact_patterns import Patterns, Saturation, make_patterns
from coalloc.policies.oas.exact_prices import make_prices, make_rows

MOST_ITEMS = 62
"""Sets of items are bits of one integer."""
WORD = 1 << 62
"""Values of one word of the memo's key."""
WORDS = 2
STATES = 1 << 20
"""States that the memo keeps at most."""
NEAR = 1e-9
"""By so much, relative to a slot, a time may pass a boundary of the grid."""


class UnfitError(Exception):
    """The search does not apply; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactGrid:
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
        """Length of a stretch of the axis, seconds."""
        return time if self.slot is None else time * self.slot


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchModel:
    """The model, with the way back to the planner's items."""

    grid: ExactGrid
    order: Ints
    """The item at each place of the model."""
    index: Ints
    """The pattern at each place of the model."""
    patterns: Patterns
    model: Model


def make_model(planner: Planner, slot: float | None, weighted: bool) -> SearchModel:
    """Lay out the items of a planner for the search.

    The slot is in seconds; None is continuous time. Where it is weighted, weights tell items apart.

    Raises `UnfitError` and `TooManyError`.
    """
    patterns = fitting_patterns(planner, slot)
    full_link = int(FULL * (1.0 if slot is None else threshold_of(planner)))
    compiled, items = planner.compiled, planner.items
    grid = ExactGrid(now=planner.snapshot.time, slot=slot)
    lasting = grid.lasting(patterns.seconds)
    reserved = np.array(
        [[grid.down(a), grid.up(b)] for a, b in compiled.problem.reserved.tolist()]
    ).reshape(-1, 2)
    least = np.minimum.reduceat(lasting, patterns.first[:-1])
    units = np.minimum.reduceat(patterns.use.sum(axis=1), patterns.first[:-1])
    # small ones first: measured, a third of the nodes of the reverse order
    order = np.lexsort((units, least * units))
    index = np.concatenate([np.arange(*patterns.first[i : i + 2]) for i in order])
    rows = _rows(compiled.base, reserved[:, 1], grid)
    share, blocked = make_rows(compiled.problem, compiled.base, patterns, full_link)
    weights = make_prices(share, lasting, patterns.first)
    price = share @ weights
    energy = np.minimum.reduceat(price * lasting[:, None], patterns.first[:-1], axis=0)
    weight = planner.weights[order]
    kept = [r for _, r in rows]
    model = Model(
        classes=compiled.problem.class_power.size,
        take=np.hstack((patterns.use, patterns.load))[index],
        spare=_spare(patterns, full_link)[index],
        asks=np.hstack((lasting[:, None], price))[index],
        shut=patterns.shut[index],
        reserved=reserved,
        items=_cells(items, order, patterns, units, weighted),
        runs=_runs(items, order, least, weight, grid),
        energy=energy[order],
        smith=_smith(energy[order], weight),
        rows=np.hstack(
            (compiled.base.free.astype(np.int64), full_link + ROUNDING - compiled.base.load)
        )[kept],
        times=np.hstack(([[time] for time, _ in rows], (blocked @ weights)[kept])),
    )
    return SearchModel(grid=grid, order=order, index=index, patterns=patterns, model=model)


def _cells(
    items: Sequence[Item], order: Ints, patterns: Patterns, units: Ints, weighted: bool
) -> Ints:
    """Rows of `Model.items`, in the order of the model; `units` is the least that each takes."""
    counts, place = np.diff(patterns.first)[order], np.argsort(order)
    parents = [sum({1 << int(place[p]) for p, _ in items[i].parents}) for i in order]
    columns = (
        firsts(counts),
        np.array([*parents, 0], dtype=np.int64),
        np.append(_twins(items, order, weighted), -1),
        np.append(units[order], 0),
        *np.pad(_digits(counts), ((0, 0), (0, 1))),
    )
    return np.stack(columns, axis=1)


def _runs(
    items: Sequence[Item], order: Ints, least: Floats, weight: Floats, grid: ExactGrid
) -> Floats:
    """Rows of `Model.runs`, in the order of the model; `least` is the shortest run of each item."""
    after = graph_of(items).tail(least)
    release = [grid.up(items[i].release) for i in order]
    columns = (release, weight, (least + after)[order], after[order], least[order])
    return np.stack(columns, axis=1)


def _smith(energy: Floats, weight: Floats) -> Ints:
    """Smith's order of the items for each price vector: by energy over weight."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(weight[:, None] > 0.0, energy / weight[:, None], inf)
    return np.argsort(ratio, axis=0, kind="stable").T.copy()


def _spare(patterns: Patterns, full_link: int) -> Ints:
    """Spare capacity of each pattern on the links that it loads, P x K; P x 0 if nothing does."""
    if full_link == FULL:
        return np.zeros((patterns.sc.size, 0), dtype=np.int64)
    limit = (patterns.sc * FULL).astype(np.int64)[:, None]
    return np.where(patterns.load > 0, np.maximum(full_link - limit, 0), 0)


def fitting_patterns(planner: Planner, slot: float | None = None) -> Patterns:
    """Enumerate the patterns, if they are few enough for the search.

    Where a slot is given, links may be saturated up to the planner's threshold.

    Raises `UnfitError` and `TooManyError`.
    """
    if len(planner.items) > MOST_ITEMS or len(planner.intake.reservations) > MOST_ITEMS:
        raise UnfitError(f"more than {MOST_ITEMS} jobs or reservations")
    saturation, threshold = None, threshold_of(planner)
    if slot is not None and threshold > 1.0:
        saturation = Saturation(threshold=threshold, slot_s=slot)
    patterns = make_patterns(planner.compiled, saturation)
    counts = np.diff(patterns.first)
    if (counts == 0).any():
        raise UnfitError("a job has no allocation that the links carry")
    _digits(counts)
    return patterns


def _digits(counts: Ints) -> Ints:
    """Place of each item in the memo's key, 2 x N: which word, and the worth of its digit there."""
    places = np.zeros((2, counts.size), dtype=np.int64)
    word, worth = 0, 1
    for j in np.argsort(-counts, kind="stable").tolist():
        values = int(counts[j]) + 2
        if worth * values > WORD:
            word, worth = word + 1, 1
            if word == WORDS:
                raise UnfitError("too many jobs and allocation patterns for the memo's key")
        places[:, j] = word, worth
        worth *= values
    return places


def _rows(base: Base, reopened: Floats, grid: ExactGrid) -> list[tuple[float, int]]:
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


def _twins(items: Sequence[Item], order: Ints, weighted: bool) -> Ints:
    """The item before each that cannot be told from it, or -1."""
    children = children_of([item.parents for item in items])
    seen: dict[Any, int] = {}
    twins = np.full(len(items), -1, dtype=np.int64)
    for j, n in enumerate(order.tolist()):
        item = items[n]
        key = (
            *(tuple(item.modes), item.limit, item.group, item.proc_gbps, item.splits, item.release),
            *(frozenset(p for p, _ in item.parents), frozenset(c for c, _ in children[n])),
            item.job.weight if weighted else 0.0,
        )
        twins[j] = seen.get(key, -1)
        seen[key] = j
    return twins


def make_stack(model: Model) -> Stack:
    """Room for the search; frame 0 is the root."""
    items, vectors = model.energy.shape
    depth = 4 + 3 * items + model.times.shape[0]
    things, links, sums = model.take.shape[1], model.spare.shape[1], ENERGY + 2 * vectors
    sizes = {"D": depth, "N": items, "V": vectors, "things": things, "links": links, "sums": sums}
    stack = room_for(Stack, **sizes, limits=np.array([inf, inf, 0.0, 0.0]))
    stack.frame[0, WAITING] = (1 << items) - 1
    stack.room[0] = model.rows[0]
    stack.value[0, TIME] = model.times[0, 0]
    stack.value[0, ENERGY : ENERGY + vectors] = model.energy.sum(axis=0)
    return stack


def make_memo(items: int) -> Memo:
    """An empty memo."""
    return Memo(key=np.zeros((STATES, 2), dtype=np.int64), state=np.empty((STATES, items + 2)))
