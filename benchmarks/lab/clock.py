"""The laboratory's clock: what is to happen, in the order of its times."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """Virtual time, seconds."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = self.began = now
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, happen: Callable[[], None]) -> None:
        """Have it happen then, or at once where that is over."""
        self._count += 1
        heapq.heappush(self._due, (max(time, self.now), self._count, happen))

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        self.at(self.now + seconds, happen)

    def step(self) -> bool:
        """Let the next thing happen; False: nothing is left."""
        if not self._due:
            return False
        self.now, _, happen = heapq.heappop(self._due)
        happen()
        return True
