"""Collection of garbage in the daemon: what was looked at once is left alone for a while.

A full collection goes through all that lives but jobs and plans, which are declared without cycles:
mostly our modules. It holds the loop up for 70 ms, and finds nothing but for a few cycles. So what
has survived one is frozen, and the next looks at what is new only. Once twice as much is frozen as
after the last look at everything, everything is looked at again: so little can leak.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

LEAST = 100_000
"""Of fewer frozen objects no second look is asked for."""


class FrozenGarbage:
    """A callback of `gc.callbacks` that freezes what has survived a full collection."""

    def __init__(self) -> None:
        self._most = LEAST
        self._looks_at_all = False

    def __call__(self, phase: str, told: Mapping[str, int]) -> None:
        if phase != "stop" or told["generation"] < 2:
            return
        gc.freeze()
        frozen = gc.get_freeze_count()
        if self._looks_at_all:
            self._most = max(LEAST, 2 * frozen)
            self._looks_at_all = False
        elif frozen > self._most:
            gc.unfreeze()
            self._looks_at_all = True
