"""Feeds the service manager's watchdog while rounds make progress and sockets are there.

A round is a chain of steps, each the solve of one policy. A step that is under way for longer than
its limit and a grace, and a round that is due and does not begin, stop the messages; systemd then
ends the service and starts it again (``WatchdogSec``). So does a socket whose file is gone and
cannot be made again. A loop that hangs sends none by itself.

A socket whose file is gone still serves those who are connected, and no other client finds it. A
store whose file is gone, or another one, keeps nothing: another daemon may have begun there, whose
sockets must be left alone; so without its store the daemon stops.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Protocol

from structlog.stdlib import BoundLogger

from coalloc.core.coordinator import Coordinator
from coalloc.daemon.service import Service
from coalloc.runtime import systemd

ROUND_GRACE_S = 30.0
"""How much longer than its limit a step of a round may take, seconds."""


LOOK_S = 2.0


class Listener(Protocol):
    """A socket that others find by a file."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path | None:
        """Its file; None: it has none."""

    def is_there(self) -> bool:
        """Whether its file is still its own."""

    def restore(self) -> None:
        """Listen once more, where the file is gone. Raises `OSError`."""


class Reachability:
    """The daemon's listeners."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        log: BoundLogger,
        check_store: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_store = check_store
        self.is_reachable = True
        """At the last look every socket was there, or could be made again."""
        self._listeners, self._log = listeners, log
        self._complaints: dict[str, str] = {}

    async def watch(self) -> None:
        """Look every few seconds; what `check_store` raises ends it before a socket is made."""
        while True:
            self._check_store()
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> bool:
        """Look once, and return whether every socket is there now."""
        faults = [self._fault(listener) for listener in self._listeners]
        self.is_reachable = not any(faults)
        return self.is_reachable

    def _fault(self, listener: Listener) -> str:
        """The reason why a socket cannot be found; empty: it is there, or there again."""
        if listener.is_there():
            fault = ""
        else:
            fault = _restored(listener)
            fields = {"socket": listener.name, "path": str(listener.path)}
            if not fault:
                self._log.warning("socket_restored", what="its file was gone", **fields)
            elif fault != self._complaints.get(listener.name):
                self._log.error("socket_lost", why=fault, **fields)
        self._complaints[listener.name] = fault
        return fault


def _restored(listener: Listener) -> str:
    if listener.path is not None and os.path.lexists(listener.path):
        return "another file is in its place"
    try:
        listener.restore()
    except OSError as error:
        return error.strerror or str(error)
    return ""


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
