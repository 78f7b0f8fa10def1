"""Events and effects of an executor's core."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coalloc.core.base.messages import (
    Arrange,
    Numbered,
    Ping,
    Prepare,
    Statement,
    TurnedAway,
    Welcome,
)
from coalloc.model.sites.parts import PartKey, PartReport


class MessageReceived(Struct, frozen=True, kw_only=True):
    """A message of the daemon arrived."""

    message: Numbered | Welcome | Ping | TurnedAway


class PartNews(Struct, frozen=True, kw_only=True):
    """The launcher says how a part is."""

    report: PartReport


class ExecutorTicked(Struct, frozen=True, kw_only=True):
    """Time passed."""


class ExecutorEffect(Struct, frozen=True):
    """Something for an executor's shell to carry out."""


class PartEffect(ExecutorEffect, frozen=True, kw_only=True):
    """Something for the launcher to do with a part that it has."""

    key: PartKey


class ClaimPart(ExecutorEffect, frozen=True, kw_only=True):
    """Claim the nodes and hold the processes at the barrier."""

    order: Prepare


class ArrangePart(PartEffect, frozen=True, kw_only=True):
    """Tell a part that has its nodes of those of the whole job, and bring it to the barrier."""

    order: Arrange


class HastenPart(PartEffect, frozen=True, kw_only=True):
    """Let a part that was put off take its turn from now on."""


class StartPart(PartEffect, frozen=True, kw_only=True):
    """Open the barrier, at a time where it is not 0."""

    at: float = 0.0


class LimitPart(PartEffect, frozen=True, kw_only=True):
    """Let a part run so long, seconds."""

    limit_s: float
    instead_of: float | None


class EndPart(PartEffect, frozen=True, kw_only=True):
    """Release the claim or end the processes."""

    reason: str


class RemovePart(PartEffect, frozen=True, kw_only=True):
    """Remove what is kept of an ended part, once it is remembered that it was started."""

    how: str = ""
    """How it ended; empty: nothing of it was started."""


class TellStarted(ExecutorEffect, frozen=True, kw_only=True):
    """Tell the daemon of all that is remembered to have been started."""

    owed: tuple[tuple[str, int, str], ...] = ()
    """Job, attempt and end of what could not be remembered yet, and is no part any more."""


class DismissJob(ExecutorEffect, frozen=True, kw_only=True):
    """Cancel a job of the batch system's own that was handed over."""

    foreign: str


class RenewLeases(ExecutorEffect, frozen=True, kw_only=True):
    """The daemon is there: claims stand for another lease."""


class SaveProgress(ExecutorEffect, frozen=True, kw_only=True):
    """Write the number of the last order carried out, before anything is said of it."""

    store: str
    epoch: int
    last_seq: int
    starts: tuple[PartKey, ...] = ()
    """Parts whose start has failed, and is tried again."""
    ends: tuple[PartKey, ...] = ()
    """Parts whose end has failed, and is tried again."""


class SendStatement(ExecutorEffect, frozen=True, kw_only=True):
    """Send a statement to the daemon."""

    statement: Statement


class ExecutorLogLine(ExecutorEffect, frozen=True, kw_only=True):
    """Write a log line."""

    event: str
    fields: Mapping[str, object]
    level: str = "info"


class EffectFailed(Struct, frozen=True, kw_only=True):
    """The launcher failed at an effect, which may have been carried out nevertheless."""

    effect: ClaimPart | PartEffect
    why: str


class ProgressUnwritten(Struct, frozen=True, kw_only=True):
    """The progress could not be written, and nothing of that turn was said."""

    kept: SaveProgress | None
    """What the disk holds."""


ExecutorEvent = MessageReceived | PartNews | ExecutorTicked | EffectFailed | ProgressUnwritten
