"""Weighted completion: what no plan can go below.

Notes
-----
Let d be the run time of an item and M its mean busy time, the middle of its run, so C = M + d / 2.
Take one row (see `coalloc.policies.bounds.rows`) and let every item spread its amount over time as
it likes, so that all together never take more than the supply. Serving items by falling
weight / amount, as far as released, makes the weighted sum of mean busy times smallest. Half the
weighted shortest run times on top bounds the weighted completion. On one machine without releases
this is Smith's rule and exact; on m equal ones it is the bound of Eastman, Even and Isaacs.

References
----------
Smith: Various optimizers for single-stage production. Naval Research Logistics Quarterly 3 (1956).
Eastman, Even, Isaacs: Bounds for the optimal scheduling of n jobs on m processors. Management
Science 11 (1964). Goemans, Queyranne, Schulz, Skutella, Wang: Single machine scheduling with
release dates. SIAM Journal on Discrete Mathematics 15 (2002): mean busy times.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coalloc.policies.bounds.case import BoundCase, Stop, sets_row, sides
from coalloc.policies.bounds.makespan import windows
from coalloc.policies.bounds.prices import best_prices
from coalloc.policies.bounds.rows import BoundRow, BoundRows, integral, stack
from coalloc.policies.bounds.supply import Floats

SEARCHES = 12
"""Searches for a heaviest set: the weights are made for the makespan, so more do not pay."""


def completion_bounds(case: BoundCase, stop: Stop) -> Mapping[str, float]:
    """Each bound on the weighted completion by name, weighted seconds."""
    weight = weights(case)
    parts = {"alone": float(weight @ case.heads.end[case.items])}
    if not case.items.size:
        return parts
    slots, others, excluded = sides(case, stop)
    side = slots + others + sets_row(case, excluded, SEARCHES, 0.0, stop)
    side.append(mixed(case, stack(side, case.columns, case.supply), stop))
    for row in side:
        if stop():
            break
        if row.counts:
            parts[row.family] = max(parts.get(row.family, 0.0), busy_bound(case, row, weight))
    return parts


def mixed(case: BoundCase, rows: BoundRows, stop: Stop) -> BoundRow:
    """The mix of rows that proves most about the makespan, as a row of its own."""
    values = windows(case, rows)
    some = rows.kept(np.argsort(-values, kind="stable")[: case.effort.rows])
    horizon = max(case.heads.longest, float(values.max(initial=0.0)))
    _, price = best_prices(some, case.columns, horizon, case.effort.rounds, stop)
    return BoundRow(family="together", amount=price @ some.amount, supply=price @ some.supply)


def weights(case: BoundCase) -> Floats:
    """Weight of each counted item; a workflow's is that of its task that must end last."""
    out = case.planner.weights[case.items].copy()
    job = case.planner.numbers[case.items]
    end = case.heads.end[case.items]
    last: dict[int, int] = {}
    for n, number in enumerate(job.tolist()):
        if number in last:
            late = n if end[n] > end[last[number]] else last[number]
            out[n + last[number] - late] = 0.0
            last[number] = late
        else:
            last[number] = n
    return out


def busy_bound(case: BoundCase, row: BoundRow, weight: Floats) -> float:
    """Serve the amounts of one row by falling weight per amount, as far as released."""
    amount = case.columns.best(row.amount)
    start = case.heads.start[case.items]
    served = (amount > 0.0) & (weight > 0.0)
    alone = float(weight[~served] @ case.heads.end[case.items][~served])
    if not served.any():
        return alone
    half = 0.5 * float(weight[served] @ case.shortest[served])
    busy = mean_busy(amount[served], weight[served], start[served], row.supply, case.supply.time)
    return alone + half + busy if np.isfinite(busy) else 0.0


def mean_busy(amount: Floats, weight: Floats, start: Floats, supply: Floats, time: Floats) -> float:
    """Smallest weighted sum of mean busy times, one divisible machine of this supply.

    `amount`, `weight`, `start`: positive amounts; seconds from now.
    `supply`, `time`: staircase.
    """
    order = np.argsort(-weight / amount, kind="stable")
    if (start <= 0.0).all():
        return _in_order(amount[order], weight[order], supply, time)
    total = 0.0
    cuts = np.unique(np.concatenate((start, time)))
    left = amount.copy()
    for at, following in zip(cuts, [*cuts[1:], np.inf], strict=True):
        rate = float(supply[max(int(np.searchsorted(time, at, side="right")) - 1, 0)])
        if rate <= 0.0:
            continue
        room = rate * (following - at)
        ready = order[(start[order] <= at) & (left[order] > 0.0)]
        before = np.cumsum(left[ready]) - left[ready]
        part = np.clip(room - before, 0.0, left[ready])
        middle = at + (before + part / 2.0) / rate
        total += float((weight[ready] * part / amount[ready]) @ middle)
        left[ready] -= part
        left[ready[part >= left[ready] + part]] = 0.0
        if not (left > 0.0).any():
            return total
    return np.inf


def _in_order(amount: Floats, weight: Floats, supply: Floats, time: Floats) -> float:
    """Everything is there from the start: one after the other on the staircase."""
    whole = integral(supply, time)
    ends = np.cumsum(amount)
    edge = np.unique(np.concatenate((whole, ends, [0.0])))
    edge = edge[edge <= ends[-1]]
    step = np.maximum(np.searchsorted(whole, edge[:-1], side="right") - 1, 0)
    rate = supply[step]
    if (rate <= 0.0).any():
        return np.inf
    first = time[step] + (edge[:-1] - whole[step]) / rate
    size = np.diff(edge)
    owner = np.minimum(np.searchsorted(ends, edge[:-1], side="right"), amount.size - 1)
    middle = first + size / rate / 2.0
    return float((weight[owner] * size / amount[owner]) @ middle)
