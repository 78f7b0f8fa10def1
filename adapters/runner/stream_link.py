"""A runner's connection to the executor for the streams of its part.

Imports the standard library only, as the runner does. It is not sent to nodes, where wrappers have
their connection to the part's runner.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from coalloc.adapters.runner.talk import LineConnection, TalkError

SOCKET = "streams"
DIAL_LIMIT_S = 1.0


class StreamLink:
    """The connection to the executor, made on its order; `wish` hears what it asks for."""

    def __init__(self, folder: str, wish: Callable[[dict[str, Any]], None]) -> None:
        self._folder, self._wish = folder, wish
        self._connection: LineConnection | None = None
        self._poller = select.poll()

    def dial(self, poller: select.poll) -> None:
        self._hang_up()
        self._poller = poller
        root = os.open(os.path.dirname(self._folder), os.O_PATH)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(DIAL_LIMIT_S)
        try:
            # by its folder's descriptor, since a socket's path must be short
            sock.connect(f"/proc/self/fd/{root}/{SOCKET}")
        except OSError:  # it dials anew when it is there again
            sock.close()
            return
        finally:
            os.close(root)
        self._connection = LineConnection(sock)
        poller.register(sock, select.POLLIN)
        self.say({"part": os.path.basename(self._folder)})

    def take(self, fd: int) -> bool:
        """Hear the executor; False if it is another's descriptor."""
        if self._connection is None or fd != self._connection.fileno():
            return False
        try:
            for line in self._connection.heard():
                self._wish(json.loads(line))
        except TalkError:
            self._hang_up()
        return True

    def say(self, said: dict[str, Any]) -> None:
        if self._connection is not None:
            try:
                self._connection.say(json.dumps(said, separators=(",", ":")))
            except OSError:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(KeyError):
                self._poller.unregister(self._connection.fileno())
            self._connection.close()
            self._connection = None
