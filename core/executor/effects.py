"""Events and effects of an executor's core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coalloc.core.base.messages import (
    Arrange,
    Numbered,
    Ping,
    Prepare,
    Statement,
    TurnedAway,
    Welcome,
)
from coalloc.model.parts import PartReport

Key = tuple[str, int, int]
"""Job, attempt, part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A message of the daemon arrived."""

    message: Numbered | Welcome | Ping | TurnedAway


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNews:
    """The launcher says how a part is."""

    report: PartReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPart:
    """Claim the nodes and hold the processes at the barrier."""

    order: Prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrangePart:
    """Tell a part that has its nodes of those of the whole job, and bring it to the barrier."""

    key: Key
    order: Arrange


@dataclass(frozen=True, slots=True, kw_only=True)
class HastenPart:
    """Let a part that was put off take its turn from now on."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPart:
    """Open the barrier."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawPart:
    """Have a part leave the queue in which it waits, unless it has its nodes."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPart:
    """Release the claim or end the processes."""

    key: Key
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePart:
    """Remove what is kept of an ended part."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissJob:
    """Cancel a job of the batch system's own that was handed over."""

    foreign: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLeases:
    """The daemon is there: claims stand for another lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveProgress:
    """Write the number of the last order carried out, before anything is said of it.

    Attributes
    ----------
    starts, ends : tuple of Key
        Parts whose start or end has failed, and is tried again.
    """

    store: str
    epoch: int
    last_seq: int
    starts: tuple[Key, ...] = ()
    ends: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStatement:
    """Send a statement to the daemon."""

    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLogLine:
    """Write a log line."""

    event: str
    fields: Mapping[str, object]
    level: str = "info"


ExecutorEffect = (
    ClaimPart
    | ArrangePart
    | HastenPart
    | WithdrawPart
    | StartPart
    | EndPart
    | RemovePart
    | DismissJob
    | RenewLeases
    | SaveProgress
    | SendStatement
    | ExecutorLogLine
)


PartEffect = ClaimPart | ArrangePart | HastenPart | WithdrawPart | StartPart | EndPart | RemovePart


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFailed:
    """The launcher failed at an effect, which may have been carried out nevertheless."""

    effect: PartEffect
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressUnwritten:
    """The progress could not be written, and nothing of that turn was said.

    Attributes
    ----------
    kept : SaveProgress or None
        What the disk holds.
    """

    kept: SaveProgress | None


ExecutorEvent = MessageReceived | PartNews | Ticked | EffectFailed | ProgressUnwritten
