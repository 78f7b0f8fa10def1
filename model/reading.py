"""What an adapter reads of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from coalloc.model.platform import Node, NodeState
from coalloc.model.snapshot import Running


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """A node as its adapter read it.

    Attributes
    ----------
    power : float
        Raw effective power, before smoothing and steps, in (0, 1].
    load : float
        Share of the node taken by work that is not ours, 0..1.
    address : str
        Where processes on other nodes reach it; empty: under its name.
    """

    name: str
    power: float = 1.0
    slots: int = 1
    features: tuple[str, ...] = ()
    memory_mb: int | None = None
    state: NodeState = NodeState.UP
    load: float = 0.0
    address: str = ""

    @classmethod
    def of(cls, node: Node) -> NodeReading:
        """The reading of a node that is exactly as described, with no other work on it."""
        return cls(
            name=node.name,
            power=node.power,
            slots=node.slots,
            features=node.features,
            memory_mb=node.memory_mb,
            state=node.state,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """One successful reading of one cluster.

    Attributes
    ----------
    running : tuple of Running
        Work that is not ours.
    waiting : int
        Jobs in the batch system's own queue.
    """

    cluster: str
    nodes: tuple[NodeReading, ...]
    running: tuple[Running, ...] = ()
    waiting: int = 0
