"""Earliest starts, and what must still follow: chains of items.

An item starts no earlier than its release, than there is room for it on an otherwise empty
platform, and than each of its parents can have ended. Its tail is the longest chain of shortest run
times behind it. Data that move between tasks are taken to take no time, since parent and child may
use the same clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coalloc.policies.bounds.columns import Columns
from coalloc.policies.bounds.supply import Flags, Floats
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.graph import graph_of


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
