"""One turn of an executor: its effects in order, each under a guard of its own.

The core has moved on when its effects are carried out. One that fails, in whatever way, is told
to the core, and keeps none of the others from being carried out. What is said of a turn waits
until its progress is on disk.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Protocol

from coalloc.core.base.messages import Report, Statement
from coalloc.core.executor.effects import (
    ClaimPart,
    EffectFailed,
    ExecutorEffect,
    ExecutorEvent,
    PartEffect,
    ProgressUnwritten,
    SaveProgress,
    SendStatement,
)
from coalloc.core.executor.machine import ExecutorCore
from coalloc.model.values import replace


class Actions(Protocol):
    """Carries out an executor's effects; each call may raise anything."""

    def perform(self, effect: ExecutorEffect) -> Iterable[ExecutorEvent]:
        """Carry out one effect; returns what the core is to hear of it."""

    def save(self, progress: SaveProgress) -> None:
        """Write the progress; durable on return."""

    def say(self, statement: Statement) -> None:
        """Send a statement to the daemon."""

    def explain(self, effect: ExecutorEffect, error: Exception) -> str:
        """Log a failure; returns it in words."""

    @property
    def kept(self) -> SaveProgress | None:
        """The progress that is on disk."""


def carry_out(
    core: ExecutorCore, effects: Iterable[ExecutorEffect], hands: Actions, now: float
) -> None:
    """Carry out the effects of one turn, and what follows from them."""
    waiting = deque(effects)
    said: list[Statement] = []
    said_after: list[Statement] = []
    is_to_be_saved = False
    while waiting:
        match waiting.popleft():
            case SaveProgress():
                is_to_be_saved = True  # as it is at the end of the turn
            case SendStatement(statement=statement):
                said.append(statement)
            case effect:
                found = _performed(core, effect, hands, now)
                said_after += [each.statement for each in found if isinstance(each, SendStatement)]
                # Before the rest: a claim that failed is given up before its start.
                waiting.extendleft(
                    each for each in reversed(found) if not isinstance(each, SendStatement)
                )
    if is_to_be_saved and not _is_saved(core.progress(), hands):
        unwritten = ProgressUnwritten(kept=hands.kept)
        said = [e.statement for e in core.handle(unwritten, now) if isinstance(e, SendStatement)]
        said_after = []
    for statement in _joined(said + said_after):
        try:
            hands.say(statement)
        except Exception as error:
            _explained(SendStatement(statement=statement), error, hands)


def _joined(said: Iterable[Statement]) -> Iterator[Statement]:
    """One report in place of several in a row; of each part it has what was said last."""
    for is_report, run in groupby(said, lambda statement: isinstance(statement, Report)):
        statements = list(run)
        if is_report:
            reports = [each for each in statements if isinstance(each, Report)]
            parts = {part.key: part for each in reports for part in each.parts}
            statements = [replace(reports[-1], parts=tuple(parts.values()))]
        yield from statements


def _performed(
    core: ExecutorCore, effect: ExecutorEffect, hands: Actions, now: float
) -> list[ExecutorEffect]:
    """Carry out one effect; returns what the core makes of it."""
    try:
        events = list(hands.perform(effect))
    except Exception as error:
        why = _explained(effect, error, hands)
        if not isinstance(effect, ClaimPart | PartEffect):
            return []
        events = [EffectFailed(effect=effect, why=why)]
    return [found for event in events for found in core.handle(event, now)]


def _is_saved(progress: SaveProgress, hands: Actions) -> bool:
    try:
        hands.save(progress)
    except Exception as error:
        _explained(progress, error, hands)
        return False
    return True


def _explained(effect: ExecutorEffect, error: Exception, hands: Actions) -> str:
    with contextlib.suppress(Exception):  # a log that fails must not cost an effect
        return hands.explain(effect, error)
    return type(error).__name__
