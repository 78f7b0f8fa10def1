"""Ends a connection that keeps ZeroMQ busy with what it sends, so that its caller gets no turn.

ZeroMQ takes every subscription that has arrived before it returns to whoever publishes, and goes on
while more arrive, so nobody can count them meanwhile (`coalloc.wire.subscriptions`). Only
another thread sees that: a call has not returned, and a connection always has more to be read.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

CALM_S, ALERT_S = 0.1, 0.01
"""Between two looks at the caller, and how long a call may take unsuspected."""
ALERT_LASTS_S = 60.0
"""After a flood: whoever was cut off comes back at once."""
SAMPLES, SAMPLE_S = 3, 0.002
UNREAD_BYTES = 1024
"""A connection that has so many in every sample is ended: more than one subscription may have."""


class FloodGuard(threading.Thread):
    """Watches over the calls of one listening socket.

    Parameters
    ----------
    endpoint : str
        Where it listens: ``ipc://PATH`` or ``tcp://ADDRESS:PORT``.
    busy_since : callable
        When the call that now runs began, ``time.monotonic()``; None between calls.
    """

    def __init__(self, endpoint: str, busy_since: Callable[[], float | None]) -> None:
        super().__init__(name="coalloc-flood-guard", daemon=True)
        self._kind, _, self._address = endpoint.partition("://")
        self._busy_since = busy_since
        self._stopped = threading.Event()

    def run(self) -> None:
        alert_until = 0.0
        while True:
            now = time.monotonic()
            look_s = ALERT_S if now < alert_until else CALM_S
            since = self._busy_since()
            if since is not None and now - since > look_s and self._has_ended_floods():
                alert_until = time.monotonic() + ALERT_LASTS_S
            if self._stopped.wait(look_s):
                return

    def stop(self) -> None:
        """Look no more; on return nothing is touched any longer."""
        self._stopped.set()
        self.join()

    def _has_ended_floods(self) -> bool:
        flooding = set(self._descriptors())
        for _ in range(SAMPLES):
            flooding = {each for each in flooding if _unread(each) >= UNREAD_BYTES}
            if not flooding or self._stopped.wait(SAMPLE_S):
                return False
        for descriptor in flooding:
            end(descriptor)
        return True

    def _descriptors(self) -> Iterator[int]:
        """Of all connections of this end point, and its listener."""
        port = self._address.rpartition(":")[2]
        try:
            names = os.listdir("/proc/self/fd")
        except OSError:
            return  # no descriptor is left to look with
        for name in names:
            here = _address(int(name))
            at_port = isinstance(here, tuple) and str(here[1]) == port
            if at_port or here == self._address:
                yield int(name)


def _address(descriptor: int) -> object:
    """Path of a socket, or its host, port and more; None of what is none."""
    try:
        with _copied(descriptor) as connection:
            return connection.getsockname()
    except OSError:
        return None


def _copied(descriptor: int) -> socket.socket:
    """Return a socket of its own for one that is ZeroMQ's; an OSError where it is none."""
    copy = os.dup(descriptor)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def end(descriptor: int) -> None:
    """Shut a connection down; ZeroMQ, whose it is, sees that and forgets its subscriptions."""
    # An OSError: it has gone by itself.
    with suppress(OSError), _copied(descriptor) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _unread(descriptor: int) -> int:
    """Bytes that have come in and wait; 0 of what is no connection."""
    try:
        told = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    except OSError:
        return 0
    return int(struct.unpack("i", told)[0])
