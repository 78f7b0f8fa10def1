"""The daemon's turns: events for the core in batches, timers, and work beside them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from coalloc.core.base.events import CoreEvent, Requested, Ticked, TokenRecalled

JITTER_S = 0.05
"""Between two askings for the same time."""
MOST_ASKED = 64
"""Requests of clients in one turn, which come behind all else that has arrived: an end is answered
before newcomers are looked at, and no flood of these holds the loop up for long."""


class CoreLoop:
    """Collects events, and hands what has arrived to `on_batch` when its turn comes.

    Before `open`, events are kept and timers are not set.
    """

    def __init__(self, on_batch: Callable[[list[CoreEvent]], None]) -> None:
        self._on_batch = on_batch
        self._inbox: list[CoreEvent] = []
        self._asked: deque[CoreEvent] = deque()
        self._is_scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._alarms: dict[float, float] = {}  # time asked for: when it rings, by the loop
        self._has_tick = False
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        if self._inbox or self._asked:
            self._schedule(loop)

    def close(self) -> None:
        """Hand in what has arrived, and stop the timers."""
        self._turn(len(self._asked))
        for handle in self._timers:
            handle.cancel()

    def offer(self, event: CoreEvent) -> None:
        """Put an event before the core, with everything else that arrives in this turn."""
        asks = isinstance(event, Requested | TokenRecalled)
        (self._asked if asks else self._inbox).append(event)
        if self._loop is not None:
            self._schedule(self._loop)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call something after so many seconds, unless the loop is closed before."""
        if self._loop is None:
            return

        def fire() -> None:
            self._timers.discard(handle)
            call()

        handle = self._loop.call_later(delay_s, fire)
        self._timers.add(handle)

    def wake(self, at: float, delay_s: float) -> None:
        """Offer a tick at a time, so many seconds from now; no turn gets more than one.

        The same time may be asked for again, and is sooner where the clock was set forward.
        """
        if self._loop is None:
            return
        due = self._loop.time() + delay_s
        if self._alarms.get(at, inf) <= due + JITTER_S:
            return

        def ring() -> None:
            self._alarms.pop(at, None)
            if not self._has_tick:
                self._has_tick = True
                self.offer(Ticked())

        self._alarms[at] = due
        self.later(delay_s, ring)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._turn)

    def _turn(self, most_asked: int = MOST_ASKED) -> None:
        self._is_scheduled = self._has_tick = False
        batch, self._inbox = self._inbox, []
        batch += [self._asked.popleft() for _ in range(min(most_asked, len(self._asked)))]
        if self._asked and self._loop is not None:
            self._schedule(self._loop)
        self._on_batch(batch)
