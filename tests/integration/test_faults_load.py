"""Crowds, deaf watchers and stuck solvers beside a client that behaves well."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import zmq

from tests.support.live_site import Running
from tests.support.loads import Load, percentile

P99_S = 0.25
"""What a submit may take beside an attack or a hung solver, 99th percentile, seconds."""


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    site = Running(root)
    yield site
    site.stop()


def solvers(site: Running) -> list[psutil.Process]:
    """The template and the solvers it has forked."""
    return psutil.Process(site.processes["coallocd"].pid).children(recursive=True)


def served(site: Running, load: Load, submits: int) -> float:
    """The 99th percentile of so many submits, seconds."""
    first = len(load.waits)
    load.await_more(submits)
    return percentile(load.waits[first:], 0.99)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("clients", [1000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_crowd_that_connects_at_once_is_taken_in(
    site: Running, clients: int, record_property: Callable[[str, object], None]
) -> None:
    """Each is a real connection that says nothing; then a well-behaved client is served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = min(clients, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    site.start_daemon()
    load = Load(site, sizes=(1,), pause_s=0.01, timeout_s=30.0)
    crowd: list[socket.socket] = []
    path = site.endpoint.removeprefix("ipc://")
    try:
        load.start()
        load.await_more(20)
        for _ in range(room):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.setblocking(False)
            code = one.connect_ex(path)
            while code == errno.EAGAIN:  # its backlog is full: it takes them in as it gets to it
                load.await_more(1)
                code = one.connect_ex(path)
            assert code == 0, os.strerror(code)
            crowd.append(one)
        record_property("clients", room)
        late = served(site, load, 200)
        record_property("p99_s", late)
        assert site.processes["coallocd"].poll() is None
        daemon = psutil.Process(site.processes["coallocd"].pid)
        site.until(lambda: daemon.num_fds() > 0.9 * min(room, soft - 100))
    finally:
        for one in crowd:
            one.close()
        load.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    site.until(lambda: daemon.num_fds() < 300)
    assert site.ask("status")["type"] == "status"


@pytest.mark.slow
def test_a_watcher_that_never_reads_costs_nobody_else_anything(site: Running) -> None:
    site.start_daemon()
    daemon = psutil.Process(site.processes["coallocd"].pid)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    deaf = context.socket(zmq.SUB)
    deaf.setsockopt(zmq.RCVHWM, 1)
    deaf.setsockopt(zmq.RCVBUF, 4096)
    deaf.setsockopt(zmq.LINGER, 0)
    deaf.setsockopt(zmq.SUBSCRIBE, b"")
    load = Load(site, sizes=(1,), timeout_s=10.0)
    try:
        deaf.connect(f"ipc://{site.root}/run/events.sock")
        load.start()
        load.await_more(100)
        before = daemon.memory_info().rss
        load.await_more(600)
        assert daemon.memory_info().rss - before < 40e6
        assert site.ask("status")["type"] == "status"
    finally:
        load.end()
        context.destroy(linger=0)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("fate", ["hangs", "dies"])
def test_submits_are_answered_and_jobs_start_while_the_solver(
    root: Path, fate: str, record_property: Callable[[str, object], None]
) -> None:
    """Stopped or killed again and again, template and all; the plain order takes over."""
    site = Running(root, policy="fcfs", rounds="time_limit_s = 2.0")
    load = Load(site, sizes=(1,), pause_s=0.02, timeout_s=10.0)
    number = signal.SIGSTOP if fate == "hangs" else signal.SIGKILL
    struck: list[psutil.Process] = []
    try:
        site.start()
        site.until(lambda: bool(site.lines("solver_warmed")), 600.0)
        load.start()
        load.await_more(10)
        waits: list[float] = []
        for _ in range(5):
            for process in solvers(site):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
                    struck.append(process)
            first = len(load.waits)
            load.await_more(40)
            waits += load.waits[first:]
        assert site.ask("status")["type"] == "status"
        load.end()
        for process in struck:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        ends = load.settle(may_fail=False)
        assert ends["completed"] == len(load.acknowledged)
        record_property("p99_s", percentile(waits, 0.99))
        print(f"{fate}: p50 {percentile(waits, 0.5):.4f}, p99 {percentile(waits, 0.99):.4f} s")
        assert percentile(waits, 0.99) < 4 * P99_S, "four times the promise: the machine is shared"
    finally:
        if load.is_alive():
            load.end()
        site.stop()
