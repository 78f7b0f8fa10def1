"""Idle time beside running work, reservations and placements: gaps in lanes of equal nodes.

Nodes that are equal, and are taken at the same times, are one group; so cost grows with what is
placed, and only the reading of a snapshot with its nodes.

Notes
-----
The processes that a group's node could still take are a function of time. It is cut into *lanes*,
each idle in one interval, by closing first what was opened last: that keeps the longest intervals
whole. Every lane may then be filled without a look at the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from coalloc.model.cost import within_limit
from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Placement
from coalloc.model.platform import Node, NodeState
from coalloc.model.shape import ONE_SLOT, Room, most_procs, supplies, taken
from coalloc.model.snapshot import Snapshot
from coalloc.policies.holds import reserved
from coalloc.policies.kernel.instance.kinds import floored_power
from coalloc.policies.uses import fitting, node_uses

SLACK_S = 5e-7
"""A gap that is too short by this much has lost it in rounding; half of what plans may be off."""


def slack(chunk: float) -> float:
    """By how much a gap may be too short for a chunk of this length, seconds."""
    return min(SLACK_S, 0.01 * chunk)


@dataclass(frozen=True, slots=True, order=True)
class Taking:
    """Use of a node in [start, end)."""

    start: float
    end: float
    slots: int
    memory_mb: float
    resources: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An interval in which lanes of a group are idle; `end` may be infinite, seconds."""

    group: int
    start: float
    end: float
    lanes: int
    """On each node of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleGroup:
    """Equal nodes that are taken at the same times."""

    nodes: tuple[int, ...]
    """Indices in snapshot order, rising."""
    node: Node
    """One of them."""
    cluster: int
    power: float
    """By which run times are planned."""
    slots: int
    memory_mb: float
    """Infinite where not limited."""
    features: frozenset[str]
    usable: bool
    free_at: float
    reservations: tuple[int, ...]
    """Those that keep its nodes, indices."""
    taken: tuple[Taking, ...]

    def beside(self, more: Iterable[Taking]) -> IdleGroup:
        """The same nodes with more taken of each."""
        return replace(self, taken=_levels((*self.taken, *more)))


class Idle:
    """The idle time of a snapshot's nodes, beside what is planned already.

    `names` are the nodes, in snapshot order. Powers are rounded down to multiples of the step; 0
    keeps them.
    """

    def __init__(
        self, snapshot: Snapshot, placements: Iterable[Placement] = (), power_step: float = 0.0
    ) -> None:
        self.snapshot = snapshot
        self.clusters = [cluster.name for cluster in snapshot.clusters]
        pairs = [(k, node) for k, cluster in enumerate(snapshot.clusters) for node in cluster.nodes]
        self.names = [node.name for _, node in pairs]
        place = {name: n for n, name in enumerate(self.names)}
        taken = {
            name: tuple(
                sorted(
                    Taking(use.start, use.end, use.slots, use.memory_mb, _named(use.resources))
                    for use in uses
                )
            )
            for name, uses in node_uses(snapshot, placements).items()
        }
        kept = reserved(snapshot.reservations)
        members: dict[Any, list[int]] = {}
        for k, node in pairs:
            key = (
                *(k, node.power, node.slots, node.memory_mb, node.features, node.state),
                *(node.free_at, kept.get(node.name, ()), taken.get(node.name, ())),
                (node.cpus, node.cpus_per_core, _named(node.resources)),
            )
            members.setdefault(key, []).append(place[node.name])
        self.groups: list[IdleGroup] = []
        for key, nodes in members.items():
            cluster, power, slots, memory_mb, features, state, free_at, reservations, rows, _ = key
            usable = state is NodeState.UP and not snapshot.clusters[cluster].stale
            self.groups.append(
                IdleGroup(
                    nodes=tuple(nodes),
                    node=pairs[nodes[0]][1],
                    cluster=cluster,
                    power=floored_power(power, power_step),
                    slots=slots,
                    memory_mb=inf if memory_mb is None else float(memory_mb),
                    features=frozenset(features),
                    usable=usable,
                    free_at=free_at,
                    reservations=reservations,
                    taken=rows,
                )
            )

    def fits(self, group: IdleGroup, job: DivisibleJob) -> bool:
        """Whether the job may run on such nodes, were they up and empty."""
        allowed = job.clusters is None or self.clusters[group.cluster] in job.clusters
        roomy = job.memory_mb_per_proc <= group.memory_mb
        if job.shape != ONE_SLOT:
            roomy = most_procs(job.shape, job.memory_mb_per_proc, group.node) > 0
        return allowed and roomy and frozenset(job.features) <= group.features

    def gaps(self, job: DivisibleJob, earliest: float) -> list[Gap]:
        """Gaps for the job from `earliest` on; what takes no chunk is left out."""
        out = []
        for number, group in enumerate(self.groups):
            if group.usable and self.fits(group, job):
                chunk = within_limit(job, job.chunk_s / group.power)
                least = chunk - slack(chunk)
                out += [g for g in self._lanes(number, job, earliest) if g.end - g.start >= least]
        return out

    def _lanes(self, number: int, job: DivisibleJob, earliest: float) -> Iterator[Gap]:
        group = self.groups[number]
        begin = max(earliest, group.free_at)
        if begin == inf:
            return
        opened: list[tuple[float, int]] = []
        level = 0
        for at, room in self._steps(group, job, begin):
            if room > level:
                opened.append((at, room - level))
            closing = level - room
            while closing > 0:
                since, lanes = opened.pop()
                ends = min(lanes, closing)
                yield Gap(group=number, start=since, end=at, lanes=ends)
                if lanes > ends:
                    opened.append((since, lanes - ends))
                closing -= ends
            level = room
        for since, lanes in opened:
            yield Gap(group=number, start=since, end=inf, lanes=lanes)

    def _steps(
        self, group: IdleGroup, job: DivisibleJob, begin: float
    ) -> Iterator[tuple[float, int]]:
        """From when on a node of the group takes how many processes of the job more."""
        changes: dict[float, list[float]] = {begin: [0, 0.0]}
        closed = Taking(0.0, 0.0, group.slots, 0.0)
        rows = list(group.taken)
        for n in group.reservations:
            kept = self.snapshot.reservations[n]
            if job.id not in kept.jobs:
                rows.append(replace(closed, start=kept.start, end=kept.end))
        for row in rows:
            if row.end > max(begin, row.start):
                for at, sign in ((max(row.start, begin), 1), (row.end, -1)):
                    change = changes.setdefault(at, [0, 0.0])
                    change[0] += sign * row.slots
                    change[1] += sign * row.memory_mb
        if job.shape != ONE_SLOT:
            yield from self._counted_steps(group, job, sorted(changes), rows)
            return
        slots, memory = 0.0, 0.0
        for at in sorted(changes):
            if at == inf:
                return
            slots += changes[at][0]
            memory += changes[at][1]
            free, spare = group.slots - int(slots), group.memory_mb - memory
            yield at, fitting(free, spare, job.memory_mb_per_proc)

    def _counted_steps(
        self, group: IdleGroup, job: DivisibleJob, times: Iterable[float], rows: Iterable[Taking]
    ) -> Iterator[tuple[float, int]]:
        """The same for a job whose shape counts."""
        for at in times:
            free, named = group.slots, Counter(supplies(group.node.resources))
            spare = group.memory_mb
            for row in rows:
                if row.start <= at < row.end:
                    free -= row.slots
                    spare -= row.memory_mb
                    named.subtract(dict(row.resources))
            if at < inf:
                room = Room(max(free, 0), spare, named)
                yield at, most_procs(job.shape, job.memory_mb_per_proc, group.node, room)

    def take(self, number: int, uses: Mapping[int, Iterable[Taking]]) -> None:
        """Note what is taken of nodes of a group, by their place in it, which splits it."""
        group = self.groups[number]
        alike: dict[tuple[Taking, ...], list[int]] = {}
        for n, node in enumerate(group.nodes):
            alike.setdefault(tuple(uses.get(n, ())), []).append(node)
        parts = [replace(group, nodes=tuple(nodes)).beside(more) for more, nodes in alike.items()]
        self.groups[number] = parts[0]
        self.groups += parts[1:]


def _levels(taken: Iterable[Taking]) -> tuple[Taking, ...]:
    """The same as sums over time: intervals that do not overlap, as few as there can be."""
    changes: dict[float, tuple[int, float, Counter[str]]] = {}
    for row in taken:
        for at, sign in ((row.start, 1), (row.end, -1)):
            slots, memory, named = changes.get(at, (0, 0.0, Counter[str]()))
            for name, count in row.resources:
                named[name] += sign * count
            changes[at] = slots + sign * row.slots, memory + sign * row.memory_mb, named
    out: list[Taking] = []
    since, slots, memory, held = -inf, 0, 0.0, Counter[str]()
    for at in sorted(changes):
        more, further, named = changes[at]
        if (more, further) == (0, 0.0) and not any(named.values()):
            continue
        if slots:
            out.append(Taking(since, at, slots, memory, _named(+held)))
        since, slots, memory = at, slots + more, memory + further
        held.update(named)
    return tuple(out)


def charged(job: DivisibleJob, node: Node, procs: int) -> tuple[int, float, Any]:
    """Slots, memory and resources that so many processes take of a node."""
    if job.shape == ONE_SLOT:
        return procs, float(job.memory_mb_per_proc * procs), ()
    slots, memory, resources = taken(job.shape, job.memory_mb_per_proc, node, procs)
    return slots, memory, _named(resources)


def _named(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
