"""Allocation patterns: every way of counting out a job's processes over the node classes.

A pattern fixes the mode, the processes on each class and with them the slowest class, so the run
time (equations (1)-(3)), and the load on each link (equation (4)). A pattern that takes no less of
anything and no less time than another one of the same job is dropped.

Notes
-----
N items, P patterns, C classes, K clusters. A job of n processes has at most C(n + C - 1, C - 1)
patterns in each mode, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.arrays import Compiled
from coalloc.policies.kernel.state import FULL, ROUNDING, SHORTEST, Base, Problem

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_OF_ITEM = 2000
"""Patterns of one item at most."""
MOST = 8000
"""Patterns of all items at most."""
COMPARED = 600
"""Patterns of an item up to which dominated ones are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """The patterns of all items, those of an item by rising run time.

    Attributes
    ----------
    first : N + 1
        Range of each item in the others.
    mode : P
        Index into the item's modes.
    procs, use : P x C
        Processes, and units of the class (see `kinds`) that they take.
    load : P x K
        Units of 2**-44 of the link's capacity.
    seconds : P
        Run time.
    shut : P
        Set of the reservations that the pattern may not meet, as bits.
    """

    first: Ints
    mode: Ints
    procs: Ints
    use: Ints
    load: Ints
    seconds: Floats
    shut: Ints


class TooManyError(Exception):
    """There are more patterns than can be searched."""


def counted(total: int, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to write `total` as a sum with terms of at most `room`."""
    behind = [0] * (len(room) + 1)
    for c in range(len(room) - 1, -1, -1):
        behind[c] = behind[c + 1] + room[c]

    def go(c: int, left: int) -> Iterator[tuple[int, ...]]:
        if c == len(room):
            yield ()
            return
        for here in range(max(0, left - behind[c + 1]), min(room[c], left) + 1):
            for rest in go(c + 1, left - here):
                yield (here, *rest)

    if 0 <= total <= behind[0]:
        yield from go(0, total)


def load_units(gbps: float, inside: Ints, links: Floats) -> Ints:
    """Equation (4) in units of the links' capacities, as the kernel counts them.

    Parameters
    ----------
    inside : P x K
        Processes on each cluster.
    links : K
        Capacities, Gbit/s.
    """
    procs = inside.sum(axis=1, keepdims=True)
    load = gbps * inside * (procs - inside) / np.maximum(procs - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        units = (np.where(load >= 8.0 * links, 0.0, load / links) * FULL + 0.5).astype(np.int64)
    units = np.where(load >= 8.0 * links, 8 * FULL, units)
    return np.where((load <= 0.0) | np.isinf(links), 0, units)


def make_patterns(compiled: Compiled) -> Patterns:
    """Enumerate the patterns of every item.

    Raises
    ------
    TooManyError
    """
    problem = compiled.problem
    parts: list[Patterns] = []
    total = 0
    for item in range(problem.item_group.size):
        parts.append(_of_item(problem, compiled.base, item))
        total += parts[-1].mode.size
        if total > MOST:
            raise TooManyError(f"there are more than {MOST} allocation patterns")
    joined = [*parts, _selected(problem, 0, _none(problem), _none(problem)[:, 0])]
    return Patterns(
        first=_firsts([part.mode.size for part in parts]),
        mode=np.concatenate([part.mode for part in joined]),
        procs=np.concatenate([part.procs for part in joined]),
        use=np.concatenate([part.use for part in joined]),
        load=np.concatenate([part.load for part in joined]),
        seconds=np.concatenate([part.seconds for part in joined]),
        shut=np.concatenate([part.shut for part in joined]),
    )


def _firsts(counts: Any) -> Ints:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)


def _none(problem: Problem) -> Ints:
    return np.zeros((0, problem.class_power.size), dtype=np.int64)


def _of_item(problem: Problem, base: Base, item: int) -> Patterns:
    need = problem.need[problem.item_group[item]]
    room = np.where(need > 0, base.free[-1] // np.maximum(need, 1), 0)
    rows: list[tuple[int, ...]] = []
    modes: list[int] = []
    for mode in range(problem.mode_first[item], problem.mode_first[item + 1]):
        for row in _spread(problem, item, int(problem.mode_procs[mode]), room):
            rows.append(row)
            modes.append(mode)
            if len(rows) > MOST_OF_ITEM:
                raise TooManyError(f"a job has more than {MOST_OF_ITEM} allocation patterns")
    procs = np.array(rows, dtype=np.int64) if rows else _none(problem)
    found = _selected(problem, item, procs, np.array(modes, dtype=np.int64))
    carried = (found.load == 0) | (found.load + base.load[-1] <= FULL + ROUNDING)
    order = np.lexsort((procs @ problem.class_power, found.load.sum(axis=1), found.seconds))
    order = order[carried.all(axis=1)[order]]
    order = order[_undominated(found, order)] if order.size <= COMPARED else order
    return _selected(problem, item, procs[order], np.array(modes, dtype=np.int64)[order])


def _spread(problem: Problem, item: int, procs: int, room: Ints) -> Iterator[tuple[int, ...]]:
    if problem.item_splits[item]:
        yield from counted(procs, room.tolist())
        return
    for k in range(problem.link_gbps.size):
        inside = np.where(problem.class_cluster == k, room, 0)
        yield from counted(procs, inside.tolist())


def _selected(problem: Problem, item: int, procs: Ints, modes: Ints) -> Patterns:
    """Work out what these patterns of an item take."""
    clusters = problem.link_gbps.size
    inside = np.zeros((len(procs), clusters), dtype=np.int64)
    for c, k in enumerate(problem.class_cluster):
        inside[:, k] += procs[:, c]
    power = np.where(procs > 0, problem.class_power, np.inf).min(axis=1, initial=np.inf)
    seconds = problem.mode_scaled[modes] / power + problem.mode_fixed[modes]
    gbps = float(problem.item_gbps[item]) if len(procs) else 0.0
    return Patterns(
        first=_firsts([len(procs)]),
        mode=modes - problem.mode_first[item],
        procs=procs,
        use=procs * problem.need[problem.item_group[item]] if len(procs) else procs,
        load=load_units(gbps, inside, problem.link_gbps),
        seconds=np.maximum(seconds, SHORTEST),
        shut=np.array([_shut(problem, item, row) for row in procs], dtype=np.int64),
    )


def _shut(problem: Problem, item: int, procs: Ints) -> int:
    """Reservations on the pattern's classes that do not let the item in."""
    group = problem.item_group[item]
    shut = 0
    for c in np.flatnonzero(procs):
        for r in problem.closed[problem.closed_first[c] : problem.closed_first[c + 1]].tolist():
            if not problem.exempt[group, r]:
                shut |= 1 << r
    return shut


def _undominated(found: Patterns, order: Ints) -> Ints:
    """Places in the order of patterns that no other one makes useless.

    Of equal ones the first is kept. With one mode all patterns have the same number of processes,
    so none can take less than another.
    """
    if order.size < 2 or (found.mode == found.mode[0]).all():
        return np.arange(order.size)
    use, load, seconds = found.use[order], found.load[order], found.seconds[order]
    below = seconds[:, None] <= seconds
    below &= (use[:, None] <= use).all(axis=2) & (load[:, None] <= load).all(axis=2)
    np.fill_diagonal(below, False)
    below &= ~(below.T & np.tri(order.size, dtype=np.bool_))
    return np.flatnonzero(~below.any(axis=0))
