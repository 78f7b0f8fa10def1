"""Interface of a policy: a pure function from a snapshot to a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from coalloc.model.history import NO_HISTORY, History
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.options import Options

OnIncumbent = Callable[[Plan], None]
"""Receives each plan that is better than the last one, while the search goes on.

Where divisible jobs wait, engines also tell it simple orders that are no better without them; the
registry passes on what is better with them.
"""


SAME = 1e-9
"""A bound that passes a value by this share, or by so much, passes it by rounding."""


def at_most(bound: float | None, value: float) -> float | None:
    """A bound beside a value that is reached, where it passes that by rounding: the value."""
    if bound is None or not 0.0 < bound - value <= SAME * max(value, 1.0):
        return bound
    return value


def never() -> bool:
    """Stop condition of a search that ends by itself or by its work limit."""
    return False


class Budget(Struct, frozen=True, kw_only=True):
    """Limits of what a policy may do."""

    work: int | None = None
    """Limit of work in counts that the policy defines; None is no limit. With the same input, work
    limit and seed, and a `stop` that stays false, a policy returns the same plan."""
    seed: int = 0
    """Seed of whatever is random."""
    stop: Callable[[], bool] = never
    """True once the caller wants the best plan so far; polled between chunks of work. The hard
    limit is the caller's, who kills the process."""
    previous: tuple[str, ...] = ()
    """Jobs by their planned starts in the caller's last plan; a hint where to begin, no more."""
    history: History = NO_HISTORY
    """How long jobs ran, by what was planned."""
    live: bool = False
    """Jobs go on arriving, and only what starts now is carried out before the next call."""
    bounds: bool = True
    """The caller reads how good plans are; where it does not, live rounds leave the bound out."""
    notes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What the policy of this name left for itself in `NOTES` of its last plan's stats."""
    node_entries: int | None = None
    """Of a plan that names more nodes, only the placements that start first need name theirs: those
    of now, and others up to so many. None: all."""
    origin: float = 0.0
    """What to add to the snapshot's times to have them on the axis of the jobs' `submitted` and of
    `notes`, seconds."""


class SolveFunction(Protocol):
    """The call of a policy; `options` are complete, as `coalloc.policies.options` reads them."""

    def __call__(
        self,
        problem: Snapshot,
        options: Mapping[str, Any],
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> Plan: ...


class Policy(Struct, frozen=True, kw_only=True):
    """One row of the registry."""

    name: str
    solve: SolveFunction
    doc: str
    """One line for the user."""
    options: type[Options] = Options
    """Its class declares names, kinds and defaults."""
    package: str = ""
    """The distribution that it comes from; empty: coalloc itself."""
