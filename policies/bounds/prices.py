"""The best mix of rows: prices under which the items cost most.

For a horizon C, row r has the supply W_r(C). If the items, each by its cheapest column, cost more
than 1 under prices y >= 0 with sum 1 on the shares amount / W_r(C), no schedule ends by C: this is
the dual of the linear program that chooses a mix of columns for each item so that no row is
overdrawn. Whatever the prices, the answer is valid, so they need not be optimal.

Notes
-----
The program is a matrix game between the items and the rows, solved by regret matching with
non-negative regrets, alternating updates and linear averages. Each round costs two products with
the R x P matrix of shares. Deterministic; it may be ended after any round.

References
----------
Tammelin, Burch, Johanson, Bowling: Solving heads-up limit Texas hold'em. IJCAI 2015 (regret
matching+). Plotkin, Shmoys, Tardos: Fast approximation algorithms for fractional packing and
covering problems. Mathematics of Operations Research 20 (1995).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coalloc.policies.bounds.columns import Columns
from coalloc.policies.bounds.rows import BoundRows, integral_at, reached
from coalloc.policies.bounds.supply import Flags, Floats, Ints

CHUNK = 16
"""Rounds between looks at the bound and at `stop`."""
NEAR = 1e-4
"""The search ends where no prices prove more than this share of what is known."""


def best_prices(
    rows: BoundRows, columns: Columns, horizon: float, rounds: int, stop: Callable[[], bool]
) -> tuple[float, Floats]:
    """Seek prices of the rows, per unit of amount, that prove the latest end, seconds from now.

    Supplies are compared at the horizon, a lower bound that is known.
    """
    whole = integral_at(rows.supply, rows.time, horizon)
    usable = whole > 0.0
    price = np.zeros(len(rows.family))
    if not usable.any() or horizon <= 0.0:
        return 0.0, price
    share = rows.amount[usable] / whole[usable, None]
    single = columns.best(share).sum(axis=1)
    y = np.zeros(share.shape[0])
    y[single.argmax()] = 1.0
    best, chosen = float(single.max()), y.copy()
    game = Game(share, columns.first)
    for done in range(rounds):
        game.step(done)
        if done % CHUNK == CHUNK - 1 or done == rounds - 1:
            y = game.average
            value = float(columns.best(y @ share).sum())
            if value > best:
                best, chosen = value, y.copy()
            upper = game.upper
            if upper - best <= NEAR * best or upper <= 1.0 + NEAR or stop():
                break
    price[usable] = chosen / whole[usable]
    return price_bound(rows, columns, price), price


def loads(
    rows: BoundRows,
    among: Flags,
    columns: Columns,
    horizon: float,
    rounds: int,
    stop: Callable[[], bool],
) -> Floats:
    """Share of each row that is taken where the items mix columns to spare the rows that they know.

    It is 0 for rows without supply.
    """
    whole = integral_at(rows.supply, rows.time, horizon)
    known = among & (whole > 0.0)
    if not known.any():
        return np.zeros(len(rows.family))
    game = Game(rows.amount[known] / whole[known, None], columns.first)
    mix = np.zeros(columns.item.size)
    for done in range(rounds):
        game.step(done)
        mix += (done + 1.0) * game.mix
        if stop():
            break
    taken = rows.amount @ mix / game.weight
    return np.where(whole > 0.0, taken / np.where(whole > 0.0, whole, 1.0), 0.0)


def price_bound(rows: BoundRows, columns: Columns, price: Floats) -> float:
    """Return when the supply at these prices has paid for all items; infinite if never."""
    demand = columns.best(price @ rows.amount).sum()
    return float(reached((price @ rows.supply)[None, :], rows.time, np.array([demand]))[0])


class Game:
    """Regrets and averages of both sides: rows, and the columns of each item, from `first` on."""

    def __init__(self, share: Floats, first: Ints) -> None:
        self.share, self.first = share, first
        counts = np.diff(np.append(self.first, share.shape[1]))
        self.owner = np.repeat(np.arange(self.first.size), counts)
        self.mix = (1.0 / counts)[self.owner]
        self.row_regret = np.zeros(share.shape[0])
        self.column_regret = np.zeros(share.shape[1])
        self.row_sum = np.zeros(share.shape[0])
        self.load_sum = np.zeros(share.shape[0])
        self.weight = 0.0
        self.price = np.full(share.shape[0], 1.0 / share.shape[0])

    def step(self, number: int) -> None:
        """One round, which counts for as much as its number."""
        load = self.share @ self.mix
        self.row_regret = np.maximum(self.row_regret + load - self.price @ load, 0.0)
        total = self.row_regret.sum()
        if total > 0.0:
            self.price = self.row_regret / total
        cost = self.price @ self.share
        paid = np.add.reduceat(cost * self.mix, self.first)
        self.column_regret = np.maximum(self.column_regret + paid[self.owner] - cost, 0.0)
        sums = np.add.reduceat(self.column_regret, self.first)[self.owner]
        self.mix = np.where(sums > 0.0, self.column_regret / np.where(sums > 0, sums, 1), self.mix)
        weight = number + 1.0
        self.row_sum += weight * self.price
        self.load_sum += weight * (self.share @ self.mix)
        self.weight += weight

    @property
    def average(self) -> Floats:
        """Prices of the rows."""
        return self.row_sum / self.weight

    @property
    def upper(self) -> float:
        """Value of the items' average mix: no prices prove more."""
        return float(self.load_sum.max() / self.weight)
