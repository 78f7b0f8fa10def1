"""The ways in which each item may run, as a lower bound sees them.

A *column* is an item with a number of processes, the band of power of its weakest node, and a shape
over clusters. What a column names is never more than what a placement of that kind takes, so a
quantity that is bounded for the best mix of columns is bounded for every schedule.

Notes
-----
``WHOLE``: the job is on one cluster and loads no link. ``SPLIT``: it is on several. By equation (4)
a link admits 0..w or n - w..n of n processes (see `coalloc.policies.kernel.split`). So a split job
either has more than half a cluster's share in one place, at least n - w processes, its *core*, or
no cluster holds more than w of it, and the core is 0.

Moldable items with many allotments have them joined into runs of similar counts: processes of the
smallest, seconds of the largest, and the smallest area of any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coalloc.model.jobs import MoldableJob
from coalloc.policies.bounds.supply import Flags, Floats, Ints, Supply
from coalloc.policies.kernel.decoding import Planner
from coalloc.policies.kernel.modes import Item, Mode, offered

WHOLE, SPLIT = 0, 1
MODES = 32
"""Allotments of an item that are kept apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Ways to run, sorted by item; P columns, N items, K clusters.

    Attributes
    ----------
    item, procs, band, shape : P
    seconds : P
        Shortest run time.
    area : P
        Smallest number of processes times seconds.
    start : P
        Earliest start on an empty platform, seconds from now.
    core : P
        Processes on one cluster, at least.
    most : P x K
        Processes that a split puts on a cluster, at most.
    low : P x K
        The number w of each link.
    fits : N
        Whether an item has any column; the others are not counted by any bound.
    """

    item: Ints
    procs: Ints
    band: Ints
    shape: Ints
    seconds: Floats
    area: Floats
    start: Floats
    core: Ints
    most: Ints
    low: Ints
    fits: Flags

    @property
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
        return Columns(
            **{
                name: getattr(self, name)[chosen]
                for name in self.__slots__
                if name not in ("fits",)
            },
            fits=self.fits,
        )


def may_split(item: Item, planner: Planner) -> bool:
    """Whether the rules let an item use several clusters, whatever a policy would do."""
    if planner.options.get("coallocation") == "forbidden":
        return False
    if len(planner.snapshot.clusters) < 2:
        return False
    if isinstance(item.job, MoldableJob) and item.job.proc_gbps is None:
        return planner.options.get("coallocate_moldable") is True
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Modes:
    """Allotments of all items, flat: M of them."""

    item: Ints
    procs: Ints
    scaled: Floats
    fixed: Floats
    area_ratio: Floats


def _thinned(modes: list[Mode]) -> list[tuple[Mode, float]]:
    """Join modes into runs; with each the share of its area that is sure."""
    if len(modes) <= MODES:
        return [(mode, 1.0) for mode in modes]
    cuts = np.unique(
        np.searchsorted(
            [mode[0] for mode in modes], np.geomspace(modes[0][0], modes[-1][0], MODES)
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
        out.append((joined, ratio if _scales_alike(run) else 1.0))
    return out


def _scales_alike(run: list[Mode]) -> bool:
    """Whether power changes the times of all modes by the same factor."""
    shares = [mode[1] / max(sum(mode[1:]), 1e-300) for mode in run]
    return max(shares) - min(shares) <= 1e-12


def _modes(planner: Planner, places: Floats) -> _Modes:
    """All allotments that could be chosen."""
    problem = planner.compiled.problem
    comm = float(problem.inverse_intra.min(initial=np.inf)) if problem.inverse_intra.size else 0.0
    whole = places[:, :, -1, :].max(axis=(1, 2), initial=0.0)
    total = places[:, :, -1, :].sum(axis=-1).max(axis=1, initial=0.0)
    rows: list[tuple[int, int, float, float, float]] = []
    for n, item in enumerate(planner.items):
        cap = int(total[item.group] if may_split(item, planner) else whole[item.group])
        rows += [
            (n, mode[0], mode[1], mode[2] + mode[3] * comm, ratio)
            for mode, ratio in _thinned(offered(item, cap))
        ]
    table = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return _Modes(
        item=table[:, 0].astype(np.int64),
        procs=table[:, 1].astype(np.int64),
        scaled=table[:, 2],
        fixed=table[:, 3],
        area_ratio=table[:, 4],
    )


def low_sides(procs: Ints, gbps: Floats, capacity: Floats) -> Ints:
    """The count w of every job and link, `procs` where the link admits all: M x K."""
    n = procs[:, None].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = capacity[None, :] * (n - 1.0) / gbps[:, None]
        w = np.floor((n - np.sqrt(np.maximum(n * n - 4.0 * x, 0.0))) / 2.0 + 1e-7)
    half = np.floor(n / 2.0)
    free = (gbps[:, None] <= 0.0) | (n <= 1.0) | (x >= half * (n - half) * (1.0 - 1e-9))
    return np.where(free, n, np.nan_to_num(w)).astype(np.int64)


def make_columns(planner: Planner, supply: Supply) -> Columns:
    """List the columns of every item that can be placed at all."""
    places = supply.places()
    modes = _modes(planner, places)
    items = planner.items
    group = np.array([item.group for item in items], dtype=np.int64)
    gbps = np.array([item.proc_gbps if item.task is None else 0.0 for item in items])
    splits = np.array([may_split(item, planner) for item in items], dtype=np.bool_)
    m = modes.item
    cap = places.max(axis=1, initial=0.0)[group[m]].astype(np.int64)  # M x B x K
    n = modes.procs[:, None]
    low = low_sides(modes.procs, gbps[m], supply.links.max(axis=0, initial=0.0))
    small = np.minimum(low[:, None, :], cap)
    sum_small = small.sum(axis=-1)
    whole = cap.max(axis=-1, initial=0) >= n
    spread = (sum_small >= n) & splits[m][:, None]
    core = np.maximum(n[:, :, None] - low[:, None, :], 1)
    beside = sum_small[:, :, None] - small
    lead = (cap >= core) & (low[:, None, :] > 0) & (cap + beside >= n[:, :, None])
    lead &= splits[m][:, None, None] & (beside > 0)
    least_core = np.where(lead, core, np.iinfo(np.int64).max).min(axis=-1, initial=1 << 62)
    split = spread | lead.any(axis=-1)
    start = _starts(places, group[m], modes.procs, supply, splits[m])
    shapes = [(WHOLE, whole, np.broadcast_to(n, whole.shape)), (SPLIT, split, least_core)]
    parts = []
    for shape, ok, cores in shapes:
        row, band = np.nonzero(ok & np.isfinite(start))
        width = np.where(spread[row, band], 0, cores[row, band]) if shape else cores[row, band]
        parts.append((row, band, np.full(row.size, shape), width))
    row, band, shape_of, cores_of = (np.concatenate(x) for x in zip(*parts, strict=True))
    order = np.lexsort((shape_of, band, row))
    row, band = row[order], band[order]
    seconds = modes.scaled[row] / supply.top[band] + modes.fixed[row]
    fits = np.zeros(len(items), dtype=np.bool_)
    fits[m[row]] = True
    return Columns(
        item=m[row],
        procs=modes.procs[row],
        band=band,
        shape=shape_of[order],
        seconds=seconds,
        area=modes.procs[row] * seconds * modes.area_ratio[row],
        start=start[row, band],
        core=cores_of[order],
        most=cap[row, band],
        low=low[row],
        fits=fits,
    )


def _starts(places: Floats, group: Ints, procs: Ints, supply: Supply, splits: Flags) -> Floats:
    """First step with enough places, by mode and band; infinite if there is none."""
    steps = places.shape[1]
    if not group.size:
        return np.zeros((0, supply.top.size))
    reach = np.where(
        splits[:, None, None], places.sum(axis=-1)[group], places.max(axis=-1, initial=0.0)[group]
    )  # M x T x B
    enough = reach >= procs[:, None, None]
    first = enough.argmax(axis=1)
    return np.where(enough.any(axis=1), supply.time[np.minimum(first, steps - 1)], np.inf)
