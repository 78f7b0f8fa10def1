"""Named tuples of arrays, as compiled code reads them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from coalloc.policies.kernel.jit import FLAGS
from coalloc.policies.kernel.linking import KernelCompiler
from coalloc.policies.kernel.record import record


@record
class Case(NamedTuple):
    """Fields of each kind."""

    numbers: Any  # 5
    table: Any  # 3 x 4
    cube: Any  # 2 x 3 x 4
    short: Any  # 4, of 32 bits
    flags: Any  # 4
    some: int
    share: float


def make() -> Case:
    return Case(
        numbers=np.array([3, 1, 4, 1, 5]),
        table=np.arange(12).reshape(3, 4),
        cube=np.arange(24.0).reshape(2, 3, 4),
        short=np.array([7, 6, 5, 4], dtype=np.int32),
        flags=np.array([True, False, False, True]),
        some=3,
        share=0.25,
    )


def read_and_write(case: Case, out: Any) -> Any:
    """From both ends, in one, two and three dimensions."""
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


def test_fields_are_read_and_written() -> None:
    compiled: Any = njit(pipeline_class=KernelCompiler, **FLAGS)(read_and_write)
    ours, theirs = make(), make()
    out, wanted = np.zeros(8), np.zeros(8)
    assert compiled(ours, out) == read_and_write(theirs, wanted)
    np.testing.assert_array_equal(out, wanted)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_arrays_with_gaps_are_refused() -> None:
    def first(case: Case) -> Any:
        return case.numbers[0]

    with pytest.raises(TypingError, match=r"Case\.numbers is no array without gaps"):
        njit(**FLAGS)(first)(make()._replace(numbers=np.arange(10)[::2]))
