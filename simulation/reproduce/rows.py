"""Rows of an experiment: as CSV and back, and the statistics and tables that texts need.

References
----------
B. Efron, R. Tibshirani, "An introduction to the bootstrap", 1993 (the percentile interval).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Row = Mapping[str, Any]
"""One line of a CSV: text, numbers, and None where a cell is empty."""
RESAMPLES = 2000
DIGITS = 9
"""Significant digits of a number in a CSV."""


def to_csv(columns: Mapping[str, str], rows: Iterable[Row]) -> str:
    """These columns of all rows as CSV, a header line first; None and NaN are empty cells."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in columns])
    return out.getvalue()


def from_csv(text: str) -> Rows:
    """Read what `to_csv` wrote: numbers where a cell is one, None where it is empty."""
    return Rows(
        {name: _value(cell) for name, cell in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    )


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return str(value) if isinstance(value, int) else f"{value:.{DIGITS}g}"


def _value(cell: str) -> Any:
    if not cell:
        return None
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


class Rows(list[Row]):
    """Rows in an order, and the little statistics that texts and pictures need of them."""

    def only(self, kept: Callable[[Row], bool]) -> Rows:
        """Those for which something holds."""
        return Rows(row for row in self if kept(row))

    def where(self, **wanted: Any) -> Rows:
        """Those with these values."""
        return self.only(lambda row: all(row[name] == value for name, value in wanted.items()))

    def column(self, name: str) -> list[Any]:
        """The values of a column that are there."""
        return [row[name] for row in self if row[name] is not None]

    def mean(self, name: str) -> float:
        """The mean of a column."""
        return fmean(self.column(name))

    def median(self, name: str) -> float:
        """The median of a column."""
        return float(median(self.column(name)))

    def distinct(self, name: str) -> list[Any]:
        """The different values of a column, in the order in which they come."""
        return list(dict.fromkeys(self.column(name)))

    def grouped(self, *names: str) -> dict[tuple[Any, ...], Rows]:
        """Groups by the values of some columns."""
        out: dict[tuple[Any, ...], Rows] = {}
        for row in self:
            out.setdefault(tuple(row[name] for name in names), Rows()).append(row)
        return out

    def by_code(self, name: str) -> dict[str, Rows]:
        """Lines of `tabulate`, one for each value of a column, which is shown as code."""
        return {f"`{value}`": group for (value,), group in self.grouped(name).items()}

    def by_value(
        self, name: str, cell: Callable[[Rows], str], head: str = "{}"
    ) -> dict[str, Callable[[Rows], str]]:
        """Columns of `tabulate`, one for each value of a column."""

        def only(value: Any) -> Callable[[Rows], str]:
            return lambda group: cell(group.where(**{name: value}))

        return {head.format(value): only(value) for value in self.distinct(name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over draws, and its interval of 95 %, or its lowest and highest."""

    mean: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of a value of each draw; the interval is from resampling the draws."""
    low, high = resampled(values)
    return Estimate(mean=fmean(values), low=low, high=high)


def resampled(values: ArrayLike, figure: Callable[[Any], Any] = np.asarray) -> tuple[float, float]:
    """The interval of 95 % of the mean, from samples of as many values with a fixed seed.

    Values may be rows; the interval is then that of a `figure` of the means of their columns.
    """
    known = np.asarray(values)
    drawn = np.random.default_rng(0).integers(0, len(known), (RESAMPLES, len(known)))
    low, high = np.percentile(figure(known[drawn].mean(axis=1)), (2.5, 97.5))
    return float(low), float(high)


def spread(values: Sequence[float], show: Callable[[float], str] = "{:.3g}".format) -> str:
    """``low to high``, or one value where both look the same."""
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def tabulate(
    corner: str, lines: Mapping[str, Rows], columns: Mapping[str, Callable[[Rows], str]]
) -> str:
    """A Markdown table with a line for each group of rows and a column for what is told of it."""
    return table(
        (corner, *columns),
        ([label, *(cell(group) for cell in columns.values())] for label, group in lines.items()),
    )


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every column but the first is aligned to the right."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, marks, *lines])
