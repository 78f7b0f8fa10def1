"""Reservations that operators make in coalloc."""

from __future__ import annotations

from msgspec import Struct

from coalloc.model.ranges import EVENT


class Reserved(Struct, frozen=True, kw_only=True):
    """Nodes kept for the jobs of some users in [start, end)."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float = EVENT.high
    """Seconds since the epoch; one without an end lasts until it is taken back."""
    users: tuple[str, ...] = ()
    """Empty: for nobody."""
    by: str = ""
    reason: str = ""
    """Who made it, and why."""
