"""The enrolment socket: places for each user, and a file that is made anew."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from coalloc.client import enrolment as enrol_client
from coalloc.client.enrolment import EnrolmentError
from coalloc.daemon.access import enrolment_socket
from coalloc.daemon.access.access import Access
from coalloc.daemon.access.enrolment import LINES_AT_ONCE, Enrolment, Peer
from coalloc.daemon.access.enrolment_socket import MAX_PEERS, MAX_PEERS_OF_USER, EnrolmentSocket
from coalloc.daemon.access.key_table import KeyTable
from coalloc.daemon.watchdog import Reachability
from coalloc.model.settings import AccessConfig, Config
from coalloc.runtime import logs
from coalloc.wire.curve import new_pair


class SocketTestbed:
    """A socket whose peers are who the test says: ada, until it says another."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = folder / "run" / "enrol.sock"
        access = Access(
            new_pair(), KeyTable(folder / "keys.json"), AccessConfig(), logs.get_logger()
        )
        enrolment = Enrolment(access, Config(), on_change=lambda key: None, timer=lambda: 0.0)
        self.socket = EnrolmentSocket(self.path, enrolment)
        self.peer = Peer(user="ada", uid=1000, is_admin=False)
        monkeypatch.setattr(enrolment_socket, "peer_of", lambda connection: self.peer)

    def be(self, user: str, uid: int, **fields: Any) -> None:
        """Connect as this user from now on."""
        self.peer = Peer(user=user, uid=uid, **{"is_admin": False, **fields})

    async def ask(self) -> str:
        """Ask for the list; returns the refusal, or nothing."""
        try:
            await asyncio.to_thread(enrol_client.ask, self.path, "list")
        except EnrolmentError as error:
            return str(error)
        return ""

    async def idle(self, opened: ExitStack) -> None:
        """Connect, be accepted, and say nothing."""
        before = sum(self.socket._places.values())
        connection = opened.enter_context(socket.socket(socket.AF_UNIX))
        connection.connect(str(self.path))
        while sum(self.socket._places.values()) == before:
            await asyncio.sleep(0)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Iterator[SocketTestbed]:
    with tempfile.TemporaryDirectory(prefix="co-") as name:
        yield SocketTestbed(Path(name), monkeypatch)


def serving(test: Callable[[SocketTestbed, ExitStack], Any], bed: SocketTestbed) -> None:
    async def run() -> None:
        bed.socket.open()
        with ExitStack() as opened:
            try:
                await test(bed, opened)
            finally:
                await bed.socket.close()

    asyncio.run(run())


def test_idle_connections_of_one_user_take_no_place_of_others(bed: SocketTestbed) -> None:
    async def run(bed: SocketTestbed, opened: ExitStack) -> None:
        for _ in range(MAX_PEERS_OF_USER):
            await bed.idle(opened)
        assert await bed.ask() == "ada has 8 connections here; try again in 5 s"
        bed.be("bob", 1001)
        assert not await bed.ask()
        for uid in range(2000, 2000 + MAX_PEERS // MAX_PEERS_OF_USER - 1):
            bed.be("many", uid)
            for _ in range(MAX_PEERS_OF_USER):
                await bed.idle(opened)
        bed.be("bob", 1001)
        assert await bed.ask() == "too many connections; try again in 5 s"
        bed.be("root", 0, is_admin=True)
        assert not await bed.ask()

    serving(run, bed)


def test_places_are_given_back(bed: SocketTestbed) -> None:
    async def run(bed: SocketTestbed, opened: ExitStack) -> None:
        for _ in range(3 * MAX_PEERS_OF_USER):
            assert not await bed.ask()
        while bed.socket._places:
            await asyncio.sleep(0)

    serving(run, bed)


def test_who_asks_too_often_is_turned_away_unread(bed: SocketTestbed) -> None:
    async def run(bed: SocketTestbed, opened: ExitStack) -> None:
        for _ in range(int(LINES_AT_ONCE)):
            assert not await bed.ask()
        with structlog.testing.capture_logs() as lines:
            for _ in range(10):
                assert "ada asks too often" in await bed.ask()
        assert len(lines) == 1
        bed.be("bob", 1001)
        assert not await bed.ask()

    serving(run, bed)


def test_numbers_without_an_account_are_turned_away(bed: SocketTestbed) -> None:
    """A user of name spaces has thousands of them."""

    async def run(bed: SocketTestbed, opened: ExitStack) -> None:
        with structlog.testing.capture_logs() as lines:
            for uid in (100_001, 100_002, 100_003):
                bed.be(f"uid {uid}", uid, has_account=False)
                assert await bed.ask() == f"uid {uid} has no account here"
        assert len(lines) == 1

    serving(run, bed)


def test_a_socket_whose_file_is_gone_listens_again(bed: SocketTestbed) -> None:
    async def run(bed: SocketTestbed, opened: ExitStack) -> None:
        reachability = Reachability([bed.socket], logs.get_logger())
        with structlog.testing.capture_logs() as lines:
            assert reachability.look()
            assert not lines
            bed.path.unlink()
            bed.path.parent.rmdir()
            assert reachability.look()
            assert not await bed.ask()
            assert bed.path.stat().st_mode & 0o777 == 0o666
        assert [line["event"] for line in lines] == ["socket_restored"]

    serving(run, bed)


def test_a_socket_that_cannot_be_made_again_is_told_once_and_tried_on(bed: SocketTestbed) -> None:
    async def run(bed: SocketTestbed, opened: ExitStack) -> None:
        reachability = Reachability([bed.socket], logs.get_logger())
        bed.path.unlink()
        bed.path.parent.rmdir()
        bed.path.parent.write_text("in the way")
        with structlog.testing.capture_logs() as lines:
            for _ in range(3):
                assert not reachability.look()
            bed.path.parent.unlink()
            assert reachability.look()
        assert [line["event"] for line in lines] == ["socket_lost", "socket_restored"]
        assert not await bed.ask()
        bed.path.unlink()
        bed.path.write_text("another's")
        assert not reachability.look()
        assert bed.path.read_text() == "another's"

    serving(run, bed)


def test_nothing_of_it_stays_open(bed: SocketTestbed) -> None:
    async def run(bed: SocketTestbed, opened: ExitStack) -> None:
        await bed.idle(opened)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            bed.path.unlink()
            bed.socket.restore()
        assert len(os.listdir("/proc/self/fd")) == before

    serving(run, bed)
    assert not bed.path.exists()


def test_a_client_waits_where_no_more_may_wait(
    bed: SocketTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a queue that is full the kernel says so at once, whatever the client's patience."""
    bed.path.parent.mkdir()
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(bed.path))
        listener.listen(0)
        opened.enter_context(socket.socket(socket.AF_UNIX)).connect(str(bed.path))

        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            listener.close()

        monkeypatch.setattr(time, "sleep", sleep)
        with pytest.raises(EnrolmentError, match="Connection refused"):
            enrol_client.ask(bed.path, "list")
        assert waits == [enrol_client.RETRY_S]
