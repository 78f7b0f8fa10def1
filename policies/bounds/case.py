"""Everything the bounds look at, read once from a planner.

Notes
-----
An item starts no earlier than its release, than there is room for it on an otherwise empty
platform, and than each of its parents can have ended. Its tail is the longest chain of shortest run
times behind it. Data that move between tasks are taken to take no time, since parent and child may
use the same clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from coalloc.policies.bounds.columns import WHOLE, Columns, make_columns
from coalloc.policies.bounds.exclusion import (
    Sets,
    best_weights,
    heaviest,
    heaviest_by_width,
    heaviest_clique,
    links_exclude,
)
from coalloc.policies.bounds.rows import (
    BoundRow,
    Domain,
    cluster_rows,
    domains,
    least_load,
    link_rows,
    plain_prices,
    slot_rows,
)
from coalloc.policies.bounds.supply import Flags, Floats, Ints, Supply, read_supply
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.graph import graph_of

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Effort of the bounds."""

    steps: int
    """Steps of the supply, bands of power and sets of classes that are kept apart."""
    bands: int
    domains: int
    functions: int
    """Parameters of each family of dual feasible functions."""
    runs: int
    """Runs of counts in the test of a pair on the links; 0 compares loads only."""
    seeds: int
    """First members from which cliques are grown."""
    rounds: int
    """Of the search for prices."""
    rows: int
    """Rows that this search keeps."""
    together: int
    """Widest items whose sets that can run together are searched."""
    shapes: int
    """Sizes of the largest part of a split job that are told apart."""
    thorough: bool
    """Whether clusters are bins at every power, each link is a row of its own, and rows that know
    slots only are mixed apart from the others."""


EFFORTS = {
    "quick": Effort(
        steps=48, bands=4, domains=2, functions=1, runs=0, seeds=2, rounds=24, rows=12,
        together=0, shapes=1, thorough=False,
    ),
    "full": Effort(
        steps=256, bands=24, domains=12, functions=24, runs=16, seeds=24, rounds=1500, rows=96,
        together=48, shapes=6, thorough=True,
    ),
    "many": Effort(
        steps=96, bands=8, domains=4, functions=4, runs=0, seeds=8, rounds=200, rows=32,
        together=0, shapes=2, thorough=False,
    ),
}  # fmt: skip
MANY, VERY_MANY = 400, 2000
"""Items from which ``full`` goes less far, and no further than ``quick``."""
PAIRED = 400
"""Items that are compared in pairs: the widest."""
SEARCHES, CLUSTER_SEARCHES = 50, 100
"""Searches for a heaviest set of items that can run together, anywhere and on each cluster."""
WIDE = 1_000_000
"""Items times slots up to which the latter are."""


def effort_for(name: str, items: int) -> Effort:
    """Bound the memory that rows and columns take together."""
    if name == "quick" or items > VERY_MANY:
        return EFFORTS["quick"]
    return EFFORTS["many" if items > MANY else name]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCase:
    """A planner's items and platform, relaxed."""

    planner: Planner
    effort: Effort
    supply: Supply
    columns: Columns
    heads: Heads
    items: Ints
    """The items that are counted, rising; all arrays by item below follow it."""
    gbps: Floats
    domains: list[Domain]

    @property
    def shortest(self) -> Floats:
        """Run time of each counted item."""
        return self.heads.shortest[self.items]


def read_case(planner: Planner, effort: str) -> BoundCase:
    """Read supply, columns and heads; leave out what cannot be placed."""
    chosen = effort_for(effort, len(planner.items))
    supply = read_supply(planner, chosen.steps, chosen.bands)
    columns = make_columns(planner, supply, chosen.shapes)
    heads = read_heads(planner, columns)
    columns = columns.kept(heads.counted[columns.item])
    columns = replace(columns, start=np.maximum(columns.start, heads.start[columns.item]))
    group = np.array([item.group for item in planner.items], dtype=np.int64)[columns.item]
    gbps = np.array([item.proc_gbps for item in planner.items], dtype=np.float64)[columns.item]
    return BoundCase(
        planner=planner,
        effort=chosen,
        supply=supply,
        columns=columns,
        heads=heads,
        items=columns.item[columns.first],
        gbps=gbps,
        domains=domains(supply, group, chosen.domains),
    )


def _link_side(case: BoundCase) -> list[BoundRow]:
    """Rows of the links."""
    if not np.isfinite(case.supply.links).any() or not (case.gbps > 0.0).any():
        return []
    prices = plain_prices(case.supply, case.effort.thorough)
    out: list[BoundRow] = []
    for domain in case.domains:
        out += link_rows(case.columns, case.supply, domain, case.gbps, prices)
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """Pairs of the widest items that exclude each other."""

    among: Ints
    """Places in the case's items."""
    pairs: Flags
    """Symmetric."""


def _exclusion(case: BoundCase) -> Excluded:
    """Items that have more processes together than there are slots."""
    procs = case.columns.best(case.columns.procs.astype(np.float64))
    among = np.sort(np.argsort(-procs, kind="stable")[:PAIRED])
    total = case.supply.slots.sum(axis=1).max(initial=0.0)
    pairs = np.asarray(procs[among, None] + procs[None, among] > total)
    np.fill_diagonal(pairs, False)
    return Excluded(among=among, pairs=pairs)


def _exclusion_by_links(case: BoundCase, known: Excluded, stop: Stop) -> Excluded:
    """The same with what any two of their splits would load on the links."""
    columns, supply, among = case.columns, case.supply, known.among
    links = supply.links.max(axis=0, initial=0.0)
    out = known.pairs.copy()
    loaded = np.zeros(among.size, dtype=np.bool_)
    for price in plain_prices(supply, False):
        usable = np.where(np.isfinite(links), price, 0.0)
        load = columns.best(least_load(columns, case.gbps, usable))[among]
        limit = float(np.where(usable > 0.0, links, 0.0) @ usable) * (1.0 + 1e-9)
        both = load[:, None] + load[None, :] > limit
        out |= both & (load[:, None] > 0.0) & (load[None, :] > 0.0)
        loaded |= load > 0.0
    if case.effort.runs and loaded.any():
        pairs = np.argwhere(np.triu(~out & loaded[:, None] & loaded[None, :], 1))
        found = links_exclude(
            columns.best(columns.procs.astype(np.float64)).astype(np.int64)[among],
            case.gbps[columns.first][among],
            np.maximum.reduceat(columns.most, columns.first, axis=0)[among],
            links,
            supply.by_band(supply.slots)[:, -1].max(axis=0).astype(np.int64),
            pairs,
            case.effort.runs,
            stop,
        )
        out[pairs[found, 0], pairs[found, 1]] = True
        out[pairs[found, 1], pairs[found, 0]] = True
    np.fill_diagonal(out, False)
    return Excluded(among=among, pairs=out)


def _clique_row(case: BoundCase, excluded: Excluded, family: str) -> list[BoundRow]:
    """One after the other: the weight of each member is 1, and so is the supply."""
    weight = case.shortest[excluded.among]
    found = heaviest_clique(excluded.pairs, weight, case.effort.seeds)
    members = case.items[excluded.among[found]]
    if members.size < 2:
        return []
    amount = np.where(np.isin(case.columns.item, members), case.columns.seconds, 0.0)
    return [BoundRow(family=family, amount=amount, supply=np.ones(case.supply.time.size))]


def sides(case: BoundCase, stop: Stop) -> tuple[list[BoundRow], list[BoundRow], Excluded]:
    """Rows that know slots only, other rows, and the pairs that exclude each other.

    The rows of sets are not among them: these are made for what the others prove.
    """
    excluded, last, most = _exclusion(case), case.supply.top.size - 1, case.effort.functions
    bands = range(0 if case.effort.thorough else last, last + 1)
    slots, others = list[BoundRow](), list[BoundRow]()
    for domain in case.domains:
        slots += slot_rows(case.columns, case.supply, domain, most)
        # of jobs that stay, or whose cores stay, on one cluster
        others += cluster_rows(case.columns, case.supply, domain, bands, most)
    slots += _clique_row(case, excluded, "exclusion")
    links = _link_side(case)
    others += links
    if links:
        excluded = _exclusion_by_links(case, excluded, stop)
        others += _clique_row(case, excluded, "exclusion_by_links")
    return slots, others, excluded


def sets_rows(case: BoundCase, excluded: Excluded, known: float, stop: Stop) -> list[BoundRow]:
    """Weights made for the items at hand: see `coalloc.policies.bounds.exclusion`.

    They are sought as long as they may prove more than is known, seconds from now.
    """
    rows = _sets_row(case, excluded, known, stop)
    return rows + _cluster_sets_row(case, known, stop) if case.effort.thorough else rows


def _sets_row(case: BoundCase, excluded: Excluded, known: float, stop: Stop) -> list[BoundRow]:
    """The widest items."""
    columns, supply = case.columns, case.supply
    procs = columns.best(columns.procs.astype(np.float64))[excluded.among]
    chosen = np.argsort(-procs, kind="stable")[: case.effort.together]
    among = excluded.among[chosen]
    seconds = case.shortest[among]
    slots = float(supply.slots.sum(axis=1).max(initial=0.0))
    if chosen.size < 2 or not slots or not (seconds > 0.0).all():
        return []
    need = [procs[chosen] / slots]
    links = supply.links.max(axis=0, initial=0.0)
    finite = np.where(np.isfinite(links), 1.0, 0.0)
    capacity = float(np.where(np.isfinite(links), links, 0.0).sum()) * (1.0 + 1e-9)
    if capacity > 0.0:
        need.append(columns.best(least_load(columns, case.gbps, finite))[among] / capacity)
    pairs = excluded.pairs[np.ix_(chosen, chosen)]
    clique = np.zeros(chosen.size)
    clique[heaviest_clique(pairs, seconds, case.effort.seeds)] = 1.0
    sets = Sets(need=np.stack(need, axis=1), excluded=pairs)
    starts = [start * seconds for start in (procs[chosen], clique) if start.any()]
    _, value = best_weights(
        seconds[None], lambda _, price: heaviest(sets, price), starts, SEARCHES, known, stop
    )
    of_item = np.zeros(len(case.planner.items))
    of_item[case.items[among]] = value / seconds
    amount = of_item[columns.item] * columns.seconds
    return [BoundRow(family="sets", amount=amount, supply=np.ones(supply.time.size))]


def _cluster_sets_row(case: BoundCase, known: float, stop: Stop) -> list[BoundRow]:
    """All items, weighed for sets that fit on a cluster; none where one may be split or molded."""
    columns, supply = case.columns, case.supply
    free = supply.by_band(supply.slots).astype(np.int64)  # T x B x K
    slots = free.max(axis=0)
    counts = columns.procs.astype(np.float64)
    procs = columns.best(counts).astype(np.int64)
    molded = (procs != -columns.best(-counts)).any()
    if (columns.shape != WHOLE).any() or molded or procs.size * slots[-1].sum() > WIDE:
        return []
    fits = slots[columns.band] >= columns.procs[:, None]
    seconds = columns.best(np.where(fits, columns.seconds[:, None], np.inf).T)  # K x N
    if not (seconds > 0.0).all():
        return []

    def heaviest_set(k: int, weight: Floats) -> tuple[Ints, float]:
        top, members = heaviest_by_width(procs, weight, int(slots[-1, k]))
        return members, float(top[-1])

    _, value = best_weights(seconds, heaviest_set, [], CLUSTER_SEARCHES, known, stop)
    taken = np.zeros(supply.time.size)
    for k in range(slots.shape[1]):
        taken += heaviest_by_width(procs, value / seconds[k], int(slots[-1, k]))[0][free[:, -1, k]]
    of_item = np.zeros(len(case.planner.items))
    of_item[case.items] = value
    return [BoundRow(family="cluster_sets", amount=of_item[columns.item], supply=taken)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Of the N items, seconds from now; items without a column count nothing."""

    start: Floats
    """No earlier in any schedule."""
    end: Floats
    shortest: Floats
    """Run time."""
    tail: Floats
    """From the end of the item to the end of the last one that waits for it."""
    counted: Flags
    """Whether the item, and all it waits for, can be placed."""

    @property
    def longest(self) -> float:
        """The longest chain: head, item and tail."""
        return float(np.where(self.counted, self.end + self.tail, 0.0).max(initial=0.0))


def read_heads(planner: Planner, columns: Columns) -> Heads:
    """Walk the precedence forwards for starts, and backwards for tails."""
    items, now = planner.items, planner.snapshot.time
    start = np.array([max(item.release - now, 0.0) for item in items])
    end, shortest, tail = np.zeros((3, len(items)))
    begins = np.maximum(columns.start, start[columns.item])
    shortest[columns.fits] = columns.best(columns.seconds)
    start[columns.fits] = columns.best(begins)
    end[columns.fits] = columns.best(begins + columns.seconds)
    counted = columns.fits.copy()
    order = graph_of(items).order.tolist() if any(item.parents for item in items) else []
    first = np.append(columns.first, columns.item.size)
    place = np.cumsum(columns.fits) - 1
    for n in order:
        parents = [p for p, _ in items[n].parents]
        counted[n] &= bool(counted[parents].all())
        start[n] = max(start[n], end[parents].max(initial=0.0))
        if columns.fits[n]:
            mine = slice(first[place[n]], first[place[n] + 1])
            begins = np.maximum(columns.start[mine], start[n])
            start[n], end[n] = begins.min(), (begins + columns.seconds[mine]).min()
    for n in reversed(order):
        if counted[n]:
            for parent, _ in items[n].parents:
                tail[parent] = max(tail[parent], shortest[n] + tail[n])
    return Heads(start=start, end=end, shortest=shortest, tail=tail, counted=counted)
