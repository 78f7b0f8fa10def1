"""Watchers that subscribe without end: they are cut off, and nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest
import zmq

from coalloc.wire.publisher import Publisher
from coalloc.wire.subscription_limits import (
    MOST_BYTES,
    MOST_SUBSCRIPTIONS,
    UNREAD_BYTES,
    FloodGuard,
    Subscriptions,
)

FLOOD = 200_000
"""Unbounded, they take a gigabyte of the publisher."""
GROWTH_MB = 250.0
CUT_OFF = 3
"""At least; how often depends on how soon the publisher gets its turn."""
LIMIT_S = 120.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path holds 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="co-") as name:
        yield Path(name)


async def watched(folder: Path) -> tuple[int, list[int], float]:
    """Flood a publisher while somebody watches.

    Returns
    -------
    tuple
        How often the flood was cut off, what the watcher saw, by how much the publisher grew in MB.
    """
    path = folder / "w"
    publisher = Publisher(f"ipc://{path}")
    publisher.open(asyncio.get_running_loop())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    watcher = context.socket(zmq.SUB)
    watcher.connect(f"ipc://{path}")
    watcher.subscribe(b"event.")
    seen: list[int] = []
    try:
        while not _look(watcher, seen):
            await asyncio.sleep(0.001)
        gc.collect()
        before = psutil.Process().memory_info().rss
        flood = subprocess.Popen(
            [sys.executable, "-m", "tests.properties.flooding", str(path), str(FLOOD)],
            stdout=subprocess.PIPE,
            text=True,
        )
        while flood.poll() is None:
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
    connections = int(flood.communicate()[0])
    return connections - 1, seen, grown / 1e6


def _look(watcher: zmq.Socket[bytes], seen: list[int]) -> bool:
    """Take in what has come; whether anything has ever."""
    while watcher.poll(0):
        _, body = watcher.recv_multipart()
        seen.append(json.loads(body)["watch_seq"])
    return bool(seen)


def test_a_flood_of_subscriptions_costs_neither_memory_nor_a_watcher(folder: Path) -> None:
    cut_off, seen, grown_mb = asyncio.run(asyncio.wait_for(watched(folder), LIMIT_S))
    assert cut_off >= CUT_OFF
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


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_only_who_keeps_a_call_from_returning_is_ended(folder: Path, family: int) -> None:
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(family))
        listener.bind(str(folder / "l") if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        here = listener.getsockname()
        flooding, other = (opened.enter_context(socket.socket(family)) for _ in range(2))
        for each, sent in ((flooding, UNREAD_BYTES), (other, UNREAD_BYTES - 1)):
            each.connect(here)
            opened.enter_context(listener.accept()[0])
            each.sendall(bytes(sent))
        endpoint = f"ipc://{here}" if family == socket.AF_UNIX else f"tcp://127.0.0.1:{here[1]}"
        opened_before = len(os.listdir("/proc/self/fd"))
        guard = FloodGuard(endpoint, lambda: 0.0)
        guard.start()
        flooding.settimeout(LIMIT_S)
        assert flooding.recv(1) == b"", "it is shut down"
        guard.stop()
        assert len(os.listdir("/proc/self/fd")) == opened_before
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)


def test_a_call_that_has_only_begun_ends_nobody(folder: Path) -> None:
    looks = threading.Semaphore(0)

    def begun() -> float:
        looks.release()
        return time.monotonic()

    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(folder / "l"))
        listener.listen()
        flooding = opened.enter_context(socket.socket(socket.AF_UNIX))
        flooding.connect(str(folder / "l"))
        opened.enter_context(listener.accept()[0])
        flooding.sendall(bytes(UNREAD_BYTES))
        guard = FloodGuard(f"ipc://{folder / 'l'}", begun)
        guard.start()
        for _ in range(2):
            assert looks.acquire(timeout=LIMIT_S)
        guard.stop()
        flooding.setblocking(False)
        with pytest.raises(BlockingIOError):
            flooding.recv(1)


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
