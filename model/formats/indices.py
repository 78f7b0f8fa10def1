"""Indices of a job array, as light as their text, however many they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, groupby, pairwise

_PIECE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?", re.ASCII)


class Indices(Collection[int]):
    """Different indices in ascending order, as ranges none of which reaches into the next."""

    def __init__(self, ranges: Iterable[range]) -> None:
        self._ranges = tuple(filter(None, ranges))

    @classmethod
    def read(cls, text: str, most: float = float("inf")) -> Indices:
        """Indices and ranges with commas between: ``0-9,12,20-30:2``; each counts once.

        `ValueError`: it is none, or has more than `most`.
        """
        ranges: list[range] = []
        count = 0
        for piece in filter(None, text.split(",")) if text.strip(",") else [text]:
            found = _PIECE.fullmatch(piece.strip())
            if found is None:
                raise ValueError(f"{piece!r} is neither an index nor a range, as in 0-9,12,20-30:2")
            low, step = int(found[1]), int(found[3] or 1)
            high = int(found[2]) if found[2] else low
            if high < low or step < 1:
                raise ValueError(f"{piece!r} is an empty range")
            count += (high - low) // step + 1
            if count > most:
                raise ValueError(f"{text!r} has more than {most} indices")
            ranges.append(range(low, high + 1, step))
        ranges.sort(key=lambda r: r[0])
        if any(before[-1] >= after[0] for before, after in pairwise(ranges)):
            return cls.of(chain.from_iterable(ranges))
        return cls(ranges)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Indices:
        """Numbers that are not negative, each once."""
        if isinstance(numbers, range) and numbers.step > 0:
            return cls([numbers])
        found = sorted(set(numbers))
        steps = {after - before for before, after in pairwise(found)}
        if len(steps) == 1:
            return cls([range(found[0], found[-1] + 1, steps.pop())])
        runs = groupby(enumerate(found), lambda pair: pair[1] - pair[0])
        rows = ([number for _, number in run] for _, run in runs)
        return cls(range(row[0], row[-1] + 1) for row in rows)

    def __len__(self) -> int:
        return sum(map(len, self._ranges))

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._ranges)

    def __contains__(self, index: object) -> bool:
        return any(index in one for one in self._ranges)

    def __str__(self) -> str:
        return ",".join(
            str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" + (f":{r.step}" * (r.step > 1))
            for r in self._ranges
        )

    @property
    def bounds(self) -> tuple[int, int, int]:
        """The lowest, the highest, and the step between all of them, or 1 where that varies."""
        step = self._ranges[0].step if len(self._ranges) == 1 else 1
        return self._ranges[0][0], self._ranges[-1][-1], step

    def split(self, count: int) -> tuple[list[int], Indices]:
        first: list[int] = []
        left: list[range] = []
        for one in self._ranges:
            taken = one[: count - len(first)]
            first += taken
            left.append(one[len(taken) :])
        return first, Indices(left)

    def without(self, index: int) -> Indices:
        halves = (
            (r[: r.index(index)], r[r.index(index) + 1 :]) if index in r else (r,)
            for r in self._ranges
        )
        return Indices(chain.from_iterable(halves))
