"""Holds of running work and reservations in a snapshot: the one reading for all policies.

The checker has a reading of its own (`coalloc.policies.checking.occupation`), which agrees with it.

Notes
-----
Where a snapshot does not tell how much memory running work uses, on each node that counts
floor(memory_mb * its slots / slots), for each piece of work by itself. Work holds its slots, memory
and link load from before the snapshot's time until max(end, time + overrun_s). What lies on nodes
or links that the snapshot does not have is left out, and so is what has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from coalloc.model.platform import Node
from coalloc.model.shape import supplies
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.policies.latest import keep_latest


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """Takings of a node in [start, end), seconds; running work starts at -inf."""

    who: str
    node: str
    slots: int
    memory_mb: int
    end: float
    start: float = -inf
    resources: Mapping[str, int] = field(default_factory=dict)
    """With what they come to in each family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Load of a cluster's link in [start, end), seconds; running work starts at -inf."""

    who: str
    cluster: str
    gbps: float
    end: float
    start: float = -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """All holds of running work, in the snapshot's order."""

    nodes: tuple[NodeUse, ...] = ()
    """The memory of a node without a limit counts as 0."""
    links: tuple[LinkUse, ...] = ()


@keep_latest
def nodes_by_name(*clusters: tuple[Node, ...]) -> Mapping[str, Node]:
    """The nodes of these clusters."""
    return {node.name: node for nodes in clusters for node in nodes}


def holds(snapshot: Snapshot) -> Holds:
    """Read what runs."""
    if not snapshot.running:
        return Holds()
    known = nodes_by_name(*(cluster.nodes for cluster in snapshot.clusters))
    clusters = {cluster.name for cluster in snapshot.clusters}
    nodes: list[NodeUse] = []
    links: list[LinkUse] = []
    for work in snapshot.running:
        until = work.busy_until(snapshot.time, snapshot.overrun_s)
        if until <= snapshot.time:
            continue
        for name, slots in work.nodes.items():
            if name in known:
                share = (known[name].memory_mb or 0) * slots // known[name].slots
                nodes.append(
                    NodeUse(
                        who=work.id,
                        node=name,
                        slots=slots,
                        memory_mb=work.memory_mb.get(name, share),
                        end=until,
                        resources=supplies(work.resources.get(name, {})),
                    )
                )
        links += [
            LinkUse(who=work.id, cluster=name, gbps=gbps, end=until)
            for name, gbps in work.link_gbps.items()
            if name in clusters
        ]
    return Holds(nodes=tuple(nodes), links=tuple(links))


def reserved(reservations: Iterable[Reservation]) -> dict[str, tuple[int, ...]]:
    """The reservations that keep each node, by their places in the list."""
    out: dict[str, tuple[int, ...]] = {}
    for number, reservation in enumerate(reservations):
        for name in dict.fromkeys(reservation.nodes):
            out[name] = (*out.get(name, ()), number)
    return out
