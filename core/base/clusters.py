"""Clusters as the daemon's core knows them.

Mutable, but changed only inside `coordinator.handle`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from coalloc.core.base.messages import WHOLE_JOBS
from coalloc.core.base.power import PowerState, floored
from coalloc.model.platform import Node
from coalloc.model.settings import ClusterConfig
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.sites.site_rules import Verdict
from coalloc.model.sites.staging import Stage
from coalloc.model.snapshot import Running

Named = tuple[ClusterReading | None, Mapping[str, int], Counter[str], int]
"""A reading, its nodes' places in it, the slots that work there takes of each, and all slots."""


class ViewedNodes(Struct, frozen=True, kw_only=True):
    """The nodes of a cluster as planning sees them, and what they were made from.

    `reading` and `powers` are replaced whole where they change, so that they are compared as
    objects.
    """

    reading: ClusterReading | None
    powers: Mapping[str, PowerState]
    drained: tuple[bool, frozenset[str]]
    power_step: float
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class ClusterState:
    """One cluster as the daemon sees it now."""

    settings: ClusterConfig
    configured: bool = True
    """False where the configuration has dropped it, and jobs still run on it."""
    connected: bool = False
    identity: str = ""
    """Of its executor's state; empty: not said."""
    rival: str = ""
    """Of another executor's, which was not admitted."""
    peer: Hashable = None
    """The connection of its executor, while it is connected."""
    heard_at: float | None = None
    """When its executor said anything last, while it was connected."""
    reading: ClusterReading | None = None
    read_at: float = float("-inf")
    reading_at: float = 0.0
    """Of the reading, by its executor's clock."""
    reading_run: str = ""
    """Of the executor whose clock that is."""
    has_failed: bool = False
    """It could not be read when that was last tried: nothing new is planned there."""
    read_by: str = ""
    """The twin whose reading is its latest, too; empty: its own executor's is (`jobs.twins`)."""
    error: str = "no reading yet"
    version: str = ""
    """Of its executor; empty: not said."""
    abilities: frozenset[str] | None = None
    """Of its executor; None: it has not said hello yet."""
    clock_leads_s: tuple[float, ...] = ()
    """Its executor's wall clock before ours, less the way of each of the latest messages."""
    powers: dict[str, PowerState] = field(default_factory=dict)
    drained: bool = False
    drained_nodes: set[str] = field(default_factory=set)
    lead_s: float = 0.0
    """Its nodes have to be told so long before parts start together, by its latest report."""
    next_seq: int = 1
    acked_seq: int = 0
    behind_since: tuple[int, float] | None = None
    """The order an executor says it is at, while there are later ones, and since when."""
    unseen: frozenset[str] = frozenset()
    """Handed jobs that the latest reading should have had, and did not."""
    put_back: dict[str, float] = field(default_factory=dict)
    """Handed jobs that the batch system put back into its queue, and when, by its executor's
    clock: an earlier reading does not have them."""
    unknown: frozenset[str] = frozenset()
    """Words of the batch system that nobody here knows, and that were logged."""
    asked: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Orders under way that say nothing new when repeated, with their numbers."""
    forgotten: list[tuple[str, int]] = field(default_factory=list)
    """Ends of this step that its executor is to forget: job and attempt of each."""
    verdicts: dict[Hashable, Verdict] = field(default_factory=dict, compare=False, repr=False)
    """What its batch system would say to jobs, by the rules it was read with."""
    openings: dict[Hashable, tuple[NodeReading, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Its nodes in some partitions, that some constraints admit."""
    refused: dict[str, dict[Hashable, float]] = field(default_factory=dict)
    """Nodes that refused a claim, until when they are avoided, by what was asked for."""
    others_at: float = float("-inf")
    """When jobs that are not ours waited or ran there last, by a reading."""
    run_s: float = 0.0
    """How long jobs that are not ours ran there of late, seconds; 0: none was seen to end."""
    stages: Mapping[str, Stage] = field(default_factory=dict)
    """Progress of its executor with the data of jobs, by job."""
    full: dict[str, float] = field(default_factory=dict)
    """Users whose claims its batch system refused for a limit on submits, and until when."""
    viewed: ViewedNodes | None = field(default=None, compare=False, repr=False)
    """Its nodes as the latest snapshot had them."""
    named: Named = field(default=(None, {}, Counter(), 0), compare=False, repr=False)

    @property
    def takes_parts(self) -> bool:
        """Whether jobs may be split over it and other clusters."""
        return WHOLE_JOBS not in (self.abilities or ())

    def is_asked(self, order: str, job: str, attempt: int) -> bool:
        """Tell if an order of this kind, one of `asked`, is still under way."""
        return self.asked.get((order, job, attempt), 0) > self.acked_seq

    def closed_to(self, user: str) -> str:
        """Reason why no job of a user may be placed there, whatever it asks for; empty: it may."""
        owner = self.settings.owner
        return f"belongs to {owner}" if owner and user != owner else ""

    def alien(self, nodes: Iterable[str]) -> str:
        """A node that its executor must not speak of: an owner's has those below its name."""
        below = f"{self.settings.name}/"
        others = (node for node in nodes if not node.startswith(below))
        return next(others, "") if self.settings.owner else ""

    @property
    def clock_ahead_s(self) -> float | None:
        """Lead of its executor's clock over ours, by the message that was quickest here."""
        return max(self.clock_leads_s, default=None)

    @property
    def nodes(self) -> tuple[NodeReading, ...]:
        """Its nodes, as they were read last."""
        return () if self.reading is None else self.reading.nodes

    @property
    def running(self) -> tuple[Running, ...]:
        """The work there that is not of our jobs' parts, as it was read last."""
        return () if self.reading is None else self.reading.running

    def node(self, name: str) -> NodeReading | None:
        """One of its nodes, as it was read last."""
        place = self.place_of(name)
        return None if place is None else self.nodes[place]

    def place_of(self, name: str) -> int | None:
        """A node's place among the nodes: of equal ones the first are to be taken first."""
        return self._by_name()[1].get(name)

    def taken(self, name: str) -> int:
        """Slots that the work there takes of a node, as it was read last."""
        return self._by_name()[2][name]

    @property
    def slots(self) -> int:
        """Slots of all its nodes, as they were read last."""
        return self._by_name()[3]

    def _by_name(self) -> Named:
        if self.named[0] is not self.reading and self.reading is not None:
            taken: Counter[str] = Counter()
            for work in self.reading.running:
                taken.update(work.nodes)
            places = {node.name: place for place, node in enumerate(self.reading.nodes)}
            slots = sum(node.slots for node in self.reading.nodes)
            self.named = self.reading, places, taken, slots
        return self.named

    def power_of(self, node: NodeReading, power_step: float) -> float:
        """Power of one of its nodes as planning sees it: in steps, published or as it was read."""
        steps = self.powers.get(node.name)
        return floored(node.power, power_step) if steps is None else steps.published

    def is_stale(self, now: float, max_age_s: float) -> bool:
        """Nothing may be concluded from what was read last."""
        is_old = self.reading is None or now - self.read_at > max_age_s
        return not self.connected or self.has_failed or is_old
