"""Rows of the answer to *nodes*: clusters, their nodes, and what is kept of them."""

from __future__ import annotations

from msgspec import Struct, field

from coalloc.model.sites.reading import ShareUse


class NodeRow(Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    state: str
    """``up``, ``draining`` or ``down``."""
    slots: int
    free: int
    """Slots that could take a process now."""
    power: float
    """As planned with, and as read, (0, 1]."""
    raw_power: float
    """As read."""
    load: float
    """Share taken by work that is not ours, 0..1."""
    load_age_s: float = 0.0
    """How long ago that was measured, as far as is known, seconds."""
    reason: str = ""
    """Why it takes no new work, in the operator's or the batch system's words."""
    features: tuple[str, ...] = ()
    memory_mb: int | None = None
    """Null is unlimited."""
    free_memory_mb: int | None = None
    """Of that, what is not taken; null: not counted."""
    cpus: int | None = None
    """CPUs that its slots share; null: one each."""
    resources: dict[str, int] = field(default_factory=dict)
    """Counts of what else it has: ``gpu``, ``gpu:a100``."""
    free_resources: dict[str, int] = field(default_factory=dict)
    """Of these, what is not taken."""


class ClusterRow(Struct, frozen=True, kw_only=True):
    """One cluster with its nodes."""

    cluster: str
    """Its name."""
    stale: bool
    """The last reading is too old or there is none: it gets no new work."""
    connected: bool
    """Its executor is there."""
    drained: bool
    """By an operator."""
    nodes: tuple[NodeRow, ...]
    error: str = ""
    """Why there is no newer reading."""
    age_s: float | None = None
    """Of the last reading, seconds."""
    link_gbps: float | None = None
    """Capacity of its link, Gbit/s; None is unlimited."""
    link_used_gbps: float = 0.0
    """Planned load of the jobs that run."""
    waiting_there: int = 0
    """Jobs in the batch system's own queue."""
    drain_reason: str = ""
    """As its operator gave it."""
    notices: tuple[str, ...] = ()
    """What an operator should know of it, by its last reading."""
    way: str = ""
    """How parts get in beside local jobs, in words."""
    share: ShareUse | None = None
    """The share on which parts go before local jobs that wait, below."""
    owner: str = ""
    """Only this user's jobs run there; empty: everybody's."""
    site: str = ""
    """The machine that it is; rows with the same are one, read for several owners."""
    read_by: str = ""
    """The cluster of which the reading is this one's, too; empty: its own executor reads it."""
    version: str = ""
    """Of its executor; empty: not said."""
    clock_ahead_s: float | None = None
    """How far its executor's wall clock is before the daemon's, by the quickest of its latest
    messages."""
    rpcs_per_min: float | None = None
    """Requests a minute that its executor makes to the batch system's controller; null: not
    counted."""


class ReservationRow(Struct, frozen=True, kw_only=True):
    """Nodes that are kept for some users, or for nobody."""

    name: str
    nodes: tuple[str, ...]
    start: float
    """Seconds since the epoch; without an end it lasts until it is taken back."""
    end: float | None = None
    """Null: until it is taken back."""
    users: tuple[str, ...] = ()
    """Whose jobs may run there; of a batch system's own it is not known."""
    by: str = ""
    """The operator who made it, or the cluster whose batch system has it."""
    reason: str = ""
