"""The whole input of one scheduling round, immutable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from coalloc.model.jobs import Job
from coalloc.model.platform import Cluster, Node
from coalloc.model.ranges import EventTime, Instant, LoadGbps, MemoryMb, Name, Overrun, Slots
from coalloc.model.shape import Amounts

SNAPSHOT_FORMAT = "coalloc-snapshot/1"

OVERRUN_S = 60.0
"""A running job past its end is expected to go on for this long, seconds."""


class Running(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work that occupies slots now."""

    id: Name
    """Id of the job."""
    nodes: Mapping[str, Slots]
    """Slots taken on each node."""
    start: EventTime
    """Start, s."""
    end: EventTime
    """Expected end, s."""
    link_gbps: Mapping[str, LoadGbps] = field(default_factory=dict)
    """Load on the link of each cluster until the end, Gbit/s."""
    ours: bool = True
    """False for the batch system's own jobs."""
    memory_mb: Mapping[str, MemoryMb] = field(default_factory=dict)
    """MiB taken on each node; default the share of its slots."""
    resources: Mapping[str, Amounts] = field(default_factory=dict)
    """Counted resources taken on each node."""
    per_job: Amounts = field(default_factory=dict)
    """Counted resources taken of each of its clusters, or of the site."""

    def busy_until(self, time: float, overrun_s: float = OVERRUN_S) -> float:
        """Time at which its slots are taken to be free, seconds."""
        return max(self.end, time + overrun_s)


class Reservation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes kept for the named jobs in [start, end)."""

    id: Name
    """Id."""
    nodes: tuple[Name, ...]
    """Node names or node sets."""
    start: EventTime
    """Start, s."""
    end: EventTime
    """End, s."""
    jobs: tuple[str, ...] = ()
    """Jobs of ours that may use them."""


class SnapshotFields(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag=SNAPSHOT_FORMAT,
    forbid_unknown_fields=True,
):
    """Fields of a snapshot that its file has too."""

    time: Instant = 0.0
    """Now, s; every other time lies on the same axis."""
    overrun_s: Overrun = OVERRUN_S
    """A job past its end is expected to go on, s."""
    clusters: tuple[Cluster, ...] = ()
    """Clusters."""
    queue: tuple[Job, ...] = ()
    """Waiting jobs in arrival order."""
    running: tuple[Running, ...] = ()
    """Work that occupies slots."""
    reservations: tuple[Reservation, ...] = ()
    """Reserved nodes."""
    resources: Amounts = field(default_factory=dict)
    """Counted resources of the site, of no particular cluster."""


class Snapshot(SnapshotFields, frozen=True, kw_only=True):
    """Clusters, queue, running work and reservations at one instant."""

    warnings: tuple[str, ...] = ()
    """What was repaired while reading; each names the job."""

    def nodes(self) -> Iterator[tuple[Cluster, Node]]:
        """Every node with its cluster, in snapshot order."""
        for cluster in self.clusters:
            for node in cluster.nodes:
                yield cluster, node
