"""The latest of several proofs of when the last item can end at the earliest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coalloc.policies.bounds.case import BoundCase, Stop, sets_row, sides
from coalloc.policies.bounds.prices import best_prices, loads
from coalloc.policies.bounds.rows import BoundRow, BoundRows, integral_at, reached, stack
from coalloc.policies.bounds.supply import Floats

SEARCHES = 50
"""Searches for a heaviest set of items that can run together."""
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
    sets = sets_row(case, excluded, SEARCHES, known, stop)
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
