"""The whole input of one scheduling round, immutable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from coalloc.model.jobs import Job
from coalloc.model.platform import Cluster, Node

OVERRUN_S = 60.0
"""A running job past its end is expected to go on for this long, seconds."""


class Running(Struct, frozen=True, kw_only=True):
    """Work that occupies slots now.

    Attributes
    ----------
    nodes : mapping of node name to slots
    start, end : float
        Seconds; `end` is the expected end.
    link_gbps : mapping of cluster name to Gbit/s
        Load on each cluster's link until the end.
    ours : bool
        False for the batch system's own jobs.
    """

    id: str
    nodes: Mapping[str, int]
    start: float
    end: float
    link_gbps: Mapping[str, float] = field(default_factory=dict)
    ours: bool = True

    def busy_until(self, time: float, overrun_s: float = OVERRUN_S) -> float:
        """Time at which its slots are taken to be free, seconds."""
        return max(self.end, time + overrun_s)


class Reservation(Struct, frozen=True, kw_only=True):
    """Nodes kept for the named jobs in [start, end)."""

    id: str
    nodes: tuple[str, ...]
    start: float
    end: float
    jobs: tuple[str, ...] = ()


class Snapshot(Struct, frozen=True, kw_only=True):
    """Clusters, queue, running work and reservations at one instant.

    Attributes
    ----------
    time : float
        Now; every other time lies on the same axis, seconds.
    warnings : tuple of str
        What was repaired while reading; each names the job.
    """

    time: float = 0.0
    clusters: tuple[Cluster, ...] = ()
    queue: tuple[Job, ...] = ()
    running: tuple[Running, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    overrun_s: float = OVERRUN_S
    warnings: tuple[str, ...] = ()

    def nodes(self) -> Iterator[tuple[Cluster, Node]]:
        """Every node with its cluster, in snapshot order."""
        for cluster in self.clusters:
            for node in cluster.nodes:
                yield cluster, node
