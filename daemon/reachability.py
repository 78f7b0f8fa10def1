"""Looks for the files of the daemon: its sockets are made anew, without its store it stops.

A socket whose file is gone still serves those who are connected, and no other client finds it. A
store whose file is gone, or another one, keeps nothing: another daemon may have begun there, whose
sockets must be left alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from structlog.stdlib import BoundLogger

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
