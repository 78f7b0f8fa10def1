"""Idle time beside running work, reservations and placements: gaps in lanes of equal nodes.

Nodes that are equal, and are taken at the same times, are one group; so cost grows with what is
placed, and only the reading of a snapshot with its nodes.

Notes
-----
The processes that a group's node could still take are a function of time. It is cut into *lanes*,
each idle in one interval, by closing first what was opened last: that keeps the longest intervals
whole. Every lane may then be filled without a look at the others: of a job with a shape each is as
wide as a process by itself, in whole slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from coalloc.model.cost import within_limit
from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Placement
from coalloc.model.platform import Node, NodeState
from coalloc.model.shape import most_procs, room_of, taken
from coalloc.model.snapshot import Snapshot
from coalloc.policies.holds import node_uses, reserved
from coalloc.policies.kernel.instance.kinds import floored_power

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
    cluster: int
    power: float
    """By which run times are planned."""
    node: Node
    """One of them."""
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
                    Taking(use.start, use.end, use.slots, use.memory_mb, _listed(use.resources))
                    for use in uses
                )
            )
            for name, uses in node_uses(snapshot, placements).items()
        }
        kept = reserved(snapshot.reservations)
        members: dict[Any, list[Node]] = {}
        for k, node in pairs:
            key = (
                *(k, node.power, node.slots, node.memory_mb, node.features, node.state),
                *(node.free_at, kept.get(node.name, ()), taken.get(node.name, ())),
                *(node.cpus, node.cpus_per_core, _listed(node.resources)),
            )
            members.setdefault(key, []).append(node)
        self.groups: list[IdleGroup] = []
        for key, nodes in members.items():
            cluster, power, _, _, features, state, free_at, reservations, rows, *_ = key
            usable = state is NodeState.UP and not snapshot.clusters[cluster].stale
            self.groups.append(
                IdleGroup(
                    nodes=tuple(place[node.name] for node in nodes),
                    cluster=cluster,
                    power=floored_power(power, power_step),
                    node=nodes[0],
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
        each, room = taken(job.shape, job.memory_mb_per_proc, group.node, 1), room_of(group.node)
        needs = each.slots, each.memory_mb, *each.resources.values()
        free = [room.slots, room.memory_mb, *(room.resources.get(n, 0) for n in each.resources)]
        closed = Taking(0.0, 0.0, room.slots, 0.0)
        rows = list(group.taken)
        for n in group.reservations:
            kept = self.snapshot.reservations[n]
            if job.id not in kept.jobs:
                rows.append(replace(closed, start=kept.start, end=kept.end))
        late = [row for row in rows if row.end > max(begin, row.start)]
        changes = {begin: [0.0] * len(needs)}
        _sum(changes, (replace(row, start=max(row.start, begin)) for row in late), each.resources)
        for at in sorted(changes):
            if at == inf:
                return
            free = [left - more for left, more in zip(free, changes[at], strict=True)]
            most = min(left // need for left, need in zip(free, needs, strict=True) if need)
            yield at, int(max(min(most, job.shape.procs_per_node or most), 0))

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
    rows = tuple(taken)
    names = sorted({name for row in rows for name, _ in row.resources})
    changes: dict[float, list[float]] = {}
    _sum(changes, rows, names)
    out: list[Taking] = []
    since, level = -inf, [0.0] * (2 + len(names))
    for at in sorted(changes):
        if not any(changes[at]):
            continue
        if level[0]:
            held = tuple((n, int(a)) for n, a in zip(names, level[2:], strict=True) if a)
            out.append(Taking(since, at, int(level[0]), level[1], held))
        since, level = at, [a + b for a, b in zip(level, changes[at], strict=True)]
    return tuple(out)


def _sum(changes: dict[float, list[float]], rows: Iterable[Taking], names: Iterable[str]) -> None:
    """Add to the changes of slots, memory and these resources at each instant."""
    for row in rows:
        held = dict(row.resources)
        amounts = (row.slots, row.memory_mb, *(held.get(name, 0) for name in names))
        for at, sign in ((row.start, 1), (row.end, -1)):
            change = changes.setdefault(at, [0.0] * len(amounts))
            for i, amount in enumerate(amounts):
                change[i] += sign * amount


def _listed(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
