"""Room for one job at any time, beside running work and what is planned for others.

Counted on the nodes of a plan, so the figures are those that an operator finds in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from coalloc.model.jobs import Job
from coalloc.model.plan import Placement
from coalloc.model.platform import Node, NodeState
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.policies.holds import reserved
from coalloc.policies.uses import NodeUse, fitting, link_uses, node_uses

MOST_INSTANTS = 200
"""Ends and starts of others that are looked at."""
NEAR_S = 1e-6


class Room:
    """Offer of nodes and links to a job beside placements of others; later starts do not matter."""

    def __init__(
        self, snapshot: Snapshot, job: Job, placements: Iterable[Placement], until: float
    ) -> None:
        self.snapshot, self.job = snapshot, job
        self.nodes: dict[str, Node] = {}
        self.cluster_of: dict[str, str] = {}
        for cluster, node in snapshot.nodes():
            self.cluster_of[node.name] = cluster.name
            if not cluster.stale and node.state is NodeState.UP and self._suits(node):
                self.nodes[node.name] = node
        closed = [kept for kept in snapshot.reservations if job.id not in kept.jobs]
        self._closed: dict[str, list[Reservation]] = {
            name: [closed[r] for r in numbers] for name, numbers in reserved(closed).items()
        }
        known = {other.id for other in snapshot.queue}
        others = [
            placement
            for placement in placements
            if placement.job != job.id and placement.start < until and placement.job in known
        ]
        uses = node_uses(snapshot, others)
        self.uses = {name: uses.get(name, []) for name in self.nodes}
        self.loads = link_uses(snapshot, others)

    def _suits(self, node: Node) -> bool:
        job = self.job
        return (
            (job.clusters is None or self.cluster_of[node.name] in job.clusters)
            and set(job.features) <= set(node.features)
            and (node.memory_mb is None or job.memory_mb_per_proc <= node.memory_mb)
        )

    def scope(self, power: float, clusters: Iterable[str] | None = None) -> list[str]:
        """Suitable nodes of at least this power."""
        allowed = None if clusters is None else set(clusters)
        return [
            name
            for name, node in self.nodes.items()
            if node.power >= power * (1.0 - 1e-9)
            and (allowed is None or self.cluster_of[name] in allowed)
        ]

    def free(self, names: Iterable[str], at: float) -> int:
        """Processes of the job that fit on these nodes at an instant."""
        return sum(self._fitting(name, at) for name in names)

    def by_cluster(self, names: Iterable[str], at: float) -> dict[str, int]:
        """The same by cluster."""
        out: dict[str, int] = {}
        for name in names:
            cluster = self.cluster_of[name]
            out[cluster] = out.get(cluster, 0) + self._fitting(name, at)
        return out

    def _fitting(self, name: str, at: float) -> int:
        node = self.nodes[name]
        at += NEAR_S
        if node.free_at > at or any(r.start <= at < r.end for r in self._closed.get(name, ())):
            return 0
        slots, memory = node.slots, inf if node.memory_mb is None else float(node.memory_mb)
        for use in self.uses[name]:
            if use.start <= at < use.end:
                slots -= use.slots
                memory -= use.memory_mb
        return fitting(slots, memory, self.job.memory_mb_per_proc)

    def enders(self, names: Iterable[str], at: float) -> list[NodeUse]:
        """List the holders that give back slots of these nodes at an instant, each once."""
        near = 1e-6 + 1e-9 * abs(at)
        return self._once(names, lambda use: abs(use.end - at) <= near)

    def holders(self, names: Iterable[str], at: float) -> list[NodeUse]:
        """List the holders of slots of these nodes at an instant, each once."""
        return self._once(names, lambda use: use.start <= at + NEAR_S < use.end)

    def _once(self, names: Iterable[str], chosen: Callable[[NodeUse], bool]) -> list[NodeUse]:
        found: dict[str, NodeUse] = {}
        for name in names:
            for use in filter(chosen, self.uses[name]):
                found.setdefault(use.who, use)
        return list(found.values())

    def runs_short(
        self, names: list[str], at: float, end: float, needed: int
    ) -> tuple[float, int, tuple[str, ...]] | None:
        """Time at which fewer than needed are left, how many, and who starts then."""
        instants = {u.start for n in names for u in self.uses[n] if at < u.start < end}
        instants |= {r.start for n in names for r in self._closed.get(n, ()) if at < r.start < end}
        for instant in sorted(instants)[:MOST_INSTANTS]:
            left = self.free(names, instant)
            if left < needed:
                starting = {u.who for n in names for u in self.uses[n] if u.start == instant}
                kept = {r.id for n in names for r in self._closed.get(n, ()) if r.start == instant}
                words = (*sorted(starting), *(f"reservation {name}" for name in sorted(kept)))
                return instant, left, words
        return None

    def link_free(self, cluster: str, at: float) -> float:
        """Free capacity of a link, Gbit/s."""
        capacity = next(c.link_gbps for c in self.snapshot.clusters if c.name == cluster)
        at += NEAR_S
        return capacity - sum(x.gbps for x in self.loads[cluster] if x.start <= at < x.end)

    def link_full_until(self, cluster: str, at: float, needed: float) -> tuple[float, str] | None:
        """From when on a link has so much left, and what ends then; None if it never has."""
        ends: Mapping[float, str] = {x.end: x.who for x in self.loads[cluster] if x.end > at}
        for instant in [at, *sorted(ends)]:
            if self.link_free(cluster, instant) >= needed * (1.0 - 1e-9):
                return instant, ends.get(instant, "")
        return None
