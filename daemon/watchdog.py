"""Feeds the service manager's watchdog while rounds make progress and sockets are there.

A round is a chain of steps, each the solve of one policy. A step that is under way for longer than
its limit and a grace, and a round that is due and does not begin, stop the messages; systemd then
ends the service and starts it again (``WatchdogSec``). So does a socket whose file is gone and
cannot be made again. A loop that hangs sends none by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from coalloc.core.coordinator import Coordinator
from coalloc.daemon.reachability import Reachability
from coalloc.daemon.service import Service
from coalloc.runtime import systemd

ROUND_GRACE_S = 30.0
"""How much longer than its limit a step of a round may take, seconds."""


class RoundProgress:
    """Notices a step that does not end."""

    def __init__(self) -> None:
        self._step: Hashable = None
        self._since = 0.0

    def is_moving(self, step: Hashable, now: float, limit_s: float) -> bool:
        """Whether the step under way (None: none) is within its limit, by a steady clock."""
        if step != self._step:
            self._step, self._since = step, now
        return step is None or now - self._since < limit_s


def step_of(core: Coordinator, now: float) -> Hashable:
    """The step of the rounds now: an attempt of a policy, a round that is due, or None."""
    current = core.state.round
    if current is not None:
        attempts = 0 if current.search is None else current.search.attempts
        return current.number, current.policy, attempts, current.search is None
    due = core.state.rounds.due_at()
    return "due" if due is not None and due <= now else None


async def feed(service: Service, interval_s: float, reachability: Reachability) -> None:
    """Tell the service manager at this interval that all is well, for as long as it is."""
    loop = asyncio.get_running_loop()
    progress = RoundProgress()
    while True:
        limit_s = service.config.rounds.time_limit_s + ROUND_GRACE_S
        step = step_of(service.core, service.clock())
        if progress.is_moving(step, loop.time(), limit_s) and reachability.is_reachable:
            state = service.core.state
            text = f"{len(state.waiting)} waiting, {len(state.placed)} placed"
            systemd.notify(systemd.WATCHDOG, systemd.status(text))
        await asyncio.sleep(interval_s)
