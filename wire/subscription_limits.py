"""The watchers' connections: whose they are, how much each has subscribed to, and their end.

ZeroMQ keeps every subscription, in a tree with a node for each byte, and hands no unsubscription of
one among several watchers over: so what counts is all that a connection has ever asked for. A
watcher that is cut off connects again by itself, with its count at zero.

Notes
-----
A frame names the descriptor that it came through (``ZMQ_SRCFD``). By the time it is looked at, that
may be another file, so the inode, which no two open sockets share, tells connections apart.

ZeroMQ takes every subscription that has arrived before it returns to whoever publishes, and goes on
while more arrive, so nobody can count them meanwhile. Only another thread sees that, `FloodGuard`:
a call has not returned, and a connection always has more to be read.
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
from dataclasses import dataclass

MOST_SUBSCRIPTIONS = 1000
MOST_BYTES = 32 << 10
"""Of all subscriptions of one connection."""
CONNECTIONS_REMEMBERED = 1000
"""Before those that have gone are looked for."""
CALM_S, ALERT_S = 0.1, 0.01
"""Between two looks at the caller, and how long a call may take unsuspected."""
ALERT_LASTS_S = 60.0
"""After a flood: whoever was cut off comes back at once."""
SAMPLES, SAMPLE_S = 3, 0.002
UNREAD_BYTES = 1024
"""A connection that has so many in every sample is ended: more than one subscription may have."""


@dataclass(slots=True)
class Account:
    """One connection: its key, and what it has asked for."""

    descriptor: int
    key: str
    count: int = 0
    size: int = 0


class Subscriptions:
    """The accounts of all connections of one socket."""

    def __init__(self) -> None:
        self._accounts: dict[int, Account] = {}

    def takes(self, descriptor: int, size: int, key: str = "") -> bool:
        """Count a subscription of so many bytes; False if its connection has gone, or is ended.

        One that no descriptor is known of, below 0, is not counted.
        """
        if descriptor < 0:
            return True
        inode = _inode(descriptor)
        if inode is None:
            return False
        account = self._accounts.get(inode)
        if account is None:
            if len(self._accounts) >= CONNECTIONS_REMEMBERED:
                self._forget()
            account = self._accounts[inode] = Account(descriptor=descriptor, key=key)
        account.count += 1
        account.size += size
        if account.count <= MOST_SUBSCRIPTIONS and account.size <= MOST_BYTES:
            return True
        end(descriptor)
        return False

    def end_all(self, key: str) -> None:
        """End all connections of a key."""
        self._forget()
        for account in self._accounts.values():
            if account.key == key:
                end(account.descriptor)

    def _forget(self) -> None:
        """Drop the accounts of connections that have gone."""
        self._accounts = {
            inode: account
            for inode, account in self._accounts.items()
            if _inode(account.descriptor) == inode
        }


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


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
