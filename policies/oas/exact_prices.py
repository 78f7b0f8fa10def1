"""Prices: what share of the machine a pattern asks for while it runs.

A *row* is a function of what a pattern takes (processes on some classes, or load on a link) with
values in 0..1 whose sum over patterns that run together never exceeds 1: a dual feasible function
of the share of a set of classes, or of a link's capacity. A convex combination of rows is a *price
vector*; with it, every job needs at least ``energy`` = min over its patterns of price × run time
before the makespan. The best combination is the dual of the linear program that lets each job
choose a mixture of patterns and every row be full all the time.

References
----------
Fekete, Schepers, "New classes of fast lower bounds for bin packing problems", Mathematical
Programming 91(1), 2001 (the dual feasible functions).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.kernel.state import FULL, ROUNDING, Base, Problem
from coalloc.policies.oas.exact_patterns import Patterns

PRICES = 8
"""Price vectors at most."""
STEPS = 150
"""Steps of the subgradient method."""


def dual_feasible(part: Ints, whole: int, levels: Ints) -> Iterator[Floats]:
    """Yield functions f(part / whole) with sum f <= 1 wherever the shares sum to at most 1.

    `part` (array of int): 0..whole.
    `levels` (array of int): thresholds in 1..whole / 2.
    """
    share = part / whole
    yield share
    for k in range(1, 5):
        steps = (k + 1) * part // whole
        yield np.where((k + 1) * part % whole == 0, share, steps / k)
    for level in levels:
        yield np.where(part > whole - level, 1.0, np.where(part < level, 0.0, share))
        most = whole // level
        low, high = part // level, (whole - part) // level
        yield np.where(
            2 * part > whole, 1.0 - high / most, np.where(2 * part == whole, 0.5, low / most)
        )


def class_sets(problem: Problem) -> Iterator[Flags]:
    """Yield sets of classes: by cluster or in all clusters, those of at least some power."""
    power, cluster = problem.class_power, problem.class_cluster
    homes = [np.ones(power.size, dtype=np.bool_)]
    homes += [cluster == k for k in range(problem.link_gbps.size)]
    for home in homes:
        for level in np.unique(power[home]):
            yield home & (power >= level)
            yield home & (power == level)


def make_rows(
    problem: Problem, base: Base, patterns: Patterns, full_link: int = FULL
) -> tuple[Floats, Floats]:
    """Shares of the items' patterns in the rows, and what is not there in each row of the base.

    At most `full_link` units of a link may be used.
    """
    full = base.free[-1].astype(np.int64)
    gone = full - base.free
    found: dict[bytes, Floats] = {}
    patterned = len(patterns.seconds)

    def add(part: Ints, whole: int) -> None:
        if whole <= 0 or not part[:patterned].any():
            return
        values = np.unique(np.concatenate((part, whole - part)))
        values = values[(values > 0) & (2 * values <= whole)]
        if values.size > 8:
            values = values[np.linspace(0, values.size - 1, 8).astype(np.int64)]
        for row in dual_feasible(part, whole, values):
            found.setdefault(row.tobytes(), row)

    for chosen in class_sets(problem):
        use = np.concatenate((patterns.use[:, chosen].sum(axis=1), gone[:, chosen].sum(axis=1)))
        add(use, int(full[chosen].sum()))
    for k in range(problem.link_gbps.size):
        load = np.concatenate((patterns.load[:, k], base.load[:, k]))
        add(np.minimum(load, full_link + ROUNDING), full_link + ROUNDING)
    rows = np.stack(list(found.values()), axis=1) if found else np.zeros((patterned, 0))
    return rows[:patterned], rows[patterned:]


def make_prices(share: Floats, seconds: Floats, first: Ints) -> Floats:
    """Price vectors of the rows, R x V, columns of sum 1: for all items, and for parts of them."""
    area = share * seconds[:, None]
    return best_prices(area, first, _parts(area, first))


def _parts(area: Floats, first: Ints) -> Flags:
    """Return sets of items, N x V: all, every other one, and the largest few."""
    items = first.size - 1
    ranked = np.argsort(-np.minimum.reduceat(area.max(axis=1), first[:-1]), kind="stable")
    parts = [ranked, ranked[::2], ranked[1::2]]
    parts += [ranked[: items * x // (PRICES - 2)] for x in range(1, PRICES - 2)]
    members = {frozenset(part.tolist()): None for part in parts[:PRICES] if part.size}
    return np.array([[j in part for part in members] for j in range(items)])


def best_prices(area: Floats, first: Ints, chosen: Flags) -> Floats:
    """Maximise the energy that the chosen items need, by a subgradient method on the simplex.

    `area` (P x R): share times seconds of each pattern in each row.
    `chosen` (N x V): items that count for each of the vectors.
    """
    widths = np.diff(first)
    counted = np.repeat(chosen, widths, axis=0)
    weights = np.full((area.shape[1], chosen.shape[1]), 1.0 / area.shape[1])
    best, best_value, length = weights, np.full(chosen.shape[1], -1.0), 0.5
    for _ in range(STEPS):
        price = area @ weights
        least = np.minimum.reduceat(price, first[:-1], axis=0)
        value = (least * chosen).sum(axis=0)
        best = np.where(value > best_value, weights, best)
        best_value = np.maximum(value, best_value)
        cheapest = ((price <= np.repeat(least, widths, axis=0)) & counted).astype(np.float64)
        shared = np.repeat(np.add.reduceat(cheapest, first[:-1], axis=0), widths, axis=0)
        slope = area.T @ (cheapest / np.maximum(shared, 1.0))
        weights = weights * np.exp(length * (slope / slope.max(axis=0) - 1.0))
        weights /= weights.sum(axis=0)
        length *= 0.98
    return best
