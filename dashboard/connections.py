"""Connections of browsers: a time limit for a request's head, and places shared by users.

Where all places are taken, a new connection takes one of the peer that has the most: one whose
request has not come, if there is any, otherwise its oldest. A peer is a user of this machine, as
the kernel says, or an address. So whoever opens a thousand connections takes them from himself.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections import Counter

from uvicorn.protocols.http.h11_impl import H11Protocol

PLACES = 800
HEAD_S = 10.0
"""For the head of a request, from its first byte or, of the first one, from the connection on."""
GRACE_S = 1.0
"""A newer connection is not idle yet, seconds."""
ACCEPTED_AT_ONCE = 100
"""Beside `PLACES`, these fit under the usual limit of 1,024 descriptors."""
SocketName = tuple[str, int] | tuple[str, int, int, int]
"""As of `socket.getsockname`."""
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=LHHLL")
_ASKED = struct.Struct("=BBBxL")
_OWNER = struct.Struct("=L")
_OWNER_AT = _HEADER.size + 4 + 48 + 12


class Connection(H11Protocol):
    """One browser's connection."""

    peer = ""
    since = 0.0
    """By the loop's clock, seconds."""
    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = peer_of(*(transport.get_extra_info(end) for end in ("peername", "sockname")))
        self.since = self.loop.time()
        # from here on the newest is the last: a set has no order
        places: dict[Connection, None] = self.app_state.setdefault("places", {})
        places[self] = None
        if len(places) > PLACES:
            _give_way(places)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_answering:
            self._stop_waiting()
        elif self._head is None and not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.app_state["places"].pop(self, None)
        super().connection_lost(exc)

    @property
    def is_answering(self) -> bool:
        cycle = self.cycle  # None before the first one
        return cycle is not None and not cycle.response_complete  # type: ignore[redundant-expr]

    def _await_head(self) -> None:
        self._head = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def _give_way(places: dict[Connection, None]) -> None:
    """Cut a connection of the peer that has the most."""
    ((most, _),) = Counter(each.peer for each in places).most_common(1)
    theirs = [each for each in places if each.peer == most]
    settled = theirs[0].loop.time() - GRACE_S
    idle = (each for each in theirs if each.since < settled and not each.is_answering)
    loser = next(idle, theirs[0])
    del places[loser]
    loser.transport.abort()


def peer_of(theirs: SocketName | None, ours: SocketName | None) -> str:
    """The user of this machine at the other end, or the address."""
    if theirs is None or ours is None:
        return ""  # it is gone
    try:
        if ipaddress.ip_address(theirs[0]).is_loopback:
            return f"uid {_owner(theirs, ours)}"
    except (OSError, ValueError, struct.error):  # the kernel does not say
        pass
    return theirs[0]


def _owner(source: SocketName, target: SocketName) -> int:
    """The user whose socket this is, see sock_diag(7); an `OSError` or `struct.error` if none."""
    family = socket.AF_INET6 if ":" in source[0] else socket.AF_INET
    ends = b"".join(socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (source, target))
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    asked += struct.pack("!HH", source[1], target[1]) + ends + bytes(4) + b"\xff" * 8
    header = _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(0.1)
        kernel.send(header + asked)
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        raise OSError("no such socket")
    owner: int = _OWNER.unpack_from(answer, _OWNER_AT)[0]
    return owner
