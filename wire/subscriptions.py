"""The watchers' connections: whose they are, how much each has subscribed to, and their end.

ZeroMQ keeps every subscription, in a tree with a node for each byte, and hands no unsubscription of
one among several watchers over: so what counts is all that a connection has ever asked for. A
watcher that is cut off connects again by itself, with its count at zero.

Notes
-----
A frame names the descriptor that it came through (``ZMQ_SRCFD``). By the time it is looked at, that
may be another file, so the inode, which no two open sockets share, tells connections apart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from coalloc.wire.floods import end

MOST_SUBSCRIPTIONS = 1000
MOST_BYTES = 32 << 10
"""Of all subscriptions of one connection."""
CONNECTIONS_REMEMBERED = 1000
"""Before those that have gone are looked for."""


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
