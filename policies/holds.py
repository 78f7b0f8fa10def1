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

from coalloc.model.platform import Node
from coalloc.model.shape import supplies
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.policies.latest import keep_latest


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHold:
    """Slots, memory and resources of a node that running work holds; `until` in seconds."""

    work: str
    node: str
    slots: int
    memory_mb: int
    until: float
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkHold:
    """Load of a cluster's link by running work; `until` in seconds."""

    work: str
    cluster: str
    gbps: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """All holds of running work, in the snapshot's order."""

    nodes: tuple[NodeHold, ...] = ()
    """The memory of a node without a limit counts as 0."""
    links: tuple[LinkHold, ...] = ()


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
    nodes: list[NodeHold] = []
    links: list[LinkHold] = []
    for work in snapshot.running:
        until = work.busy_until(snapshot.time, snapshot.overrun_s)
        if until <= snapshot.time:
            continue
        for name, slots in work.nodes.items():
            if name in known:
                share = (known[name].memory_mb or 0) * slots // known[name].slots
                nodes.append(
                    NodeHold(
                        work=work.id,
                        node=name,
                        slots=slots,
                        memory_mb=work.memory_mb.get(name, share),
                        until=until,
                        resources=supplies(work.resources.get(name, {})),
                    )
                )
        links += [
            LinkHold(work=work.id, cluster=name, gbps=gbps, until=until)
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
