"""The rule of the rolling form: how wide a job is to run, which goes first, which keeps a place.

Notes
-----
*Width.* Every processor-second that a job takes keeps those behind it waiting. With v the price of
a processor-second, a job of weight w takes the allotment of the least w p(k) + v k p(k): wide where
no other job waits or where width costs no work, narrow where it does. The price is

    v = (8 (n - 1) + 12 rho / (1 - rho)) / m

for n waiting jobs, m processors and the offered load rho (at most .9): the first
part stands for those that wait now, the second for those to come while this work is done, as in a
queue with one server. Weights count relative to their mean among those that wait.

The other rule, ``efficiency``, takes the widest allotment whose efficiency, least work by work, is
at least .8 rho + 4 (n - 1) / m.

*Load.* Work (slots times seconds of the smallest allotment, on the strongest nodes a job may use)
and gaps between submissions are summed with weights that fall by a factor of 1 - 1/50 with each
arrival, and remembered in the policy's notes. Their ratio by the slots that exist is the offered
load. Two imagined arrivals at load .5 stand in for what is not known yet. A gap that is longer than
usual counts before the next arrival ends it.

*Order.* Smith's ratio, work by weight, divided by 1 + .3 (waited / run time).

*Place.* The job with the largest (waited / run time), if that is at least `reserve_after`, keeps a
reservation; ahead of it, the longest-waiting job that was passed over too often (`guard_after`).

The four constants were chosen on Poisson streams of the four families of the bi-criteria paper, on
48 and on 200 processors, at loads of .3 to .95; half or twice of each changes little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.queue import MoldableQueue

WAITING_PRICE, COMING_PRICE, HIGHEST_LOAD = 8.0, 12.0, 0.9
LOAD_SHARE, WAITING_SHARE = 0.8, 4.0
AGEING = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWidths:
    """Widths and order that the rule asks for."""

    rows: Ints
    """Allotment of each item, an index into the queue's `procs`."""
    order: Ints
    """Items, the first to be served first."""
    held: int
    """The item that keeps a reservation; -1: none."""


def wanted(
    planner: Planner, queue: MoldableQueue, ready: Flags, load: float, now: float
) -> WantedWidths:
    """Apply the rule.

    `ready` (array of bool, N): items that may start now.
    `load`: the offered load.
    `now`: on the axis of `submitted`, seconds.
    """
    options = planner.options
    share = relative(queue.weight)
    if options["allotment"] == "price":
        rows = by_price(queue, share, price(int(ready.sum()), load, queue.width))
    else:
        rows = by_efficiency(queue, efficiency(int(ready.sum()), load, queue.width))
    submitted = np.array([item.job.submitted for item in planner.items])
    stretch = np.maximum(now - submitted, 0.0) / np.maximum(queue.times[rows], SHORTEST)
    work = queue.procs[rows] * queue.times[rows]
    with np.errstate(divide="ignore"):
        key = work / share / (1.0 + AGEING * stretch)
    order = np.argsort(key, kind="stable").astype(np.int64)
    held = _longest_passed_over(planner, ready, options["guard_after"] or 0)
    if held < 0:
        held = _most_stretched(stretch, ready, options["reserve_after"])
    return WantedWidths(rows=rows, order=order, held=held)


def price(waiting: int, load: float, procs: int) -> float:
    """Of a processor-second: mean weights times seconds of waiting."""
    rho = min(load, HIGHEST_LOAD)
    coming = COMING_PRICE * rho / (1.0 - rho)
    return (WAITING_PRICE * max(waiting - 1, 0) + coming) / max(procs, 1)


def efficiency(waiting: int, load: float, procs: int) -> float:
    """Least efficiency of an allotment, 0..1."""
    return min(LOAD_SHARE * load + WAITING_SHARE * max(waiting - 1, 0) / max(procs, 1), 1.0)


def by_price(queue: MoldableQueue, share: Floats, price: float) -> Ints:
    """Each item's allotment of the least w p(k) + v k p(k), of equal ones the smallest."""
    counts = np.diff(queue.first)
    cost = queue.times * (np.repeat(share, counts) + price * queue.procs)
    least = np.repeat(np.minimum.reduceat(cost, queue.first[:-1]), counts)
    index = np.flatnonzero(cost <= least)
    return index[_owners(queue)[index].searchsorted(np.arange(counts.size))].astype(np.int64)


def by_efficiency(queue: MoldableQueue, least: float) -> Ints:
    """Each item's widest allotment of at least this efficiency."""
    counts = np.diff(queue.first)
    work = queue.procs * queue.times
    ideal = np.repeat(np.minimum.reduceat(work, queue.first[:-1]), counts)
    fits = ideal >= least * work * (1.0 - 1e-9)
    index = np.flatnonzero(fits)
    last = _owners(queue)[index].searchsorted(np.arange(counts.size), side="right") - 1
    return index[last].astype(np.int64)


def _owners(queue: MoldableQueue) -> Ints:
    """Item of each allotment."""
    return np.repeat(np.arange(queue.size, dtype=np.int64), np.diff(queue.first))


def relative(weight: Floats) -> Floats:
    """Weights by their mean; all 1 where that is 0."""
    mean = float(weight.mean())
    return weight / mean if mean > 0.0 else np.ones(weight.size)


def _longest_passed_over(planner: Planner, ready: Flags, after: int) -> int:
    if after <= 0:
        return -1
    passed = np.array([item.job.passed_over >= after for item in planner.items])
    found = np.flatnonzero(passed & ready)
    return int(found[0]) if found.size else -1


def _most_stretched(stretch: Floats, ready: Flags, least: float) -> int:
    seen = np.where(ready, stretch, -1.0)
    best = int(seen.argmax())
    return best if seen[best] >= least else -1


KEPT = 1.0 - 1.0 / 50.0
"""Weight of what is known, when one more arrives."""
IMAGINED, IMAGINED_LOAD = 2.0, 0.5
"""Arrivals that stand in for what is not known, and the load they offer."""

KEYS = ("work", "gap", "count", "last", "seen")


@dataclass(slots=True, kw_only=True)
class Arrivals:
    """Statistics of the jobs that have arrived so far."""

    work: float = 0.0
    """Weighted sum, slot-seconds."""
    gap: float = 0.0
    """Weighted sum of the time between two submissions, seconds."""
    count: float = 0.0
    """Sum of the weights."""
    last: float | None = None
    """The latest submission, on the axis of the daemon's snapshots, seconds."""
    seen: float = -inf
    """Time of the latest snapshot: what was submitted later is new."""

    @classmethod
    def read(cls, notes: Mapping[str, Any], now: float) -> Arrivals:
        """Read notes; those that are no notes of ours, or of a later time, are as none."""
        values: dict[str, Any] = {key: notes.get(key) for key in KEYS}
        known = all(isinstance(v, int | float) and isfinite(v) for v in values.values())
        if not known or values["seen"] > now or values["count"] < 0.0:
            return cls()
        return cls(**values)

    def write(self) -> dict[str, float]:
        """The notes to read in the next round."""
        if self.last is None:
            return {}
        return {key: getattr(self, key) for key in KEYS}

    def take(self, jobs: Iterable[tuple[float, float]], now: float) -> None:
        """Count the jobs that are new.

        `jobs` (iterable of (float, float)): when each was submitted, and its work.
        `now`: time of the snapshot they wait in.
        """
        for submitted, work in sorted(job for job in jobs if job[0] > self.seen):
            if self.last is not None:  # the first one ends no gap, and tells no rate
                self.work = KEPT * self.work + work
                self.gap = KEPT * self.gap + max(submitted - self.last, 0.0)
                self.count = KEPT * self.count + 1.0
            self.last = submitted if self.last is None else max(submitted, self.last)
        self.seen = now

    def load(self, slots: int) -> float:
        """Offered load: work by what so many slots could do; above 1 is more than they can."""
        if self.last is None or slots <= 0 or self.count <= 0.0 or self.work <= 0.0:
            return IMAGINED_LOAD
        mean = self.work / self.count
        since = self.seen - self.last
        gap = self.gap + (since if since > self.gap / self.count else 0.0)
        offered = self.work + IMAGINED * IMAGINED_LOAD * mean
        return offered / (slots * gap + IMAGINED * mean)
