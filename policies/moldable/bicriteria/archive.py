"""Schedules of which none is at least as good as another in both criteria."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar

import numpy as np

from coalloc.policies.array_types import Floats, Ints


class Rated(Protocol):
    """Both criteria of a schedule: makespan in seconds, and weighted completion."""

    @property
    def cmax(self) -> float: ...

    @property
    def total(self) -> float: ...


P = TypeVar("P", bound=Rated)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParetoPoint:
    """One schedule of a queue."""

    cmax: float
    """Makespan, seconds, and weighted completion."""
    total: float
    rows: Ints
    """Each job's allotment, an index into the queue's `procs`."""
    start: Floats
    """Seconds."""


class Archive(Generic[P]):
    """Points by rising makespan and falling weighted completion."""

    def __init__(self) -> None:
        self.points: list[P] = []

    def __len__(self) -> int:
        return len(self.points)

    def takes(self, cmax: float, total: float) -> bool:
        """Whether no point is as good in both criteria."""
        place = bisect_right(self.points, cmax, key=lambda point: point.cmax)
        return place == 0 or self.points[place - 1].total > total

    def add(self, point: P) -> bool:
        """Keep a point, and drop those that it is as good as; false where it is not needed."""
        if not self.takes(point.cmax, point.total):
            return False
        begin = bisect_left(self.points, point.cmax, key=lambda known: known.cmax)
        end = begin
        while end < len(self.points) and self.points[end].total >= point.total:
            end += 1
        self.points[begin:end] = [point]
        return True

    def within(self, cap: float) -> P | None:
        """The least weighted completion of a makespan of at most `cap`; None if all are longer."""
        place = bisect_right(self.points, cap, key=lambda point: point.cmax)
        return self.points[place - 1] if place else None

    def balanced(self, references: Sequence[Rated] = ()) -> P:
        """The least cmax * total ** 2; the archive is not empty.

        Of the points that are no worse than the references in either criterion, if there are any.

        One number without a scale. The square, since a makespan is the end of one job, and a
        weighted completion the ends of all: a percent of it is harder to come by.
        """
        cmax = min((known.cmax for known in references), default=inf)
        total = min((known.total for known in references), default=inf)
        better = [point for point in self.points if point.cmax <= cmax and point.total <= total]
        return min(
            better or self.points, key=lambda point: (point.cmax * point.total**2, point.cmax)
        )

    def spread(self, most: int, needed: P | None = None) -> list[P]:
        """At most so many points: both ends, `needed`, and of the others the farthest apart.

        Points are dropped one by one: that which leaves the smallest area undominated between its
        neighbours, as ratios of both criteria.
        """
        kept = list(self.points)
        while len(kept) > max(most, 2 + (needed is not None)):
            losses = [
                (np.log(after.cmax / here.cmax) * np.log(before.total / here.total), n)
                for n, (before, here, after) in enumerate(
                    zip(kept, kept[1:], kept[2:], strict=False), start=1
                )
                if here is not needed
            ]
            kept.pop(min(losses)[1])
        return kept
