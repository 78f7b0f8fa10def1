"""Room for one job at any time, beside running work and what is planned for others.

Counted on the nodes of a plan, so the figures are those that an operator finds in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from coalloc.model.cost import link_load
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.plan import Placement
from coalloc.model.platform import Node, NodeState
from coalloc.model.shape import ONE_SLOT, most_procs, room_of, taken
from coalloc.model.shape import Room as FreeRoom
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.policies.explain.explanation import BindingLink, Short, Slots
from coalloc.policies.holds import NodeUse, fitting, link_uses, node_uses, reserved

MOST_INSTANTS = 200
"""Ends and starts of others that are looked at."""
NEAR_S = 1e-6


def _amounts(room: FreeRoom) -> dict[str, float]:
    return {"slots": room.slots, "memory_mb": room.memory_mb, **room.resources}


def _family(name: str) -> str:
    return name.partition(":")[0]


class Room:
    """Offer of nodes and links to a job beside placements of others; later starts do not matter.

    `splits`: whether it may use several clusters.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        job: Job,
        placements: Iterable[Placement],
        until: float,
        *,
        splits: bool = False,
    ) -> None:
        self.snapshot, self.job, self.splits = snapshot, job, splits
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
            and most_procs(job.shape, job.memory_mb_per_proc, node) > 0
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
        """Processes of the job that fit on these nodes at an instant, on as many as it may use."""
        rooms = sorted((self._fitting(name, at) for name in names), reverse=True)
        used = len(rooms) - rooms.count(0)
        shape = self.job.shape
        return used if used < shape.min_nodes else sum(rooms[: shape.max_nodes])

    def by_cluster(self, names: Iterable[str], at: float) -> dict[str, int]:
        """The same by cluster."""
        out: dict[str, int] = {}
        for name in names:
            cluster = self.cluster_of[name]
            out[cluster] = out.get(cluster, 0) + self._fitting(name, at)
        return out

    def _fitting(self, name: str, at: float) -> int:
        room, shape, memory = self.left(name, at), self.job.shape, self.job.memory_mb_per_proc
        if room is None:
            return 0
        if shape == ONE_SLOT:
            return fitting(room.slots, room.memory_mb, memory)
        return most_procs(shape, memory, self.nodes[name], room)

    def left(self, name: str, at: float) -> FreeRoom | None:
        """Room on a node at an instant; None where it is closed to the job."""
        node = self.nodes[name]
        at += NEAR_S
        if node.free_at > at or any(r.start <= at < r.end for r in self._closed.get(name, ())):
            return None
        slots, memory, resources = room_of(node)
        left = Counter(resources)
        for use in self.uses[name]:
            if use.start <= at < use.end:
                slots -= use.slots
                memory -= use.memory_mb
                left.subtract(use.resources)
        return FreeRoom(slots, memory, left)

    def short(self, names: Iterable[str], at: float, mine: Placement) -> Short | None:
        """The resource but for which most nodes would take an equal part of the job."""
        shape, memory, procs = self.job.shape, self.job.memory_mb_per_proc, max(mine.nodes.values())
        found: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {}
        names = list(names)
        for name in names:
            room, part = self.left(name, at), taken(shape, memory, self.nodes[name], procs)
            if room is not None:
                need = _amounts(part._replace(resources={}) if shape.exclusive else part)
                have = _amounts(room)
                lacking = [each for each in need if need[each] > have.get(each, 0)]
                if len(set(map(_family, lacking))) <= 1:
                    found.setdefault(max(lacking, key=len, default=""), []).append((have, need))
        fit = len(found.pop("", ()))
        if not found or fit >= len(mine.nodes):
            return None
        what = max(found, key=lambda name: len(found[name]))
        need = found[what][0][1]
        families = {what, *(_family(name) for name in (what, *need) if ":" in name)}
        return Short(
            name=what,
            needed=int(need[what]),
            free=max(int(have.get(what, 0)) for have, _ in found[what]),
            beside={
                name: int(count)
                for name, count in need.items()
                if count and name not in families and _family(name) != _family(what)
            },
            nodes=len(names),
            fit=fit,
            but_for_it=len(found[what]),
            wanted=len(mine.nodes),
        )

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

    def link_full_until(self, cluster: str, at: float, needed: float) -> tuple[float | None, str]:
        """From when on a link has so much left, None if it never has, and what ends then."""
        ends: Mapping[float, str] = {x.end: x.who for x in self.loads[cluster] if x.end > at}
        for instant in [at, *sorted(ends)]:
            if self.link_free(cluster, instant) >= needed * (1.0 - 1e-9):
                return instant, ends.get(instant, "")
        return None, ""

    def shape(self, placement: Placement) -> tuple[float, dict[str, int]]:
        """Power of the weakest node, and processes per cluster."""
        power_of = {node.name: node.power for _, node in self.snapshot.nodes()}
        inside: dict[str, int] = {}
        for name, count in placement.nodes.items():
            cluster = self.cluster_of.get(name)
            if cluster is not None:
                inside[cluster] = inside.get(cluster, 0) + count
        return min(power_of.get(name, 1.0) for name in placement.nodes), inside

    def instead(self, placement: Placement) -> list[str]:
        """Nodes as strong as those of the placement that might have been used instead."""
        power, inside = self.shape(placement)
        return self.scope(power, None if self.splits else inside)

    def slots(self, placement: Placement | None) -> Slots | None:
        """Slots that are free for a placement that starts later; None for one that does not."""
        if placement is None or placement.start <= self.snapshot.time + NEAR_S:
            return None
        power, inside = self.shape(placement)
        needed = sum(inside.values())
        names = self.instead(placement)
        everywhere = self.scope(0.0, None if self.splits else inside)
        now = self.free(names, self.snapshot.time)
        short: tuple[float | None, int, tuple[str, ...]] = (None, 0, ())
        if now >= needed:
            until = self.snapshot.time + (placement.end - placement.start)
            short = self.runs_short(names, self.snapshot.time, until, needed) or short
        counted = self.job.shape != ONE_SLOT or self.job.memory_mb_per_proc > 0
        return Slots(
            needed=needed,
            power=power,
            clusters=tuple(inside),
            single=not self.splits and len(self.snapshot.clusters) > 1,
            free_now=now,
            free_then=self.free(names, placement.start),
            enders=tuple(use.who for use in self.enders(names, placement.start)),
            short_at=short[0],
            short_left=short[1],
            short_by=short[2],
            weaker_now=self.free(everywhere, self.snapshot.time) - now,
            short=self.short(names, self.snapshot.time, placement) if counted else None,
        )

    def link_use(self, placement: Placement | None, cluster: str) -> BindingLink | None:
        """Load of the job on a link that had no limit."""
        if placement is None or not isinstance(self.job, RigidJob | MoldableJob):
            return None
        _, inside = self.shape(placement)
        procs = sum(inside.values())
        needed = link_load(self.job.proc_gbps or 0.0, procs, inside.get(cluster, 0))
        capacity = next(c.link_gbps for c in self.snapshot.clusters if c.name == cluster)
        until, ender = self.link_full_until(cluster, placement.start, needed)
        return BindingLink(
            cluster=cluster,
            at=placement.start,
            needed=needed,
            free=self.link_free(cluster, placement.start),
            capacity=capacity,
            full_until=until,
            ender=ender,
        )
