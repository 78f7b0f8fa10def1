"""Starts of this instant: jobs squeezed into what is free, or stretched over what no job wants.

Counts only: free processors now, by class of nodes, and how long they stay free. Links, memory and
reservations against some jobs are left to the decoder; what it cannot place now starts later.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.queue import MoldableQueue
from coalloc.policies.moldable.rolling_rule import WantedWidths


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPlace:
    """The place that is kept for an item: seconds from now, and processors."""

    item: int
    start: float
    end: float
    procs: int


class FreeProcessors:
    """Processors that are free now; what is held is kept free of others."""

    def __init__(self, planner: Planner, queue: MoldableQueue, held: HeldPlace | None) -> None:
        self.starts, self.left = starts_and_capacity(queue, held)
        problem = planner.compiled.problem
        self.need, self.home = problem.need, problem.class_cluster
        self.group, self.splits = problem.item_group, problem.item_splits
        self.clusters = len(planner.snapshot.clusters)
        self.free = None if queue.is_exact else planner.compiled.base.free[0].astype(np.int64)

    @property
    def total(self) -> int:
        """Processors that are free now, whatever comes next."""
        return int(self.left[0])

    def widest(self, item: int, seconds: float) -> int:
        """The most processors that an item finds for so long."""
        lasting = int(self.left[self.starts < max(seconds, 1e-9)].min())
        if self.free is None or lasting <= 0:
            return lasting
        room = self._by_cluster(item)
        there = room.sum() if self.splits[item] else room.max(initial=0)
        return min(lasting, int(there))

    def take(self, item: int, procs: int, seconds: float) -> None:
        """Give processors to an item."""
        self.left[self.starts < max(seconds, 1e-9)] -= procs
        if self.free is None:
            return
        room = self._by_cluster(item)
        fitting = np.flatnonzero(room >= procs)
        first = fitting[room[fitting].argmin()] if fitting.size else room.argmax()
        rest = procs
        for cluster in [int(first), *(k for k in np.argsort(-room).tolist() if k != first)]:
            for c in np.flatnonzero(self.home == cluster).tolist():
                need = int(self.need[self.group[item], c])
                count = min(rest, int(self.free[c]) // need) if need > 0 else 0
                self.free[c] -= count * need
                rest -= count

    def _by_cluster(self, item: int) -> Any:
        need = self.need[self.group[item]]
        procs = np.where(need > 0, self.free // np.maximum(need, 1), 0)
        return np.bincount(self.home, weights=procs, minlength=self.clusters).astype(np.int64)


def starts_and_capacity(queue: MoldableQueue, held: HeldPlace | None) -> tuple[Floats, Ints]:
    """The processors over time, without those that are held."""
    if held is None:
        return queue.starts, queue.capacity.copy()
    starts = np.unique(np.concatenate((queue.starts, [held.start, held.end])))
    capacity = queue.capacity[np.searchsorted(queue.starts, starts, side="right") - 1].copy()
    capacity[(starts >= held.start) & (starts < held.end)] -= held.procs
    return starts, capacity


def hold(queue: MoldableQueue, item: int, row: int) -> HeldPlace | None:
    """The earliest place of an item; None if there is none."""
    procs, seconds = int(queue.procs[row]), max(float(queue.times[row]), 1e-9)
    for start in np.maximum(queue.starts, queue.release[item]).tolist():
        during = (queue.starts < start + seconds) & (np.append(queue.starts[1:], np.inf) > start)
        if int(queue.capacity[during].min()) >= procs:
            return HeldPlace(item=item, start=start, end=start + seconds, procs=procs)
    return None


def start_now(
    queue: MoldableQueue,
    asked: WantedWidths,
    ready: Flags,
    room: FreeProcessors,
    squeeze: float,
    stretch: float,
) -> tuple[list[int], Ints]:
    """Choose the items that start now, in order, and the allotments: theirs fit what is free.

    The room is without what is held for `asked.held`, if that starts later. A job starts on at
    least the share `squeeze` of the wanted processors, and at most `stretch`.
    """
    rows = asked.rows.copy()
    least = np.ceil(squeeze * queue.procs[rows] - 1e-9)
    least = np.maximum(least, queue.procs[queue.first[:-1]])
    started: list[int] = []
    for item in asked.order[ready[asked.order] & (least[asked.order] <= room.total)].tolist():
        if least[item] > room.total:
            continue
        row = _fitting(queue, item, int(rows[item]), int(least[item]), room)
        if row >= 0:
            rows[item] = row
            room.take(item, int(queue.procs[row]), float(queue.times[row]))
            started.append(item)
    if room.total > 0 and stretch > 1.0 and len(started) == int(ready.sum()):
        _stretch(queue, rows, started, room, stretch)
    return started, rows


def _fitting(queue: MoldableQueue, item: int, row: int, least: int, room: FreeProcessors) -> int:
    """The widest allotment up to `row` that fits now; -1 if none of `least` processors does."""
    while row >= queue.first[item] and queue.procs[row] >= least:
        if queue.procs[row] <= room.widest(item, float(queue.times[row])):
            return row
        row -= 1
    return -1


def _stretch(
    queue: MoldableQueue, rows: Ints, started: list[int], room: FreeProcessors, stretch: float
) -> None:
    """Widen the items that start now, in order, where no job waits for the rest."""
    for item in started:
        row, most = int(rows[item]), floor(stretch * int(queue.procs[rows[item]]) + 1e-9)
        for wider in range(int(queue.first[item + 1]) - 1, row, -1):
            more = int(queue.procs[wider] - queue.procs[row])
            seconds = float(queue.times[row])
            if queue.procs[wider] <= most and more <= room.widest(item, seconds):
                room.take(item, more, seconds)
                rows[item] = wider
                break
