"""The ways in which each item may run, as a lower bound sees them.

A *column* is an item with a number of processes, the band of power of its weakest node, and a shape
over clusters. What a column names is never more than what a placement of that kind takes, so a
quantity that is bounded for the best mix of columns is bounded for every schedule.

Notes
-----
``WHOLE``: the job is on one cluster and loads no link. ``SPLIT``: it is on several; these columns
differ by how large the largest part is. A column's *core* is the least that this part may be, and
no cluster takes more than the most. By equation (4) a link admits 0..w or n - w..n of n processes
(see `coalloc.model.split`), so counts between are left out. A large core leaves little
room beside it on its cluster, a small one loads the links: that is what the shapes are for.

Moldable items with many allotments have them joined into runs of similar counts: processes of the
smallest, seconds of the largest, and the smallest area of any.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from coalloc.policies.bounds.supply import Flags, Floats, Ints, Supply
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.modes import Mode, may_split, offered

WHOLE, SPLIT = 0, 1
SHARES = (0.25, 1 / 3, 0.5, 2 / 3, 0.8, 0.9)
"""Shares of a job at which sizes of its largest part are told apart."""
MODES, ALL_MODES = 32, 20_000
"""Allotments that are kept apart, of an item and of all."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Ways to run, sorted by item; P columns, N items, K clusters."""

    item: Ints
    procs: Ints
    band: Ints
    shape: Ints
    seconds: Floats
    """Shortest run time."""
    area: Floats
    """Smallest number of processes times seconds."""
    start: Floats
    """Earliest start on an empty platform, seconds from now."""
    core: Ints
    """Processes on one cluster, at least; 0 where no link cares."""
    most: Ints
    """Processes on each cluster, at most."""
    fits: Flags
    """Whether an item has any column; the others are not counted by any bound."""

    @cached_property
    def first(self) -> Ints:
        """First column of each item that has one."""
        return np.flatnonzero(np.diff(self.item, prepend=-1))

    def best(self, values: Floats) -> Floats:
        """Smallest value of each item that fits (last axis: columns)."""
        if not self.item.size:
            return np.zeros((*values.shape[:-1], 0))
        return np.asarray(np.minimum.reduceat(values, self.first, axis=-1))

    def kept(self, chosen: Flags) -> Columns:
        """Only some of the columns."""
        if chosen.all():
            return self
        names = (entry.name for entry in fields(self) if entry.name != "fits")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


def _thinned(modes: list[Mode], most: int) -> list[tuple[Mode, float]]:
    """Join modes into runs; with each the share of its area that is sure."""
    if len(modes) <= most:
        return [(mode, 1.0) for mode in modes]
    cuts = np.unique(
        np.searchsorted(
            [mode[0] for mode in modes], np.geomspace(modes[0][0], modes[-1][0], most)
        ).clip(0, len(modes) - 1)
    )
    out = []
    for a, b in zip(cuts, [*cuts[1:], len(modes)], strict=True):
        run = modes[a:b]
        scaled, fixed, comm = (min(mode[part] for mode in run) for part in (1, 2, 3))
        joined = (run[0][0], scaled, fixed, comm)
        whole = scaled + fixed + comm
        area = min(mode[0] * sum(mode[1:]) for mode in run)
        ratio = 1.0 if whole <= 0.0 else max(1.0, area / (joined[0] * whole))
        shares = [mode[1] / max(sum(mode[1:]), 1e-300) for mode in run]
        # Whether power changes the times of all modes by the same factor.
        out.append((joined, ratio if max(shares) - min(shares) <= 1e-12 else 1.0))
    return out


def _modes(planner: Planner, places: Floats, splits: Flags) -> Floats:
    """All allotments that could be chosen, 5 x M.

    Of each its item, processes, scaled and fixed seconds, and the share of its area that is sure.
    """
    problem = planner.compiled.problem
    comm = float(problem.inverse_intra.min(initial=np.inf)) if problem.inverse_intra.size else 0.0
    whole = places[:, :, -1, :].max(axis=(1, 2), initial=0.0)
    total = places[:, :, -1, :].sum(axis=-1).max(axis=1, initial=0.0)
    rows: list[tuple[int, int, float, float, float]] = []
    most = max(min(MODES, ALL_MODES // len(planner.items)), 2)
    for n, item in enumerate(planner.items):
        cap = int(total[item.group] if splits[n] else whole[item.group])
        rows += [
            (n, mode[0], mode[1], mode[2] + mode[3] * comm, ratio if item.limit == np.inf else 1.0)
            for mode, ratio in _thinned(offered(item, cap), most)
        ]
    return np.array(rows, dtype=np.float64).reshape(-1, 5).T


def low_sides(procs: Ints, gbps: Floats, capacity: Floats) -> Ints:
    """The count w of jobs and links, broadcast; `procs` where the link admits all."""
    n, half = procs.astype(np.float64), procs // 2
    with np.errstate(divide="ignore", invalid="ignore"):
        x = capacity * (n - 1.0) / gbps
        w = np.floor((n - np.sqrt(np.maximum(n * n - 4.0 * x, 0.0))) / 2.0 + 1e-7)
    free = (gbps <= 0.0) | (n <= 1.0) | (x >= half * (procs - half) * (1.0 - 1e-9))
    return np.where(free, n, np.nan_to_num(w)).astype(np.int64)


def make_columns(planner: Planner, supply: Supply, shapes: int = len(SHARES)) -> Columns:
    """List the columns of every item that can be placed at all.

    `shapes`: how many of `SHARES` are used; from the middle where there are fewer.
    """
    places = supply.places()
    items, clusters = planner.items, len(planner.snapshot.clusters)
    may = [may_split(item.job, planner.options, clusters) for item in items]
    splits = np.array(may, dtype=np.bool_)
    *whole, scaled, fixed, area_ratio = _modes(planner, places, splits)
    m, procs = (row.astype(np.int64) for row in whole)
    group = np.array([item.group for item in items], dtype=np.int64)
    gbps = np.array([item.proc_gbps if item.task is None else 0.0 for item in items])
    cap = places.max(axis=1, initial=0.0)[group[m]].astype(np.int64)  # M x B x K
    start = _starts(places, group[m], procs, supply, splits[m])
    possible = np.isfinite(start)
    parts = [_whole(procs, cap, possible)]
    links = supply.links.max(axis=0, initial=0.0)
    low = low_sides(procs[:, None], gbps[m][:, None], links)
    possible &= splits[m][:, None]
    loads = (gbps[m] > 0.0) & bool(np.isfinite(supply.links).any())
    parts.append(_split(procs, cap, low, possible & ~loads[:, None], 1.0, 0.0))
    edges = [0.0, *sorted(sorted(SHARES, key=lambda share: abs(share - 0.5))[:shapes]), 1.0]
    for a, b in pairwise(edges):
        parts.append(_split(procs, cap, low, possible & loads[:, None], b, a))
    row, band, shape, core, most = (np.concatenate(x) for x in zip(*parts, strict=True))
    order = np.lexsort((shape, band, row))
    row, band = row[order], band[order]
    seconds = scaled[row] / supply.top[band] + fixed[row]
    seconds = np.minimum(seconds, planner.compiled.problem.item_limit[m[row]])
    fits = np.zeros(len(items), dtype=np.bool_)
    fits[m[row]] = True
    return Columns(
        item=m[row],
        procs=procs[row],
        band=band,
        shape=shape[order],
        seconds=seconds,
        area=procs[row] * seconds * area_ratio[row],
        start=start[row, band],
        core=core[order],
        most=most[order],
        fits=fits,
    )


Part = tuple[Ints, Ints, Ints, Ints, Ints]
"""Mode, band, shape, core and most of columns."""


def _whole(procs: Ints, cap: Ints, possible: Flags) -> Part:
    row, band = np.nonzero((cap.max(axis=-1, initial=0) >= procs[:, None]) & possible)
    return row, band, np.full(row.size, WHOLE), procs[row], cap[row, band]


def _split(procs: Ints, cap: Ints, low: Ints, possible: Flags, share: float, above: float) -> Part:
    """Columns whose largest part is more than `above` and at most `share` of the job."""
    row, band = np.nonzero(possible)
    n, w = procs[row][:, None], low[row]
    most = np.minimum(cap[row, band], np.minimum(np.floor(n * share), n - 1).astype(np.int64))
    most = np.where((most > w) & (most < n - w), w, most)
    least = np.floor(n * above).astype(np.int64) + 1
    least = np.where(least <= w, least, np.maximum(least, n - w))
    core = np.where(most >= least, least, procs.max(initial=0) + 1).min(axis=-1, initial=1 << 62)
    if above <= 0.0:
        core = np.zeros_like(core) if share >= 1.0 else -(-n[:, 0] // cap.shape[-1])
    found = (most.sum(axis=-1) >= n[:, 0]) & (core < n[:, 0])
    row, band = row[found], band[found]
    return row, band, np.full(row.size, SPLIT), core[found], most[found]


def _starts(places: Floats, group: Ints, procs: Ints, supply: Supply, splits: Flags) -> Floats:
    """First step with enough places, by mode and band; infinite if there is none."""
    if not group.size:
        return np.zeros((0, supply.top.size))
    key, same = np.unique(np.stack((group, procs, splits)), axis=1, return_inverse=True)
    reach = np.where(
        key[2].astype(np.bool_)[:, None, None],
        places.sum(axis=-1)[key[0]],
        places.max(axis=-1, initial=0.0)[key[0]],
    )  # keys x T x B
    enough = reach >= key[1][:, None, None]
    first = np.where(enough.any(axis=1), supply.time[enough.argmax(axis=1)], np.inf)
    return np.asarray(first[same.ravel()])
