"""Policies compared over pieces, with confidence from resampling the pieces.

Notes
-----
Figures of pieces differ by orders of magnitude, so a policy is compared with a base piece by piece:
the ratio of its figure to the base's, each plus a small constant (`FLOOR`) that keeps a piece
without waiting from deciding. The mean is the geometric one, its interval that of `resampled`.

Pieces on which EASY's mean wait is below `SOME_WAIT_S` have nothing to be gained; they are counted
and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalloc.simulation.online.bench import Row
from coalloc.simulation.reproduce.rows import resampled

SOME_WAIT_S = 60.0
SAME_LOG = 1e-9
"""A ratio whose logarithm is not above this is 1 but for rounding."""
FLOOR: Mapping[str, float] = {"wait": 1.0, "response": 0.0, "slowdown": 0.0, "later": 1.0}
"""Added to both figures of a ratio, by the first word of the column."""
BETTER = "better rule"
RULES = ("easy-spf", "easy-saf")
"""Of each piece the better of these two is a base of its own, `BETTER`, figure by figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A policy by a base, over pieces."""

    mean: float
    """Geometric mean, and its interval of 95 %."""
    low: float
    high: float
    worst: float
    """The largest ratio of a piece."""
    where: str
    """That piece."""
    above: float
    """Share of the pieces whose ratio is above 1."""


Table = Mapping[str, Mapping[str, Row]]
"""Rows by piece and policy."""


def by_piece(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """Rows of one scenario by piece and policy."""
    out: dict[str, dict[str, Row]] = {}
    for row in rows:
        out.setdefault(row["piece"], {})[row["policy"]] = row
    return out


def waiting(table: Table) -> dict[str, Mapping[str, Row]]:
    """The pieces on which something can be gained; all that have no row of EASY."""
    return {
        piece: rows
        for piece, rows in table.items()
        if "easy" not in rows or rows["easy"]["wait_mean"] >= SOME_WAIT_S
    }


def compare(
    table: Table, policy: str, base: str, column: str, other: Table | None = None
) -> Ratio | None:
    """A policy by a base; None where no piece has both.

    The base may be of another table, of the same jobs in another scenario.
    """
    bases = table if other is None else other
    floor = FLOOR[column.partition("_")[0]]
    pairs = {
        piece: (_figure(rows, policy, column), _figure(bases[piece], base, column))
        for piece, rows in table.items()
        if piece in bases
    }
    known = {
        piece: np.log((mine + floor) / (theirs + floor))
        for piece, (mine, theirs) in pairs.items()
        if mine is not None and theirs is not None
    }
    if not known:
        return None
    names, values = list(known), np.array(list(known.values()))
    low, high = resampled(values)
    worst = int(values.argmax())
    return Ratio(
        mean=float(np.exp(values.mean())),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        worst=float(np.exp(values[worst])),
        where=names[worst],
        above=float((values > SAME_LOG).mean()),
    )


def _figure(rows: Mapping[str, Row], policy: str, column: str) -> float | None:
    if policy != BETTER:
        value: float | None = rows[policy][column] if policy in rows else None
        return value
    found = [rows[name][column] for name in RULES if name in rows]
    return min(found) if len(found) == len(RULES) and None not in found else None


def mean_of(table: Table, policy: str, column: str) -> float | None:
    """Mean of a figure over the pieces that have it."""
    found: list[Any] = [_figure(rows, policy, column) for rows in table.values()]
    values = [value for value in found if value is not None]
    return float(np.mean(values)) if values else None


def policies_of(rows: Sequence[Row]) -> list[str]:
    """The policies, in the order in which they come."""
    return list(dict.fromkeys(row["policy"] for row in rows))


def policies_in(table: Table) -> list[str]:
    """The policies of a table."""
    return policies_of([row for rows in table.values() for row in rows.values()])


def shown(ratio: Ratio | None) -> str:
    """A ratio with its interval, as tables have it."""
    return "–" if ratio is None else f"{ratio.mean:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
