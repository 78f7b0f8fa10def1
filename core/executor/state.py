"""Memory of an executor's core: its parts, what it owes them, and the orders it has followed."""

from __future__ import annotations

from dataclasses import dataclass, field

from coalloc.core.base.messages import ABILITIES
from coalloc.core.executor.effects import (
    EndPart,
    HastenPart,
    RemovePart,
    SaveProgress,
    StartPart,
)
from coalloc.model.sites.parts import PartKey, PartReport

Retried = HastenPart | StartPart | EndPart | RemovePart


@dataclass(slots=True)
class ExecutorState:
    """State of one executor."""

    cluster: str
    identity: str = ""
    version: str = ""
    abilities: tuple[str, ...] = ABILITIES
    store: str = ""
    epoch: int = 0
    last_seq: int = 0
    parts: dict[PartKey, PartReport] = field(default_factory=dict)
    let_go: dict[PartKey, float] = field(default_factory=dict)
    """When this run of the executor was told to start them; that they have, it may hear later."""
    undone: dict[Retried, None] = field(default_factory=dict)
    """Failed, to be tried again."""
    base_seq: int = 0
    """The number before the first that the daemon keeps for us."""
    kept_seq: int | None = None
    """The last order that is on disk, while later ones are not."""
    welcomed: bool = False
    last_heard: float = float("-inf")
    last_said: float = float("-inf")
    last_hello: float = float("-inf")
    silent: bool = False
    turned_away: bool = False
    lease_s: float = 60.0

    def recall(self, kept: SaveProgress) -> None:
        """Go on where the executor before this one has stopped."""
        self.store, self.epoch, self.last_seq = kept.store, kept.epoch, kept.last_seq
        why = "its end failed before the executor was restarted"
        starts = (StartPart(key=key) for key in kept.starts)
        ends = (EndPart(key=key, reason=why) for key in kept.ends)
        self.undone = dict.fromkeys((*starts, *ends))
