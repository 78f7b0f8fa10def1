"""Nodes, clusters and their links."""

from __future__ import annotations

from enum import StrEnum
from math import inf

from msgspec import Struct, field

from coalloc.model.ranges import EventTime, Gbps, InsideGbps, Latency, MemoryMb, Name, Power, Slots
from coalloc.model.shape import Amounts


class NodeState(StrEnum):
    """State of a node; only ``up`` nodes get new work."""

    UP = "up"
    DRAINING = "draining"
    DOWN = "down"


class Node(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine of a cluster; in a file also a set of equal ones."""

    name: Name
    """Unique name; a node set such as a[1-4] stands for equal nodes."""
    power: Power = 1.0
    """Effective power: relative speed times the share that is really free."""
    slots: Slots = 1
    """Processes at the same time."""
    cpus: Slots | None = None
    """CPUs that its slots share, for jobs that ask for CPUs; default its slots."""
    cpus_per_core: Slots = 1
    """A job takes whole cores of so many CPUs."""
    resources: Amounts = field(default_factory=dict)
    """Counted resources: gpu, gpu:a100; a family has at least what its types have."""
    features: tuple[str, ...] = ()
    """Features a job may ask for."""
    memory_mb: MemoryMb | None = None
    """Memory, MiB; null is unlimited."""
    free_at: EventTime = -inf
    """No slot is usable before, s; default the snapshot's time."""
    state: NodeState = NodeState.UP
    """Only up nodes get new work."""


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes behind one link to the central switch; a bandwidth without limit is infinite."""

    name: Name
    """Unique name."""
    link_gbps: Gbps = inf
    """Capacity to the switch, Gbit/s each way (MBW_k in the OAS papers, ABW_l in the MBPC paper);
    null unlimited."""
    intra_gbps: InsideGbps = inf
    """Inside, Gbit/s; null unlimited."""
    link_latency_s: Latency = 0.0
    """Latency of the link, s."""
    intra_latency_s: Latency = 0.0
    """Latency inside, s."""
    stale: bool = False
    """The last reading failed; gets no new work, and nothing on it is taken for idle."""
    resources: Amounts = field(default_factory=dict)
    """Counted resources of no particular node, such as licences."""
    nodes: tuple[Node, ...] = ()
    """Nodes."""

    @property
    def slots(self) -> int:
        """Slots of all nodes, whatever their state."""
        return sum(node.slots for node in self.nodes)
