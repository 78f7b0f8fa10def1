"""Places of the dashboard: no user of the machine takes those of others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from coalloc.dashboard import connections
from coalloc.dashboard.connections import SocketName, peer_of
from tests.support.dashboard_site import Served, fill, served

LIMIT_S = 10.0
HALF = b"GET / HTTP/1.1\r\nHost: local"
WHOLE = b"GET /api/v1/%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """One with ten places, where a port tells who it is: from 127.0.0.2 comes the attacker."""
    monkeypatch.setattr(connections, "PLACES", 10)
    monkeypatch.setattr(connections, "peer_of", address)
    with served() as running:
        yield running


def address(theirs: SocketName, ours: SocketName) -> str:
    return theirs[0]


@pytest.mark.parametrize(
    "begun",
    [b"", HALF, WHOLE % b"status", WHOLE % b"status" + HALF, WHOLE % b"events"],
    ids=["silent", "half a head", "idle", "half of the second head", "watchers"],
)
def test_a_flood_of_connections_harms_its_own_user(site: Served, begun: bytes) -> None:
    with ExitStack() as ends:
        watcher = ends.enter_context(connected(site, "127.0.0.1", WHOLE % b"events"))
        assert watcher.recv(4096)
        flood = [ends.enter_context(connected(site, "127.0.0.2", begun)) for _ in range(30)]
        for _ in range(3):
            with connected(site, "127.0.0.1", WHOLE % b"status") as other:
                assert other.recv(4096).startswith(b"HTTP/1.1 200")
        assert gone(flood[0])
        site.change(fill)
        assert watcher.recv(4096)


@pytest.mark.parametrize("begun", [b"", HALF, WHOLE % b"status"])
def test_a_head_has_its_time(site: Served, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    with connected(site, "127.0.0.1", begun) as half:
        if begun.endswith(b"\n"):
            assert half.recv(4096)
            half.sendall(HALF)
        assert gone(half)
    with connected(site, "127.0.0.1", WHOLE % b"events") as watcher:
        assert watcher.recv(10) == b"HTTP/1.1 2"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_users_of_this_machine_are_told_apart(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as client,
    ):
        here, there = client.getsockname(), client.getpeername()
        assert peer_of(here, there) == f"uid {os.getuid()}"
        assert peer_of((host, 1), there) == host  # no such connection
    assert peer_of(("192.0.2.1", 80), here) == "192.0.2.1"
    assert peer_of(None, here) == ""


def connected(site: Served, source: str, begun: bytes) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", site.server.port), LIMIT_S, (source, 0))
    found.sendall(begun)
    return found


def gone(connection: socket.socket) -> bool:
    """Read to the end, which comes in time."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True
