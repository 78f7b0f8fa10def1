"""Nodes, clusters and their links."""

from __future__ import annotations

from enum import StrEnum
from math import inf

from msgspec import Struct


class NodeState(StrEnum):
    """State of a node; only ``up`` nodes get new work."""

    UP = "up"
    DRAINING = "draining"
    DOWN = "down"


class Node(Struct, frozen=True, kw_only=True):
    """One machine of a cluster.

    Attributes
    ----------
    name : str
        Unique in a snapshot.
    power : float
        Effective power, in (0, 1]: relative speed times the share that is really free.
    slots : int
        Processes that may run at the same time.
    features : tuple of str
        Names a job may ask for.
    memory_mb : int or None
        Memory in MiB; None is unlimited.
    free_at : float
        No slot is usable before this time, seconds on the snapshot's axis.
    state : NodeState
    """

    name: str
    power: float = 1.0
    slots: int = 1
    features: tuple[str, ...] = ()
    memory_mb: int | None = None
    free_at: float = -inf
    state: NodeState = NodeState.UP


class Cluster(Struct, frozen=True, kw_only=True):
    """Nodes behind one link to the central switch.

    Attributes
    ----------
    link_gbps : float
        Capacity of the link to the central switch, Gbit/s each way (MBW_k in the OAS
        papers, ABW_l in the MBPC paper); infinite when not limited.
    intra_gbps : float
        Bandwidth inside the cluster, Gbit/s.
    link_latency_s, intra_latency_s : float
        Seconds.
    stale : bool
        The last reading failed: nothing new is planned here, and nothing is assumed idle.
    """

    name: str
    nodes: tuple[Node, ...] = ()
    link_gbps: float = inf
    intra_gbps: float = inf
    link_latency_s: float = 0.0
    intra_latency_s: float = 0.0
    stale: bool = False

    @property
    def slots(self) -> int:
        """Slots of all nodes, whatever their state."""
        return sum(node.slots for node in self.nodes)
