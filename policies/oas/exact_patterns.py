"""Allocation patterns: every way of counting out a job's processes over the node classes.

A pattern fixes the mode, the processes on each class and with them the slowest class, so the run
time (equations (1)-(3)), and the load on each link (equation (4)). A pattern that takes no less of
anything and no less time than another one of the same job is dropped.

Where time is in slots and links may be saturated, a pattern that loads a link stands there once for
each number of slots that it may take: with the largest slowdown SC (equations (5)-(7)) that so many
slots allow, since a smaller one only takes away room from others.

Notes
-----
N items, P patterns, C classes, K clusters. A job of n processes has at most C(n + C - 1, C - 1)
patterns in each mode, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from coalloc.policies.array_types import Floats, Ints, firsts
from coalloc.policies.kernel.instance.arrays import Compiled
from coalloc.policies.kernel.state import FULL, MOST_LOAD, ROUNDING, SHORTEST, Base, Problem
from coalloc.policies.mip.cp_sat import UnfitError

MOST_OF_ITEM = 2000
"""Patterns of one item at most."""
MOST = 1000
"""Patterns of all items at most."""
COMPARED = 600
"""Patterns of an item up to which dominated ones are looked for."""
NEAR = 1e-9
"""By so much, relative, a run may pass the end of a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """The patterns of all items, those of an item by rising run time."""

    first: Ints
    """Range of each item in the others."""
    mode: Ints
    """Index into the item's modes."""
    procs: Ints
    """Processes, and units of the class (see `kinds`) that they take."""
    use: Ints
    load: Ints
    """Units of 2**-44 of the link's capacity."""
    seconds: Floats
    """Run time."""
    sc: Floats
    """By how much communication is slowed down."""
    shut: Ints
    """Set of the reservations that the pattern may not meet, as bits."""


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

    `inside` (P x K): processes on each cluster.
    `links`: capacities, Gbit/s.
    """
    procs = inside.sum(axis=1, keepdims=True)
    load = gbps * inside * (procs - inside) / np.maximum(procs - 1, 1)
    too_much = load >= links * (MOST_LOAD / FULL)
    with np.errstate(divide="ignore", invalid="ignore"):
        units = (np.where(too_much, 0.0, load / links) * FULL + 0.5).astype(np.int64)
    units = np.where(too_much, MOST_LOAD, units)
    return np.where((load <= 0.0) | np.isinf(links), 0, units)


def make_patterns(compiled: Compiled, threshold: float, slot: float | None) -> Patterns:
    """Enumerate the patterns of every item; links may be saturated where time is in slots.

    Raises `UnfitError`.
    """
    problem, parts, total = compiled.problem, list[Patterns](), 0
    for item in range(problem.item_group.size):
        parts.append(_of_item(problem, compiled.base, item, threshold, slot))
        total += parts[-1].mode.size
        if total > MOST:
            raise UnfitError(f"there are more than {MOST} allocation patterns")
        if not parts[-1].mode.size:
            raise UnfitError("a job has no allocation that the links carry")
    rows = {name: [getattr(part, name) for part in parts] for name in Patterns.__annotations__}
    joined = {name: np.concatenate(values) for name, values in rows.items() if parts}
    return Patterns(**{**joined, "first": firsts([part.mode.size for part in parts])})


def _of_item(
    problem: Problem, base: Base, item: int, threshold: float, slot: float | None
) -> Patterns:
    need = problem.need[problem.item_group[item]]
    room = np.where(need > 0, base.free[-1] // np.maximum(need, 1), 0)
    rows: list[tuple[int, ...]] = []
    modes: list[int] = []
    for mode in range(problem.mode_first[item], problem.mode_first[item + 1]):
        for row in _spread(problem, item, int(problem.mode_procs[mode]), room):
            rows.append(row)
            modes.append(mode)
            if len(rows) > MOST_OF_ITEM:
                raise UnfitError(f"a job has more than {MOST_OF_ITEM} allocation patterns")
    procs = np.array(rows, dtype=np.int64).reshape(-1, problem.class_power.size)
    chosen, sc = np.array(modes, dtype=np.int64), np.ones(len(procs))
    found = _selected(problem, item, procs, chosen, sc)
    if slot is not None and threshold > 1.0:
        which, sc = _slowdowns(problem, found, chosen, threshold, slot)
        procs, chosen = procs[which], chosen[which]
        found = _selected(problem, item, procs, chosen, sc)
    limit = (sc * FULL).astype(np.int64)[:, None] + ROUNDING
    carried = (found.load == 0) | (found.load + base.load[-1] <= limit)
    order = np.lexsort((procs @ problem.class_power, found.load.sum(axis=1), found.seconds))
    order = order[carried.all(axis=1)[order]]
    order = order[_undominated(found, order)] if order.size <= COMPARED else order
    return _selected(problem, item, procs[order], chosen[order], sc[order])


def _slowdowns(
    problem: Problem, found: Patterns, modes: Ints, most: float, slot: float
) -> tuple[Ints, Floats]:
    """Number the patterns once for each count of slots; the largest slowdown in these slots."""
    which: list[int] = []
    sc: list[float] = []
    loads = [any(row) for row in found.load.tolist()]
    fixed: list[float] = problem.mode_fixed[modes].tolist()
    for p, seconds in enumerate(found.seconds.tolist()):
        if not loads[p]:
            which.append(p)
            sc.append(1.0)
            continue
        slowed = max(fixed[p], 0.0)
        first = ceil(seconds / slot * (1.0 - NEAR))
        last = ceil((seconds + (most - 1.0) * slowed) / slot * (1.0 - NEAR))
        if len(which) + last - first >= MOST_OF_ITEM:
            raise UnfitError(f"a job has more than {MOST_OF_ITEM} allocation patterns")
        for slots in range(first, last + 1):
            more = slots * slot - seconds
            largest = most if slots == last else 1.0 + max(more, 0.0) / slowed
            which.append(p)
            sc.append(min(largest, most))
    return np.array(which, dtype=np.int64), np.array(sc)


def _spread(problem: Problem, item: int, procs: int, room: Ints) -> Iterator[tuple[int, ...]]:
    # a part of a split job loads its link with no less than one process does
    able = problem.item_gbps[item] * FULL <= problem.link_gbps * MOST_LOAD
    able &= bool(problem.item_splits[item])
    homes = [able] if able.any() else []
    homes += [np.arange(able.size) == k for k in np.flatnonzero(~able)]
    for home in homes:
        yield from counted(procs, np.where(home[problem.class_cluster], room, 0).tolist())


def _selected(problem: Problem, item: int, procs: Ints, modes: Ints, sc: Floats) -> Patterns:
    """Work out what these patterns of an item take."""
    clusters = problem.link_gbps.size
    inside = np.zeros((len(procs), clusters), dtype=np.int64)
    for c, k in enumerate(problem.class_cluster):
        inside[:, k] += procs[:, c]
    power = np.where(procs > 0, problem.class_power, np.inf).min(axis=1, initial=np.inf)
    seconds = problem.mode_scaled[modes] / power + problem.mode_fixed[modes] * sc
    seconds = np.minimum(seconds, problem.item_limit[item])
    gbps = float(problem.item_gbps[item])
    return Patterns(
        first=firsts([len(procs)]),
        mode=modes - problem.mode_first[item],
        procs=procs,
        use=procs * problem.need[problem.item_group[item]],
        load=load_units(gbps, inside, problem.link_gbps),
        seconds=np.maximum(seconds, SHORTEST),
        sc=sc,
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
    use, load, seconds, sc = (
        values[order] for values in (found.use, found.load, found.seconds, found.sc)
    )
    below = (seconds[:, None] <= seconds) & (sc[:, None] >= sc)
    below &= (use[:, None] <= use).all(axis=2) & (load[:, None] <= load).all(axis=2)
    np.fill_diagonal(below, False)
    below &= ~(below.T & np.tri(order.size, dtype=np.bool_))
    return np.flatnonzero(~below.any(axis=0))
