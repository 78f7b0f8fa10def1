"""Moves that several searches make; compiled."""

from __future__ import annotations

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.record import Ints


@helper(inline=True)
def shift(order: Ints, source: int, target: int) -> None:
    """Move an entry to another place; those between give way."""
    entry = order[source]
    step = 1 if target > source else -1
    while source != target:
        order[source] = order[source + step]
        source += step
    order[source] = entry
