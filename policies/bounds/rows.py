"""Rows: what running jobs take at every instant, and how much of it there is.

A row gives each column a weight such that the weights of what runs at any instant t sum to
supply(t) at most. So until a horizon the items take weight times seconds, their *amount*, of the
integral of the supply.

Notes
-----
By equation (4), t of n processes inside a cluster load its link with h(t) = b t (n - t) / (n - 1),
which is concave. With prices z on the links the cheapest split of a job is a linear price on a
polytope's vertices: all clusters but one take nothing or all they can.

`least_load` replaces h by the chord from 0 to the most that a cluster takes, which is below h, and
fills clusters by rising slope. Where all links have the same price it fills the largest cluster
first and charges h itself: the sum of t (n - t) is n^2 less the sum of squares, which a largest
first filling makes largest, so this is exact but for the counts that a link does not admit.

*Widths.* Dual feasible functions say what a width weighs so that no full machine weighs more than
itself. Each of ours is superadditive on the integers 0..M: F(a) + F(b) <= F(a + b). So the
weights of what runs beside each other on m <= M slots sum to F(m) at most, also while m changes.

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coalloc.policies.bounds.columns import SPLIT, Columns
from coalloc.policies.bounds.supply import Flags, Floats, Ints, Supply


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """One row before it is stacked with others."""

    family: str
    amount: Floats
    supply: Floats

    @property
    def counts(self) -> bool:
        """Whether there is demand, and supply."""
        return bool(self.supply.max(initial=0.0) > 0.0 and self.amount.any())


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRows:
    """R rows over P columns and T steps."""

    family: tuple[str, ...]
    """Which kind of bound each row is."""
    amount: Floats
    supply: Floats
    time: Floats

    def kept(self, chosen: Ints | Flags) -> BoundRows:
        """Only some rows, in that order."""
        index = np.arange(len(self.family))[chosen]
        return BoundRows(
            family=tuple(self.family[r] for r in index),
            amount=self.amount[index],
            supply=self.supply[index],
            time=self.time,
        )


def stack(rows: Sequence[BoundRow], columns: Columns, supply: Supply) -> BoundRows:
    """Put rows on each other; those without demand or without supply are left out."""
    rows = [row for row in rows if row.counts]
    return BoundRows(
        family=tuple(row.family for row in rows),
        amount=np.array([row.amount for row in rows]).reshape(-1, columns.item.size),
        supply=np.array([row.supply for row in rows]).reshape(-1, supply.time.size),
        time=supply.time,
    )


def integral(supply: Floats, time: Floats) -> Floats:
    """Integrate a staircase (last axis) from now to each of its steps."""
    steps = supply[..., :-1] * np.diff(time)
    zero = np.zeros((*supply.shape[:-1], 1))
    return np.concatenate((zero, steps.cumsum(axis=-1)), axis=-1)


def integral_at(supply: Floats, time: Floats, at: float) -> Floats:
    """Integrate each staircase from now to a time: R."""
    step = max(int(np.searchsorted(time, at, side="right")) - 1, 0)
    whole = integral(supply, time)[..., step]
    return np.asarray(whole + supply[..., step] * max(at - time[step], 0.0))


def reached(supply: Floats, time: Floats, demand: Floats) -> Floats:
    """Return when the integral of each staircase reaches its demand, seconds from now: R.

    Infinite where it never does.
    """
    total = integral(supply, time)
    step = np.maximum((total < demand[:, None]).sum(axis=1) - 1, 0)
    row = np.arange(step.size)
    rate = supply[row, step]
    rest = demand - total[row, step]
    with np.errstate(divide="ignore", invalid="ignore"):
        late = np.where(rest > 0.0, rest / rate, 0.0)
    return np.where(demand > 0.0, time[step] + late, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Items that may use only certain classes: their columns, and slots over time (T x C)."""

    columns: Flags
    slots: Floats
    cluster: Flags


def domains(supply: Supply, groups: Ints, most: int) -> list[Domain]:
    """Sets of classes to which some of the items are confined; first all that are used.

    `groups`: group of each column's item.
    """
    allowed = np.asarray(supply.open.any(axis=1))
    used = np.unique(groups)
    sets = {allowed[used].any(axis=0).tobytes(): allowed[used].any(axis=0)}
    for g in sorted(used, key=lambda g: int(allowed[g].sum())):
        sets.setdefault(allowed[g].tobytes(), allowed[g])
    out = []
    for inside in list(sets.values())[:most]:
        members = used[~(allowed[used] & ~inside).any(axis=1)]
        opened = supply.open[members].any(axis=0) & inside
        cluster = np.zeros(supply.links.shape[1], dtype=np.bool_)
        cluster[supply.cluster[inside]] = True
        chosen = np.isin(groups, members)
        out.append(Domain(columns=chosen, slots=supply.slots * opened, cluster=cluster))
    return out


def slot_rows(
    columns: Columns, supply: Supply, domain: Domain, functions: int
) -> Iterator[BoundRow]:
    """Slots of the strongest bands down to each: a column of band b takes them for all b' >= b."""
    free = supply.by_band(domain.slots).sum(axis=-1)  # T x B
    for band in range(supply.top.size):
        inside = domain.columns & (columns.band <= band)
        slots = free[:, band]
        size = int(slots.max(initial=0.0))
        if not inside.any() or size < 1:
            continue
        widths = np.unique(columns.procs[inside])
        for number, weigh in enumerate(families(size, widths, functions)):
            seconds = columns.area if number == 0 else weigh(columns.procs) * columns.seconds
            name = "area" if number == 0 else "widths"
            yield BoundRow(family=name, amount=np.where(inside, seconds, 0.0), supply=weigh(slots))


def cluster_rows(
    columns: Columns, supply: Supply, domain: Domain, bands: range, functions: int
) -> Iterator[BoundRow]:
    """Clusters as bins: what stands on one of them is the core of a job."""
    free = supply.by_band(domain.slots)  # T x B x K
    for band in bands:
        inside = domain.columns & (columns.band <= band) & (columns.core > 0)
        size = int(free[:, band].max(initial=0.0))
        if not inside.any() or size < 1:
            continue
        widths = np.unique(columns.core[inside])
        trial = families(size, widths, functions)
        next(trial)
        for weigh in trial:
            amount = np.where(inside, weigh(np.minimum(columns.core, size)) * columns.seconds, 0.0)
            yield BoundRow(
                family="clusters", amount=amount, supply=weigh(free[:, band]).sum(axis=-1)
            )


def least_load(columns: Columns, gbps: Floats, price: Floats) -> Floats:
    """Smallest sum of price times load of each column, over all splits that it stands for: P.

    `gbps`: bandwidth of one process.
    `price`: of a Gbit/s on each link, at least 0.
    """
    out = np.zeros(columns.item.size)
    row = np.flatnonzero((columns.shape == SPLIT) & (gbps > 0.0) & (columns.procs > 1))
    if not row.size:
        return out
    n = columns.procs[row, None].astype(np.float64)
    upper = np.minimum(columns.most[row].astype(np.float64), n - 1.0)
    equal = price.min(initial=np.inf) == price.max(initial=0.0)
    slope = price[None, :] * (n - upper) / (n - 1.0)
    order = np.argsort(np.where(upper > 0.0, slope, np.inf), axis=1, kind="stable")
    upper = np.take_along_axis(upper, order, axis=1)
    before = np.cumsum(upper, axis=1) - upper
    take = np.clip(n - before, 0.0, upper)
    if equal:
        load = price[0] * (take * (n - take)).sum(axis=1) / (n[:, 0] - 1.0)
    else:
        load = (take * np.take_along_axis(slope, order, axis=1)).sum(axis=1)
    out[row] = load * gbps[row]
    return out


def link_rows(
    columns: Columns, supply: Supply, domain: Domain, gbps: Floats, prices: list[Floats]
) -> Iterator[BoundRow]:
    """Load of all links, each at its price, against their capacity at that price."""
    for price in prices:
        usable = np.where(domain.cluster & np.isfinite(supply.links).all(axis=0), price, 0.0)
        if not usable.any():
            continue
        load = np.where(domain.columns, least_load(columns, gbps, usable), 0.0)
        capacity = np.where(usable > 0.0, supply.links, 0.0) @ usable
        if capacity.max(initial=0.0) <= 0.0:
            continue
        yield BoundRow(family="links", amount=load * columns.seconds, supply=capacity)


def plain_prices(supply: Supply, singly: bool) -> list[Floats]:
    """All links alike; each by its capacity; and each link by itself if `singly`."""
    links = supply.links.max(axis=0, initial=0.0)
    out = [np.ones(links.size)]
    with np.errstate(divide="ignore"):
        share = np.where((links > 0.0) & np.isfinite(links), 1.0 / links, 0.0)
    if share.any() and share.min() != share.max():
        out.append(share)
    if singly and links.size > 1:
        out += list(np.eye(links.size))
    return out


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
