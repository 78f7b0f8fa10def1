"""Lower bounds of what any plan can reach, whatever the policy.

Notes
-----
Every bound is valid for the plans that `coalloc.policies.checking.check` admits: running work,
reservations, nodes that are not up, earliest starts, precedence, allotments, features, memory,
clusters, links and the options that change what is allowed. Only what the planner takes in is
counted.

``docs/policies/bounds.md`` explains each bound, and cites its source.

*Makespan.* The latest of several proofs of when the last item can end at the earliest.

*Weighted completion.* Let d be the run time of an item and M its mean busy time, the middle of its
run, so C = M + d / 2. Take one row (see `coalloc.policies.bounds.rows`) and let every item spread
its amount over time as it likes, so that all together never take more than the supply. Serving
items by falling weight / amount, as far as released, makes the weighted sum of mean busy times
smallest. Half the weighted shortest run times on top bounds the weighted completion. On one machine
without releases this is Smith's rule and exact; on m equal ones it is the bound of Eastman, Even
and Isaacs.

References
----------
Smith: Various optimizers for single-stage production. Naval Research Logistics Quarterly 3 (1956).
Eastman, Even, Isaacs: Bounds for the optimal scheduling of n jobs on m processors. Management
Science 11 (1964). Goemans, Queyranne, Schulz, Skutella, Wang: Single machine scheduling with
release dates. SIAM Journal on Discrete Mathematics 15 (2002): mean busy times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from coalloc.policies.base import never
from coalloc.policies.bounds.case import BoundCase, Stop, read_case, sets_rows, sides
from coalloc.policies.bounds.measure import measure_of, raised
from coalloc.policies.bounds.prices import best_prices, loads
from coalloc.policies.bounds.rows import BoundRow, BoundRows, integral, integral_at, reached, stack
from coalloc.policies.bounds.supply import Floats
from coalloc.policies.kernel.instance.decoding import Planner

ROUNDING = 1e-11
"""Share of a bound that is given up, so that sums in another order cannot pass it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound of all plans."""

    value: float
    """Seconds from the snapshot's time (makespan), or weighted seconds: the sum of weight * (end -
    time)."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Each bound by name; the largest is the value. Where all times have a common measure, each is
    a multiple of it."""

    @property
    def binding(self) -> str:
        """Name of the largest part; "" if there is nothing to place."""
        return max(self.parts, key=lambda name: self.parts[name], default="")

    def beside(self, parts: Mapping[str, float]) -> Bound:
        """The best of this bound and of others, by name."""
        lowered = {name: value * (1.0 - ROUNDING) for name, value in parts.items()}
        return Bound(value=max([self.value, *lowered.values()]), parts={**self.parts, **lowered})


def lower_bound(
    planner: Planner,
    objective: str = "makespan",
    stop: Callable[[], bool] = never,
    effort: str = "quick",
) -> Bound:
    """Bound the objective of every plan that places what the planner takes in.

    The effort is quick (milliseconds) or full (up to about a second). Once `stop` is true, what is
    known by then is returned.
    """
    if not planner.items:
        return Bound(value=0.0)
    case = read_case(planner, effort)
    find = BOUNDS[objective]
    measure = measure_of(planner, objective)
    found = find(case, stop).items()
    parts = {name: raised(value * (1.0 - ROUNDING), measure) for name, value in found}
    return Bound(value=max(parts.values(), default=0.0), parts=parts)


SURVEY = 64
"""Rounds after which the mix by areas says which other rows matter."""
WINDOWS = 6
"""Heads, and tails, from which the work behind and before is summed."""


def makespan_bounds(case: BoundCase, stop: Stop) -> Mapping[str, float]:
    """Each bound on the makespan by name, seconds from the snapshot's time."""
    parts = {"longest": case.heads.longest}
    if not case.items.size:
        return parts
    slots, others, excluded = sides(case, stop)
    if case.effort.thorough:
        _add(parts, "levels", case, slots, stop)
    single = windows(case, stack(others, case.columns, case.supply))
    known = max([*parts.values(), *single.tolist()])
    sets = sets_rows(case, excluded, known, stop)
    _add(parts, "together", case, slots + others + sets, stop)
    return parts


def _add(
    parts: dict[str, float], name: str, case: BoundCase, side: list[BoundRow], stop: Stop
) -> None:
    """Add the best of each family of rows, and their best mix."""
    rows = stack(side, case.columns, case.supply)
    values = windows(case, rows)
    for family, value in zip(rows.family, values.tolist(), strict=True):
        parts[family] = max(parts.get(family, 0.0), value)
    parts[name] = together(case, rows, values, max(parts.values()), stop)


def windows(case: BoundCase, rows: BoundRows) -> Floats:
    """Each row by itself: what starts after some head and has some tail behind it fits between.

    Of R rows, seconds from now.
    """
    heads, items = case.heads, case.items
    need = case.columns.best(rows.amount)
    start, tail = heads.start[items], heads.tail[items]
    best = np.zeros(len(rows.family))
    for head in _steps(start):
        before = integral_at(rows.supply, rows.time, head)
        for rest in _steps(tail):
            inside = (start >= head) & (tail >= rest)
            demand = need[:, inside].sum(axis=1)
            end = reached(rows.supply, rows.time, before + demand)
            value = np.where((demand > 0.0) & np.isfinite(end), end + rest, 0.0)
            best = np.maximum(best, value)
    return best


def _steps(values: Floats) -> Floats:
    found = np.unique(values)
    if found.size <= WINDOWS:
        return found
    return found[np.linspace(0, found.size - 1, WINDOWS).astype(np.int64)]


def together(case: BoundCase, rows: BoundRows, values: Floats, known: float, stop: Stop) -> float:
    """Mix areas with the rows that a mix by areas alone overdraws most, or that prove most alone.

    By itself a row of strong bands proves nothing, since every item could run on weaker ones.
    """
    effort = case.effort
    areas = np.array([family == "area" for family in rows.family], dtype=np.bool_)
    taken = loads(rows, areas, case.columns, known, min(effort.rounds, SURVEY), stop)
    worth = np.where(areas, np.inf, np.maximum(taken, values / max(known, 1e-300)))
    rows = rows.kept(np.argsort(-worth, kind="stable")[: effort.rows])
    value, _ = best_prices(rows, case.columns, known, effort.rounds, stop)
    return value if np.isfinite(value) else 0.0


def completion_bounds(case: BoundCase, stop: Stop) -> Mapping[str, float]:
    """Each bound on the weighted completion by name, weighted seconds."""
    weight = weights(case)
    parts = {"alone": float(weight @ case.heads.end[case.items])}
    if not case.items.size:
        return parts
    slots, others, excluded = sides(case, stop)
    side = slots + others
    side.append(mixed(case, stack(side, case.columns, case.supply), stop))
    side += sets_rows(case, excluded, 0.0, stop)
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


BOUNDS = {"makespan": makespan_bounds, "weighted_completion": completion_bounds}
