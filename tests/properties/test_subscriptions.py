"""Watchers that subscribe without end: they are cut off, and nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import zmq

from coalloc.daemon.wire.publishing import Publisher
from coalloc.daemon.wire.subscriptions import MOST_BYTES, MOST_SUBSCRIPTIONS, Subscriptions

FLOOD = 100_000
TOPIC_BYTES = 60
"""Unbounded, a flood of these takes some hundreds of megabytes of the publisher."""
GROWTH_MB = 48.0
LIMIT_S = 120.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
"""Of ZMTP 3.0, https://rfc.zeromq.org/spec/23/, where a subscription is a message."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path holds 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="co-") as name:
        yield Path(name)


class Flood(threading.Thread):
    """Subscribes to so many different topics, and connects again where it is cut off."""

    def __init__(self, path: Path, topics: int) -> None:
        super().__init__(daemon=True)
        self.path, self.topics = path, topics
        self.connections = 0
        self.sent = 0

    def run(self) -> None:
        while self.sent < self.topics:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(LIMIT_S)
                try:
                    self._subscribe(connection)
                except OSError:
                    continue  # cut off

    def _subscribe(self, connection: socket.socket) -> None:
        connection.connect(str(self.path))
        self.connections += 1
        connection.sendall(GREETING)
        received = 0
        while received < len(GREETING):
            received += len(connection.recv(len(GREETING) - received))
        connection.sendall(bytes([4, len(READY)]) + READY)
        while self.sent < self.topics:
            topics = [b"\1" + os.urandom(TOPIC_BYTES // 2).hex().encode() for _ in range(100)]
            connection.sendall(b"".join(bytes([0, len(topic)]) + topic for topic in topics))
            self.sent += len(topics)


async def watched(folder: Path) -> tuple[Flood, list[int], float]:
    """Flood a publisher while somebody watches; what he saw, and by how much it grew in MB."""
    path = folder / "w"
    publisher = Publisher(f"ipc://{path}")
    publisher.open(asyncio.get_running_loop())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    watcher = context.socket(zmq.SUB)
    watcher.connect(f"ipc://{path}")
    watcher.subscribe(b"event.")
    seen: list[int] = []
    flood = Flood(path, FLOOD)
    try:
        while not _look(watcher, seen):
            await asyncio.sleep(0.001)
        gc.collect()
        before = psutil.Process().memory_info().rss
        flood.start()
        while flood.is_alive():
            publisher.publish("event.job_submitted.1", {"job": "1"})
            await asyncio.sleep(0.001)
            _look(watcher, seen)
        grown = psutil.Process().memory_info().rss - before
        publisher.publish("event.job_ended.1", {"job": "1"})
        while seen[-1] < publisher.watch_seq:
            await asyncio.sleep(0.001)
            _look(watcher, seen)
    finally:
        watcher.close(0)
        context.term()
        publisher.close()
    return flood, seen, grown / 1e6


def _look(watcher: zmq.Socket[bytes], seen: list[int]) -> bool:
    """Take in what has come; whether anything has ever."""
    while watcher.poll(0):
        _, body = watcher.recv_multipart()
        seen.append(json.loads(body)["watch_seq"])
    return bool(seen)


def test_a_flood_of_subscriptions_costs_neither_memory_nor_a_watcher(folder: Path) -> None:
    flood, seen, grown_mb = asyncio.run(asyncio.wait_for(watched(folder), LIMIT_S))
    assert flood.sent >= FLOOD
    assert flood.connections > 10, "it was cut off again and again"
    assert seen == list(range(seen[-1] + 1)), "greeted once, and nothing was missed"
    assert grown_mb < GROWTH_MB


@pytest.mark.parametrize(
    ("size", "most"),
    [
        pytest.param(1, MOST_SUBSCRIPTIONS, id="by number"),
        pytest.param(1024, MOST_BYTES // 1024, id="by size"),
    ],
)
def test_a_connection_is_ended_at_its_limit(size: int, most: int) -> None:
    mine, theirs = socket.socketpair()
    with closing(mine), closing(theirs):
        subscriptions = Subscriptions()
        taken = [subscriptions.takes(mine.fileno(), size) for _ in range(most + 1)]
        assert taken == [True] * most + [False]
        assert theirs.recv(1) == b"", "it is shut down"


def test_another_connection_under_the_same_descriptor_has_an_account_of_its_own() -> None:
    subscriptions = Subscriptions()
    for _ in range(3):
        mine, theirs = socket.socketpair()
        with closing(mine), closing(theirs):
            descriptor = mine.fileno()
            assert all(subscriptions.takes(descriptor, 1) for _ in range(MOST_SUBSCRIPTIONS))
    assert not subscriptions.takes(descriptor, 1), "it has gone"


def test_what_no_connection_is_known_of_is_taken() -> None:
    subscriptions = Subscriptions()
    assert all(subscriptions.takes(-1, 1024) for _ in range(MOST_SUBSCRIPTIONS + 1))
