"""Replies to clients: the core's answers as frames, and the caller that a key stands for."""

from __future__ import annotations

import time
from typing import Any

from coalloc.core.base.events import Caller
from coalloc.core.base.requests import CommandAnswer, Done, Refused
from coalloc.daemon.access.access import Access
from coalloc.wire.answers import Refusal
from coalloc.wire.server import Origin, Server


class Replies:
    """Answers callers; `access` tells them apart, else each is the `owner` (single-user)."""

    def __init__(self, server: Server, owner: Caller, access: Access | None) -> None:
        self._server, self._owner, self._access = server, owner, access

    def caller(self, origin: Origin) -> Caller:
        return self._owner if self._access is None else self._access.caller(origin.key)

    def send(self, origin: Any, answer: CommandAnswer) -> None:
        """Send an answer of the core to the client that asked; to nobody, where none did."""
        if not isinstance(origin, Origin):
            return
        match answer:
            case Done(body=body):
                self._server.answer(origin, {"type": "done", **body})
            case Refused(code=code, message=message):
                if code == "not_allowed" and self._access is not None:
                    self._access.request_refused(self.caller(origin), answer)
                self._server.answer(origin, Refusal(code=code, message=message))

    def charge(self, origin: Any, began: float) -> None:
        """Charge the time since then, of `time.perf_counter`, to the user who asked."""
        if self._access is not None and isinstance(origin, Origin):
            self._access.charge(origin.key, time.perf_counter() - began)
