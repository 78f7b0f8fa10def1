"""Rows of the answer to *nodes*: clusters, their nodes, and what is kept of them."""

from __future__ import annotations

from msgspec import Struct

from coalloc.model.reading import ShareUse


class NodeRow(Struct, frozen=True, kw_only=True):
    """One node.

    Attributes
    ----------
    state : str
        ``up``, ``draining`` or ``down``.
    free : int
        Slots that could take a process now.
    power, raw_power : float
        As planned with, and as read, (0, 1].
    load : float
        Share taken by work that is not ours, 0..1.
    load_age_s : float
        How long ago that was measured, as far as is known, seconds.
    reason : str
        Why it takes no new work, in the batch system's words.
    """

    name: str
    state: str
    slots: int
    free: int
    power: float
    raw_power: float
    load: float
    load_age_s: float = 0.0
    reason: str = ""
    features: tuple[str, ...] = ()
    memory_mb: int | None = None


class ClusterRow(Struct, frozen=True, kw_only=True):
    """One cluster with its nodes.

    Attributes
    ----------
    stale : bool
        The last reading is too old or there is none: it gets no new work.
    connected : bool
        Its executor is there.
    drain_reason : str
        As its operator gave it.
    error : str
        Why there is no newer reading.
    age_s : float or None
        Of the last reading, seconds.
    link_gbps : float or None
        Capacity of its link, Gbit/s; None is unlimited.
    waiting_there : int
        Jobs in the batch system's own queue.
    way : str
        How parts get in beside local jobs, in words.
    share : ShareUse or None
        None: they go before no waiting job.
    version : str
        Of its executor; empty: not said.
    clock_ahead_s : float or None
        How far its executor's wall clock is before the daemon's, as far as is known, seconds.
    """

    cluster: str
    stale: bool
    connected: bool
    drained: bool
    nodes: tuple[NodeRow, ...]
    error: str = ""
    age_s: float | None = None
    link_gbps: float | None = None
    link_used_gbps: float = 0.0
    waiting_there: int = 0
    drain_reason: str = ""
    way: str = ""
    share: ShareUse | None = None
    version: str = ""
    clock_ahead_s: float | None = None


class ReservationRow(Struct, frozen=True, kw_only=True):
    """Nodes that are kept for some users, or for nobody.

    Attributes
    ----------
    start, end : float
        Seconds since the epoch; without an end it lasts until it is taken back.
    users : tuple of str
        Whose jobs may run there.
    by : str
        The operator who made it, or the cluster whose batch system has it.
    """

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float | None = None
    users: tuple[str, ...] = ()
    by: str = ""
    reason: str = ""
