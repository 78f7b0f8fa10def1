"""Compiled functions do what Python does, though their code is not written by numba."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core.errors import UnsupportedError

from coalloc.policies.kernel.jit import FLAGS
from coalloc.policies.kernel.linking import LeanCompiler
from coalloc.policies.kernel.record import record

jit: Any = njit(pipeline_class=LeanCompiler, _nrt=False, **FLAGS)  # type: ignore[call-overload]


@record
class Case(NamedTuple):
    """Fields of each kind."""

    numbers: Any  # 5
    table: Any  # 3 x 4
    cube: Any  # 2 x 3 x 4
    short: Any  # 4, of 32 bits
    flags: Any  # 4
    loads: Any  # 3
    some: int
    share: float


def make() -> Case:
    return Case(
        numbers=np.array([3, 1, 4, 1, 5]),
        table=np.arange(12).reshape(3, 4),
        cube=np.arange(24.0).reshape(2, 3, 4),
        short=np.array([7, 6, 5, 4], dtype=np.int32),
        flags=np.array([True, False, False, True]),
        loads=np.array([0.5, nan, -1.0]),
        some=3,
        share=0.25,
    )


def indices(case: Case, out: Any) -> Any:
    """Reads and writes from both ends, in one, two and three dimensions."""
    last = -1
    out[0] = case.numbers[last] + 10 * case.table[1, last] + 100 * case.table[last, -2]
    case.table[case.some - 1, 0] = 77
    case.short[1] = case.numbers[2] + 2
    case.flags[last - 1] = True
    case.cube[1, 2, 3] = case.share + case.cube[0, last, 1]
    row = case.table[case.some - 1]
    row[1] = 5
    plane = case.cube[1]
    plane[0, 0] = -1.0
    out[1] = row[0] + plane[0, 0] + case.cube[1][2][3] + row.size + plane.size
    rows, columns = case.table.shape
    out[2] = rows + 10 * columns + 100 * case.cube.shape[1] + 1000 * len(plane)
    return int(case.short[1]) + case.short[last]


def loops(case: Case, out: Any) -> Any:
    """Ranges that rise, fall, are empty and change what they were made of."""
    total, stop = 0, case.some
    for x in range(stop):
        stop = 100
        for y in range(x, 5, 2):
            total = 3 * total + y
        for y in range(x, 0, -1):
            total = 5 * total - y
        for y in range(case.some, 1):
            total = -1000 - y
    for number in case.numbers:
        if number == 4:
            continue
        total += number
        if number == 5:
            break
    out[0] = x + y
    return total


def variables(case: Case, out: Any) -> Any:
    """Values that reach a use by several ways, and names for fields."""
    head, total, loads = -1, 0, case.loads
    for x in range(4):
        if case.flags[x]:
            seen = case.short[x]
            head = x
        if head >= 0:
            total = total * 10 + seen
        first, second = (x, total) if x % 2 else (total, x)
        out[x] = first - second
    return total if loads[0] > case.share else head


def choices(case: Case, out: Any) -> Any:
    """The smaller and the larger of numbers of several types, and of some that compare to none."""
    for x in range(case.loads.size):
        out[x] = min(case.loads[x], 0.0) + 10.0 * max(case.share, min(case.loads[x], 5))
        out[3 + x] = min(0.0, case.loads[x])
    out[6] = max(case.loads[1], case.loads[0])
    out[7] = min(case.short[0], case.numbers[0]) + max(case.short[3], 3)
    return max(inf, case.loads[1], 1.0)


@pytest.mark.parametrize("function", [indices, loops, variables, choices])
def test_compiled_functions_do_what_python_does(function: Callable[[Case, Any], float]) -> None:
    compiled = jit(function)
    ours, theirs = make(), make()
    out, wanted = np.zeros(8), np.zeros(8)
    result = compiled(ours, out)
    assert result == function(theirs, wanted)
    np.testing.assert_array_equal(out, wanted)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_range_that_is_kept_is_refused() -> None:
    def kept(n: int) -> int:
        numbers = range(n) if n > 3 else range(3)
        total = 0
        for x in numbers:
            total += x
        return total

    with pytest.raises(UnsupportedError, match="not looped over at once"):
        jit(kept)(2)
