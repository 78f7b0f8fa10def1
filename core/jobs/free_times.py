"""Slots over time that neither work, the plan nor a reservation takes."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from coalloc.core.base.state import State
from coalloc.core.jobs.occupation import occupation
from coalloc.model.plan import Plan
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Snapshot

MOST_TIMES = 12
"""Of the next ends of work, those that are looked at."""
ALL_SLOTS = 1 << 40
INSTANT_S = 1e-3


class FreeTimes:
    """Free slots after a round has placed what it places.

    Slots are taken by what runs, by reservations, and by what starts now or later. Pieces of
    divisible jobs that the plan has later are left out: they fill what others leave.
    """

    def __init__(self, state: State, snapshot: Snapshot, plan: Plan, now: float) -> None:
        self._now = now
        self._view = occupation(state, now)
        readings = (cluster.reading for cluster in state.clusters.values())
        self._nodes = [node for reading in readings if reading for node in reading.nodes]
        self._busy: dict[str, list[tuple[float, float, int]]] = {}
        self._open: dict[float, frozenset[str]] = {}
        for work in snapshot.running:
            self.take(work.nodes, -inf, work.busy_until(now, snapshot.overrun_s))
        for planned in plan.placements:
            if planned.chunks is None:
                self.take(planned.nodes, planned.start, planned.end)
        for kept in snapshot.reservations:
            self.take(dict.fromkeys(kept.nodes, ALL_SLOTS), kept.start, kept.end)
        ends = {end for taken in self._busy.values() for _, end, _ in taken}
        later = sorted(end for end in ends if now < end < inf)
        self.times = (now, *later[:MOST_TIMES])
        """Now, and the next times at which slots become free, seconds."""

    def take(self, nodes: Mapping[str, int], start: float, end: float) -> None:
        """Book slots for a while."""
        for name, count in nodes.items():
            self._busy.setdefault(name, []).append((start, end, count))

    def link_free(self, cluster: str) -> float:
        """Capacity that is left of a cluster's link now, Gbit/s."""
        return self._view.link_free[cluster]

    def slots(self, node: NodeReading, start: float, end: float) -> int:
        """Slots of a node that are free in all of [start, end); what overlaps it counts whole."""
        if node.name not in self._open_at(start):
            return 0
        return max(0, self._left(node, start, end))

    def _left(self, node: NodeReading, start: float, end: float) -> int:
        taken = self._busy.get(node.name, ())
        left = node.slots - sum(count for s, e, count in taken if s < end and e > start)
        return min(left, self._view.free[node.name]) if start <= self._now else left

    def _open_at(self, time: float) -> frozenset[str]:
        """The nodes that may get work and are not full at an instant, looked up once for all."""
        if time not in self._open:
            usable = (node for node in self._nodes if node.name in self._view.free)
            self._open[time] = frozenset(
                node.name for node in usable if self._left(node, time, time + INSTANT_S) > 0
            )
        return self._open[time]
