"""Values of a kernel that `lowering` keeps in parts, and writes out only where a use needs them."""

from __future__ import annotations

from typing import Any

from numba.core import types

from coalloc.policies.kernel.record import part_of


class Field:
    """An array in a record."""

    def __init__(self, record: Any, place: int, kind: types.Array) -> None:
        self.record, self.place, self.kind = record, place, kind
        self.loaded: dict[tuple[Any, int], Any] = {}

    def part(self, builder: Any, number: int) -> Any:
        """The address of the items (0) or a length (1, 2, ...); loaded once in a block."""
        key = builder.block, number
        if key not in self.loaded:
            self.loaded[key] = part_of(builder, self.record, self.place, number)
        return self.loaded[key]


class Struct:
    """An array as numba has it."""

    def __init__(self, whole: Any, kind: types.Array) -> None:
        self.whole, self.kind = whole, kind

    def part(self, builder: Any, number: int) -> Any:
        """The address of the items (0) or a length (1, 2, ...)."""
        return builder.extract_value(self.whole, 4 if number == 0 else (5, number - 1))


class Row:
    """A row of an array without counted references."""

    def __init__(self, parts: list[Any], kind: types.Array) -> None:
        self.parts, self.kind = parts, kind

    def part(self, builder: Any, number: int) -> Any:
        """The address of the items (0) or a length (1, 2, ...)."""
        return self.parts[number]


class Tuple:
    """Values beside each other."""

    def __init__(self, values: list[Any], kind: Any) -> None:
        self.values, self.kind = values, kind


class Range:
    """A `range` with a constant step; `at` is where its iterator keeps the next number."""

    def __init__(self, start: Any, stop: Any, step: int, at: Any = None) -> None:
        self.start, self.stop, self.step, self.at = start, stop, step, at
