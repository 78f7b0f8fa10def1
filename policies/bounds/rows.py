"""Rows: what running jobs take at every instant, and how much of it there is.

A row gives each column a weight such that the weights of what runs at any instant t sum to
supply(t) at most. So until a horizon the items take weight times seconds, their *amount*, of the
integral of the supply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coalloc.policies.bounds.columns import Columns
from coalloc.policies.bounds.supply import Flags, Floats, Ints, Supply
from coalloc.policies.bounds.widths import families


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
