"""One part of a job in a batch system: what it holds, how far it is, what its launcher says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coalloc.core.base.messages import Arrange, Prepare
from coalloc.model.sites.parts import PartKey, PartReport, PartState

HELD = frozenset({PartState.PREPARING, PartState.READY})


def is_whole(order: Prepare) -> bool:
    """Test if a part is the whole job; others of the same attempt are its siblings then."""
    return order.size == sum(order.nodes.values())


@dataclass
class Part:
    """One part of a job: its folder and its processes.

    Attributes
    ----------
    ends : float
        When its processes end by themselves, or have ended.
    """

    order: Prepare
    state: PartState = PartState.PREPARING
    started: float | None = None
    ends: float = 0.0
    code: int | None = None
    reason: str = ""
    is_settled: bool = False
    """The guest that it runs has been told of its end."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Processes on each node that it holds."""
    due: float = 0.0
    """When a claim that waits may be granted, s."""
    begin: float = 0.0
    """Before this it may not be granted, s."""
    is_next: bool = False
    """Only nodes are missing to a claim that waits."""
    granted: float | None = None
    arranged: Arrange | None = None
    is_unwanted: bool = False
    """Its end was asked for while it waited; it may be granted nevertheless."""
    first: Part | None = None
    """Of one that runs behind others: the first of them."""
    is_let_go: bool = False
    """It begins when those before it have ended."""

    @property
    def key(self) -> PartKey:
        return self.order.key

    def report(self, offset: float) -> PartReport:
        """Report of the launcher, whose clock is `offset` seconds ahead."""
        holder = self
        if self.first is not None and self.state in HELD:
            holder = self.first
        waits = holder.state is PartState.WAITING
        return PartReport(
            job=self.order.job,
            attempt=self.order.attempt,
            part=self.order.part,
            state=PartState.RUNNING if self.is_let_go else holder.state if waits else self.state,
            pack=self.pack,
            exit_code=self.code,
            started=None if self.started is None else self.started + offset,
            ended=self.ends + offset if self.state is PartState.FINISHED else None,
            reason=self.reason,
            nodes=holder.nodes if self.order.queue is not None else {},
            expected=holder.due + offset if waits else None,
            is_next=waits and holder.is_next,
        )

    @property
    def has_all(self) -> bool:
        """It may come to the barrier: it knows the nodes of the whole job."""
        if self.order.queue is None or self.arranged is not None:
            return True
        return self.order.size == sum(self.nodes.values()) and self.nodes == self.order.nodes

    @property
    def pack(self) -> str:
        if self.first is not None:
            return self.first.pack
        return self.key.pack if self.order.members else ""

    def refuse(self, reason: str) -> None:
        self.state, self.reason, self.is_let_go = PartState.REFUSED, reason, False

    def finish(self, code: int, reason: str, now: float) -> None:
        self.state, self.code, self.reason, self.ends = PartState.FINISHED, code, reason, now
