"""Dual feasible functions: what a width weighs so that no full machine weighs more than itself.

Every function here is superadditive on the integers 0..M: F(a) + F(b) <= F(a + b). So the weights
of what runs beside each other on m <= M slots sum to F(m) at most, also while m changes.

References
----------
Fekete, Schepers: New classes of fast lower bounds for bin packing problems. Mathematical
Programming 91 (2001): f_eps, u^(k).
Carlier, Clautiaux, Moukrim: New reduction procedures and lower bounds for the two-dimensional bin
packing problem with fixed orientation. Computers & Operations Research 34 (2007): the rounding
family. Clautiaux, Alves, Valerio de Carvalho: A survey of dual-feasible and superadditive
functions. Annals of Operations Research 179 (2010).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from coalloc.policies.bounds.supply import Floats, Ints

Weigh = Callable[[Floats | Ints], Floats]


def plain() -> Weigh:
    """F(n) = n: the area."""
    return lambda n: np.asarray(n, dtype=np.float64)


def large_and_small(size: int, least: int) -> Weigh:
    """f_eps: widths below `least` count nothing, those above size - least the whole size."""

    def weigh(n: Floats | Ints) -> Floats:
        return np.where(n < least, 0.0, np.where(n > size - least, float(size), n))

    return weigh


def rounded(size: int, step: int) -> Weigh:
    """f_2: floor(n / step), mirrored above half of the size; 1 <= step <= size / 2."""

    def weigh(n: Floats | Ints) -> Floats:
        below = 2.0 * np.floor(n / step)
        above = 2.0 * (size // step - np.floor((size - n) / step))
        middle = float(size // step)
        return np.where(2 * n < size, below, np.where(2 * n > size, above, middle))

    return weigh


def stepped(size: int, k: int) -> Weigh:
    """u^(k): floor((k + 1) n / size) / k, and n / size where (k + 1) n / size is whole."""

    def weigh(n: Floats | Ints) -> Floats:
        scaled = (k + 1.0) * n
        exact = np.remainder(scaled, size) == 0.0
        return np.where(exact, n / size * k, np.floor(scaled / size))

    return weigh


def floors(step: int) -> Weigh:
    """F(n) = floor(n / step), on any number of machines of any sizes."""
    return lambda n: np.floor(n / step)


def families(size: int, widths: Ints, most: int) -> Iterator[Weigh]:
    """Yield functions worth trying for these widths on a machine of this size.

    `most`: parameters of each family; spread over the widths where there are more.
    """
    yield plain()
    if size < 2 or not widths.size:
        return
    known = widths[(widths >= 1) & (widths <= size)]
    edges = np.unique(np.concatenate((known, size - known + 1, known + 1)))
    for least in _some(edges[(edges >= 2) & (2 * edges <= size)], most):
        yield large_and_small(size, int(least))
    yield large_and_small(size, size // 2)
    steps = np.unique(np.concatenate((known, size - known + 1)))
    for step in _some(steps[(steps >= 2) & (2 * steps <= size)], most):
        yield rounded(size, int(step))
    for k in range(1, 2 + most // 2):
        yield stepped(size, k)
    for step in _some(np.unique(known[2 * known > size]), 2):
        yield floors(int(step))


def _some(values: Ints, most: int) -> Ints:
    if values.size <= most:
        return values
    return values[np.linspace(0, values.size - 1, most).astype(np.int64)]
