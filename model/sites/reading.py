"""Reading of a cluster by its adapter."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import asdict

from coalloc.model.platform import Node, NodeState
from coalloc.model.shape import ONE_SLOT, Amounts, Shape
from coalloc.model.sites.site_rules import SiteRules
from coalloc.model.snapshot import Reservation, Running


class NodeReading(Struct, frozen=True, kw_only=True):
    """A node as its adapter read it."""

    name: str
    power: float = 1.0
    """Raw effective power, before smoothing and steps, in (0, 1]."""
    slots: int = 1
    cpus: int | None = None
    """CPUs that its slots share, for jobs that ask for CPUs; None: its slots."""
    cpus_per_core: int = 1
    """A job takes whole cores of so many CPUs."""
    slot_cpus: int = 1
    """Processors that accounts are charged for a slot: all, of a node that is taken whole."""
    features: tuple[str, ...] = ()
    memory_mb: int | None = None
    """Null is unlimited."""
    state: NodeState = NodeState.UP
    """``up``, ``draining`` or ``down``."""
    load: float = 0.0
    """Share of the node taken by work that is not ours, 0..1."""
    address: str = ""
    """Where processes on other nodes reach it; empty: under its name."""
    load_age_s: float = 0.0
    """How long ago `load` was measured, as far as is known, seconds."""
    reason: str = ""
    """Why it takes no new work, in the batch system's words."""
    partitions: tuple[str, ...] = ()
    """Partitions that it is in."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Counted resources, with and without their type: ``gpu``, ``gpu:a100``."""

    @classmethod
    def of(cls, node: Node) -> NodeReading:
        """The reading of a node that is exactly as described, with no other work on it."""
        described = asdict(node)
        del described["free_at"]
        return cls(**described)


class NativeJob(Struct, frozen=True, kw_only=True):
    """A job that its user submitted to the batch system, and that waits there for our order."""

    id: str
    """The batch system's."""
    submitted: float
    """There, seconds; a number that is used again later is another job."""
    name: str = ""
    user: str = ""
    uid: int = -1
    gid: int = -1
    procs: int = 1
    """Slots it needs."""
    time_limit: float | None = None
    """Of the batch system, seconds."""
    features: tuple[str, ...] = ()
    """Every node must have them all."""
    memory_mb_per_proc: int = 0
    """MiB."""
    shape: Shape = ONE_SLOT
    """What it asks of its nodes besides."""
    waits: str = ""
    """Why it must not be planned yet, in the batch system's words; empty: it may be."""
    claimed: bool = False
    """One of our parts has it; what that part reports is newer than this."""


class ShareUse(Struct, frozen=True, kw_only=True):
    """The share of a cluster on which we go before local waiting jobs, and what that costs them."""

    nodes: int
    """The share: at most so many at once."""
    slots: int = 0
    """Of that many nodes, whichever they are. A job that needs more, or particular nodes, waits in
    the batch system's queue instead."""
    all_slots: int = 0
    """Of all nodes."""
    kept: int = 0
    """Kept for us now, those where our parts run among them."""
    delay_s: float = 0.0
    """Of the local jobs that wait, the one delayed most has waited so long for kept nodes."""
    paused: str = ""
    """Why we claim nothing at the moment; empty: we may."""


class MarkedClaim(Struct, frozen=True, kw_only=True):
    """A claim in the batch system's queue that bears a mark of coalloc's."""

    job: str
    """As its mark has it; another service counts its jobs by itself."""
    attempt: int
    claim: str
    """As the mark has them; another service counts its jobs by itself."""
    submitted: float
    """Seconds since the epoch, by the batch system's clock."""
    holds: bool
    """It has nodes; else it waits."""
    ours: bool
    """A part of this service has it."""
    id: str = ""
    """Of its job, as `running` and `reservations` have it."""


class ClusterReading(Struct, frozen=True, kw_only=True):
    """One successful reading of one cluster."""

    cluster: str
    nodes: tuple[NodeReading, ...]
    resources: Amounts = field(default_factory=dict)
    """Counted resources of no particular node."""
    running: tuple[Running, ...] = ()
    """Work that is not ours."""
    waiting: int = 0
    """Jobs in the batch system's own queue."""
    waited: tuple[tuple[float, int], ...] = ()
    """How many seconds the newest of the local jobs that run had waited in it, and their nodes."""
    claims: tuple[MarkedClaim, ...] = ()
    """Where another service has claims in the batch system's queue: those, and ours, below."""
    queues: bool = False
    """Claims of ours may wait in it too."""
    keeps_places: bool = True
    """A claim that is to begin later keeps its place in it until then."""
    reservations: tuple[Reservation, ...] = ()
    """Nodes that the batch system keeps from us, below."""
    handed: tuple[NativeJob, ...] = ()
    """All jobs that were handed over to us and have not begun, below."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Words of the batch system that the adapter does not know, and how often each was said;
    logged, and nothing else."""
    notices: tuple[str, ...] = ()
    """What an operator should know of the cluster, each in one line; logged when it is new, and
    shown beside the cluster."""
    way: str = ""
    """How our parts get in beside local jobs, in words; empty: at once or not at all."""
    share: ShareUse | None = None
    """None: we go before no waiting job."""
    rules: SiteRules | None = None
    """What the batch system lets jobs do, below; null: not known, and learnt from refusals."""
    site: str = ""
    """The machine that it is, by the host key of its login node and its own name: clusters of
    several owners with the same are one in a plan; empty: its own."""
    rpcs_per_min: float | None = None
    """Requests a minute that we make to its controller; null: not counted."""
