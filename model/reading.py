"""Reading of a cluster by its adapter."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from coalloc.model.platform import Node, NodeState
from coalloc.model.site_rules import SiteRules
from coalloc.model.snapshot import Reservation, Running


class NodeReading(Struct, frozen=True, kw_only=True):
    """A node as its adapter read it.

    Attributes
    ----------
    power : float
        Raw effective power, before smoothing and steps, in (0, 1].
    load : float
        Share of the node taken by work that is not ours, 0..1.
    address : str
        Where processes on other nodes reach it; empty: under its name.
    load_age_s : float
        How long ago `load` was measured, as far as is known, seconds.
    reason : str
        Why it takes no new work, in the batch system's words.
    partitions : tuple of str
        That it is in.
    gres : mapping of name to count
        Generic resources, with and without their type: ``gpu``, ``gpu:a100``.
    """

    name: str
    power: float = 1.0
    slots: int = 1
    features: tuple[str, ...] = ()
    memory_mb: int | None = None
    state: NodeState = NodeState.UP
    load: float = 0.0
    address: str = ""
    load_age_s: float = 0.0
    reason: str = ""
    partitions: tuple[str, ...] = ()
    gres: Mapping[str, int] = field(default_factory=dict)

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


class NativeJob(Struct, frozen=True, kw_only=True):
    """A job that its user submitted to the batch system, and that waits there for our order.

    Attributes
    ----------
    id : str
        The batch system's.
    submitted : float
        There, seconds; a number that is used again later is another job.
    name, user : str
    uid, gid : int
    procs : int
        Slots it needs.
    time_limit : float or None
        Of the batch system, seconds.
    features : tuple of str
        Every node must have them all.
    memory_mb_per_proc : int
    waits : str
        Why it must not be planned yet, in the batch system's words; empty: it may be.
    claimed : bool
        One of our parts has it; what that part reports is newer than this.
    """

    id: str
    submitted: float
    name: str = ""
    user: str = ""
    uid: int = -1
    gid: int = -1
    procs: int = 1
    time_limit: float | None = None
    features: tuple[str, ...] = ()
    memory_mb_per_proc: int = 0
    waits: str = ""
    claimed: bool = False


class ShareUse(Struct, frozen=True, kw_only=True):
    """The share of a cluster on which we go before local waiting jobs, and what that costs them."""

    nodes: int
    """The share: at most so many at once."""
    kept: int = 0
    """Kept for us now, those where our parts run among them."""
    delay_s: float = 0.0
    """Of the local jobs that wait, the one delayed most has waited so long for kept nodes."""
    paused: str = ""
    """Why we claim nothing at the moment; empty: we may."""


class MarkedClaim(Struct, frozen=True, kw_only=True):
    """A claim in the batch system's queue that bears a mark of coalloc's.

    Attributes
    ----------
    job, attempt, claim : str, int, str
        As the mark has them; another service counts its jobs by itself.
    submitted : float
        Seconds since the epoch, by the batch system's clock.
    holds : bool
        It has nodes; else it waits.
    ours : bool
        A part of this service has it.
    """

    job: str
    attempt: int
    claim: str
    submitted: float
    holds: bool
    ours: bool


class ClusterReading(Struct, frozen=True, kw_only=True):
    """One successful reading of one cluster.

    Attributes
    ----------
    running : tuple of Running
        Work that is not ours.
    waiting : int
        Jobs in the batch system's own queue.
    waited : tuple of (seconds, nodes)
        How long the newest of the local jobs that run had waited in it, and how wide they are.
    claims : tuple of MarkedClaim
        Where another service has claims in it: those, and ours.
    queues : bool
        Claims of ours may wait in it too.
    reservations : tuple of Reservation
        Nodes that the batch system keeps from us.
    handed : tuple of NativeJob
        All that were handed over to us and have not begun.
    unknown : mapping of words to count
        What the batch system said and the adapter does not know.
    notices : tuple of str
        What an operator should know of the cluster, each in one line.
    way : str
        How our parts get in beside local jobs, in words; empty: at once or not at all.
    share : ShareUse or None
        None: we go before no waiting job.
    rules : SiteRules or None
        What its batch system lets jobs do; None: not known.
    """

    cluster: str
    nodes: tuple[NodeReading, ...]
    running: tuple[Running, ...] = ()
    waiting: int = 0
    waited: tuple[tuple[float, int], ...] = ()
    claims: tuple[MarkedClaim, ...] = ()
    queues: bool = False
    reservations: tuple[Reservation, ...] = ()
    handed: tuple[NativeJob, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    way: str = ""
    share: ShareUse | None = None
    rules: SiteRules | None = None
