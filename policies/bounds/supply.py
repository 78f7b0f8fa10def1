"""Supply over time, as a lower bound may count it: slots of classes, capacity of links.

Notes
-----
Times are seconds from the snapshot's. A supply is a staircase: row i holds in
[time[i], time[i + 1]), the last one without end. Where there are more steps than asked for, several
become one that offers the most of any of them, so that what is offered is never understated. A
process takes one slot; the memory of a node limits how many processes of a job it takes, nothing
more, since the checker counts slots and memory apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.state import FULL

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Free capacity over time; T steps, C classes, K clusters, G groups, B bands."""

    time: Floats
    """Seconds from now; the first is 0."""
    slots: Floats
    """Free slots of each class, whatever is reserved."""
    open: Flags
    """Whether a group may use the class then."""
    room: Floats
    """Processes that the empty nodes of a class take."""
    links: Floats
    """Gbit/s that placements may load, up to the threshold; infinite where unlimited."""
    band: Ints
    """Band of each class: 0 is the strongest."""
    top: Floats
    """Largest power of each band."""
    cluster: Ints

    def by_band(self, per_class: Floats) -> Floats:
        """Sum classes (last axis) into clusters, over the bands down to each: ... x B x K."""
        bands, clusters = self.top.size, self.links.shape[1]
        if not self.band.size:
            return np.zeros((*per_class.shape[:-1], bands, clusters))
        key = self.band * clusters + self.cluster
        order = np.argsort(key, kind="stable")
        found, first = np.unique(key[order], return_index=True)
        out = np.zeros((*per_class.shape[:-1], bands * clusters))
        out[..., found] = np.add.reduceat(per_class[..., order], first, axis=-1)
        return out.reshape(*per_class.shape[:-1], bands, clusters).cumsum(axis=-2)

    def places(self) -> Floats:
        """Processes of each group that fit then: G x T x B x K, bands summed from the strongest."""
        fit = np.minimum(self.room[:, None, :], self.slots[None]) * self.open
        return self.by_band(fit)


def read_supply(planner: Planner, steps: int, bands: int) -> Supply:
    """Read what is free from a planner, in at most so many steps and bands of power."""
    problem, base = planner.compiled.problem, planner.compiled.base
    now = planner.snapshot.time
    edges = {0.0} | {float(t) - now for t in base.time}
    edges |= {float(t) - now for t in problem.reserved.ravel()}
    fine = np.array(sorted(t for t in edges if t >= 0.0 and np.isfinite(t)))
    row = np.searchsorted(base.time - now, fine, side="right") - 1
    slots = base.free[row] / np.maximum(problem.class_grain, 1)
    links = _free_links(planner)[row]
    opened = _open(problem, fine, now)
    if fine.size > steps:
        cut = np.unique(np.linspace(0, fine.size - 1, steps).astype(np.int64))
        slots = np.maximum.reduceat(slots, cut, axis=0)
        links = np.maximum.reduceat(links, cut, axis=0)
        opened = np.logical_or.reduceat(opened, cut, axis=1)
        fine = fine[cut]
    top, band = join_bands(problem.class_power, bands)
    classes, intake = planner.compiled.class_nodes, planner.compiled.intake
    sizes = np.array([len(nodes) for nodes in classes], dtype=np.int64)
    kinds = [intake.kinds[intake.node_kind[nodes[0]]] for nodes in classes]
    units = np.array([kind.slots * kind.grain for kind in kinds], dtype=np.int64)
    need = problem.need
    room = np.where(need > 0, units[None, :] // np.maximum(need, 1), 0) * sizes[None, :]
    return Supply(
        time=fine,
        slots=slots,
        open=opened & (need > 0)[:, None, :],
        room=room.astype(np.float64),
        links=links,
        band=band,
        top=top,
        cluster=problem.class_cluster,
    )


def threshold_of(planner: Planner) -> float:
    """Return the option ``saturation_threshold``, 1 where it is not set."""
    value = planner.options.get("saturation_threshold")
    return 1.0 if value is None else float(value)


def _free_links(planner: Planner) -> Floats:
    links = planner.compiled.problem.link_gbps
    used = planner.compiled.base.load / FULL
    threshold = threshold_of(planner)
    finite = np.where(np.isfinite(links), links, 0.0)
    free = np.maximum(threshold - used, 0.0) * finite * (1.0 + 1e-9)
    return np.where(np.isfinite(links), free, np.inf)


def _open(problem: Any, time: Floats, now: float) -> Flags:
    """Whether a group may use a class in a step, but for its needs: not while reserved."""
    groups, classes = problem.need.shape
    out = np.ones((groups, time.size, classes), dtype=np.bool_)
    for c in range(classes):
        for r in problem.closed[problem.closed_first[c] : problem.closed_first[c + 1]]:
            start, end = problem.reserved[r] - now
            shut = (time >= start) & (time < end)
            for g in np.flatnonzero(problem.exempt[:, r] == 0):
                out[g, shut, c] = False
    return out


def join_bands(power: Floats, most: int) -> tuple[Floats, Ints]:
    """Join powers into at most so many bands: their largest powers, and the band of each class."""
    distinct = np.unique(power)[::-1]
    if distinct.size <= most:
        return distinct, np.searchsorted(-distinct, -power)
    first = np.unique(np.linspace(0, distinct.size, most + 1).astype(np.int64)[:-1])
    return distinct[first], np.searchsorted(-distinct[first], -power, side="right") - 1
