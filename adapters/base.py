"""The two faces of a batch system: one is read, the other launches.

A `Reader` says what a cluster's nodes are worth now. A `Launcher` claims nodes for one part
of a job, holds its processes at a barrier, and reports until the part is forgotten. Both may
block for a while and are called from threads; neither is re-entrant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from coalloc.model.sites.parts import PartKey, PartReport, PartSpec
from coalloc.model.sites.reading import ClusterReading

Files = tuple[str, str, float]
"""Way to a cluster's files: login and configuration as `ssh.master.SshMaster` takes them (empty:
they are this machine's), and the most bandwidth of a copy, MB/s (0: any)."""


class AdapterError(Exception):
    """The batch system cannot be reached or does not answer; nothing is known of it."""


class ClaimRefusedError(AdapterError):
    """The nodes cannot be claimed; nothing was left behind.

    `reason` is ``nodes_taken``, ``unknown_node``, ``impossible`` (no attempt could ever work),
    ``bad_spec``, ``state_unwritable`` or another word of the batch system's launcher.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Reader(Protocol):
    """Reads one cluster."""

    def read(self) -> ClusterReading:
        """Return what the cluster is now; blocks no longer than its own time limit.

        Raises `AdapterError` where it could not be read: it is unknown then, not empty.
        """


class Starter(Protocol):
    """Starts parts on one cluster, and ends them. Every call may be repeated harmlessly."""

    def claim(self, part: PartSpec) -> None:
        """Claim the nodes, and bring the processes to the barrier; does not wait for that.

        Raises `ClaimRefusedError` where nodes are taken or do not exist, and `AdapterError`.
        """

    def go(self, key: PartKey, at: float = 0.0) -> None:
        """Open the barrier, at this wall-clock time if it is to come."""

    def abort(self, key: PartKey, reason: str = "") -> None:
        """Give the claim up; where the processes run already, end them."""

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is that was not forgotten."""

    def adopt(self) -> tuple[PartReport, ...]:
        """Find every part an earlier launcher left, and return how it is."""

    def forget(self, key: PartKey) -> None:
        """Remove what is kept of an ended part; one that has not ended is left alone."""

    def close(self) -> None:
        """Let go of the launcher's own resources; the parts live on."""


class Launcher(Starter, Protocol):
    """Launches parts whose claims lapse, and may wait in a queue before."""

    def arrange(self, key: PartKey, nodes: Mapping[str, int], rendezvous: str) -> None:
        """Tell a part that might wait of all nodes of its job, in rank order, and their place."""

    def hasten(self, key: PartKey) -> None:
        """Let a part that waits for a later begin take its turn from now on."""

    def limit(self, key: PartKey, limit_s: float) -> None:
        """Let a part run so long from its start, and no longer.

        Raises `AdapterError` where the batch system keeps another limit.
        """

    def renew(self) -> None:
        """Let every claim stand for another lease."""

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `poll` has news, where there is one."""


class Handover(Protocol):
    """Of a batch system whose own jobs may be ordered by us."""

    def dismiss(self, foreign: str) -> None:
        """Cancel a job that waits for us; one that is gone is no error. Raises `AdapterError`."""


class Act(Struct, frozen=True, kw_only=True):
    """Something to be done in the batch system, which a reading has shown to be due."""

    what: str
    """For logs."""
    run: Callable[[], None]
    """Does it; raises `AdapterError` where it cannot. The next reading shows it again then."""


class Adapter(Struct, frozen=True, kw_only=True):
    """The faces of one cluster; one that only reads has no launcher, most hand nothing over."""

    reader: Reader
    launcher: Launcher | None = None
    handover: Handover | None = None
    on_demand: Callable[[int], None] | None = None
    """Told again and again how many slots of the cluster waiting jobs could fill."""
    due: Callable[[], tuple[Act, ...]] = tuple
    """The acts that the last reading has shown to be due."""
    streams: tuple[Path, Callable[[PartKey], None]] | None = None
    """Folder of the socket at which runners call the executor, and what orders a part's to call;
    None: parts have no streams."""
    files: Files = ("", "", 0.0)
    lacks: frozenset[str] = frozenset()
    """Abilities of executors (`core.base.messages`) that its parts have not."""
    traits: frozenset[str] = frozenset()
    """Further words that its executor says with its abilities."""
    pause: Callable[[bool], float] = lambda is_idle: 1.0
    """Factor on the usual pause before the next reading. Its argument: nothing of ours waits or
    runs on the cluster, and nothing asks for its slots."""


class Proposal(Struct, frozen=True, kw_only=True):
    """One cluster that could be configured."""

    name: str
    """Of the cluster in our configuration."""
    adapter: str
    """A key of `coalloc.adapters.registry.ADAPTERS`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For the adapter."""
    found: tuple[str, ...] = ()
    """Lines for the operator: what the proposal was read from."""


def plain_name(text: str) -> str:
    """A text as a name: letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
