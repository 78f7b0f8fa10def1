"""Messages to the service manager."""

import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.runtime.systemd import READY, notify, reloading, status, watchdog_interval_s


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket that takes messages, and its address as the environment has it."""
    if request.param == "path":
        address = str(tmp_path / "notify")
    else:
        address = f"@coalloc-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address.replace("@", "\0", 1))
        receiver.settimeout(10)
        yield receiver, address


def test_messages_arrive(manager: tuple[socket.socket, str]) -> None:
    receiver, address = manager
    assert notify(READY, status("12 jobs\nrunning"), environ={"NOTIFY_SOCKET": address})
    assert receiver.recv(4096) == b"READY=1\nSTATUS=12 jobs running"


def test_reload_names_its_time(manager: tuple[socket.socket, str]) -> None:
    receiver, address = manager
    assert notify(*reloading(), environ={"NOTIFY_SOCKET": address})
    first, second = receiver.recv(4096).decode().splitlines()
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdigit()


@pytest.mark.parametrize(
    "environ",
    [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "/nowhere/x"}],
)
def test_without_a_manager_nothing_happens(environ: dict[str, str]) -> None:
    assert not notify(READY, environ=environ)


def test_watchdog_interval() -> None:
    assert watchdog_interval_s({}) is None
    assert watchdog_interval_s({"WATCHDOG_USEC": "0"}) is None
    assert watchdog_interval_s({"WATCHDOG_USEC": "soon"}) is None
    assert watchdog_interval_s({"WATCHDOG_USEC": "30000000"}) == 15.0
    ours, other = str(os.getpid()), str(os.getppid())
    assert watchdog_interval_s({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": ours}) == 1.0
    # meant for another process
    assert watchdog_interval_s({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": other}) is None
