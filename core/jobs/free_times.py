"""Slots over time that neither work, the plan nor a reservation takes."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from coalloc.core.base.state import State
from coalloc.core.jobs.occupation import occupation, slots_on
from coalloc.core.jobs.offers import room_on
from coalloc.model.jobs import Job
from coalloc.model.plan import Plan
from coalloc.model.shape import ONE_SLOT, most_procs
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Snapshot

ALL_SLOTS = 1 << 40


class FreeTimes:
    """Free slots after a round has placed what it places.

    Slots are taken by what runs, by reservations, and by what starts now or later. Pieces of
    divisible jobs that the plan has later are left out: they fill what others leave.
    """

    def __init__(self, state: State, snapshot: Snapshot, plan: Plan, now: float) -> None:
        self._now = now
        self.view = occupation(state, now)
        """What is free now."""
        self._busy: dict[str, list[tuple[float, float, int]]] = {}
        for work in snapshot.running:
            self.take(work.nodes, -inf, work.busy_until(now, snapshot.overrun_s))
        for planned in plan.placements:
            record = state.jobs.get(planned.job)
            if planned.chunks is None and record is not None:
                slots = slots_on(state.clusters.values(), record.job, planned.nodes)
                self.take(slots or planned.nodes, planned.start, planned.end)
        for kept in snapshot.reservations:
            self.take(dict.fromkeys(kept.nodes, ALL_SLOTS), kept.start, kept.end)

    def take(self, nodes: Mapping[str, int], start: float, end: float) -> None:
        """Book slots for a while."""
        for name, count in nodes.items():
            self._busy.setdefault(name, []).append((start, end, count))

    def procs(self, job: Job, node: NodeReading, end: float) -> int:
        """Processes of a job for which a node is free in all of [now, end).

        Slots are counted over time; of memory and resources, what is free now.
        """
        taken = self._busy.get(node.name, ())
        left = node.slots - sum(count for s, e, count in taken if s < end and e > self._now)
        slots = max(0, min(left, self.view.free.get(node.name, 0)))
        if not slots:
            return 0
        if job.shape == ONE_SLOT:
            return min(slots, room_on(job, node))
        room = self.view.room(node.name)._replace(slots=slots)
        return min(room_on(job, node), most_procs(job.shape, job.memory_mb_per_proc, node, room))
