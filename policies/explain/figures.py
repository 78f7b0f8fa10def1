"""The figures behind a constraint: what is free when, and what is left of a link."""

from __future__ import annotations

from coalloc.model.cost import link_load
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.plan import Placement
from coalloc.model.shape import ONE_SLOT
from coalloc.policies.explain.explanation import BindingLink, Slots
from coalloc.policies.explain.room import NEAR_S, Room


class Figures:
    """Use of a placement of the job, on several clusters if it splits, beside what is free."""

    def __init__(self, room: Room, splits: bool) -> None:
        self.room, self.splits = room, splits
        self.snapshot, self.job, self.now = room.snapshot, room.job, room.snapshot.time

    def shape(self, placement: Placement) -> tuple[float, dict[str, int]]:
        """Power of the weakest node, and processes per cluster."""
        power_of = {node.name: node.power for _, node in self.snapshot.nodes()}
        inside: dict[str, int] = {}
        for name, count in placement.nodes.items():
            cluster = self.room.cluster_of.get(name)
            if cluster is not None:
                inside[cluster] = inside.get(cluster, 0) + count
        return min(power_of.get(name, 1.0) for name in placement.nodes), inside

    def scope(self, placement: Placement) -> list[str]:
        """Nodes as strong as those of the placement that might have been used instead."""
        power, inside = self.shape(placement)
        return self.room.scope(power, None if self.splits else inside)

    def slots(self, placement: Placement | None) -> Slots | None:
        """Slots that are free for a placement that starts later; None for one that does not."""
        if placement is None or placement.start <= self.now + NEAR_S:
            return None
        power, inside = self.shape(placement)
        needed = sum(inside.values())
        names = self.scope(placement)
        everywhere = self.room.scope(0.0, None if self.splits else inside)
        now = self.room.free(names, self.now)
        short = None
        if now >= needed:
            length = placement.end - placement.start
            short = self.room.runs_short(names, self.now, self.now + length, needed)
        counted = self.job.shape != ONE_SLOT or self.job.memory_mb_per_proc > 0
        return Slots(
            needed=needed,
            power=power,
            clusters=tuple(inside),
            single=not self.splits and len(self.snapshot.clusters) > 1,
            free_now=now,
            free_then=self.room.free(names, placement.start),
            enders=tuple(use.who for use in self.room.enders(names, placement.start)),
            short_at=None if short is None else short[0],
            short_left=0 if short is None else short[1],
            short_by=() if short is None else short[2],
            weaker_now=self.room.free(everywhere, self.now) - now,
            short=self.room.short(names, self.now, placement) if counted else None,
        )

    def link_use(self, placement: Placement | None, cluster: str) -> BindingLink | None:
        """Load of the job on a link that had no limit."""
        if placement is None or not isinstance(self.job, RigidJob | MoldableJob):
            return None
        _, inside = self.shape(placement)
        procs = sum(inside.values())
        needed = link_load(self.job.proc_gbps or 0.0, procs, inside.get(cluster, 0))
        capacity = next(c.link_gbps for c in self.snapshot.clusters if c.name == cluster)
        until = self.room.link_full_until(cluster, placement.start, needed)
        return BindingLink(
            cluster=cluster,
            at=placement.start,
            needed=needed,
            free=self.room.link_free(cluster, placement.start),
            capacity=capacity,
            full_until=None if until is None else until[0],
            ender="" if until is None else until[1],
        )
