"""Clients that are dropped after an error: every kind of error, every way to drop them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.auth.thread import ThreadAuthenticator

from coalloc.runtime.key_files import KeyFile, write_key
from coalloc.wire.contexts import new_context
from coalloc.wire.curve import CurveServer, Handshakes, new_pair
from tests.support.fake_daemon import FakeDaemon

LIMIT_S = 60


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(path: Path, ends: ExitStack, each: Callable[[socket.socket], object]) -> str:
    """A socket that does something with every connection."""
    listener = ends.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(str(path))
    listener.listen(100)

    def accept() -> None:
        while True:
            try:
                each(listener.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept)
    thread.start()
    ends.callback(thread.join)
    ends.callback(listener.shutdown, socket.SHUT_RDWR)
    return f"ipc://{path}"


def refusing(root: Path, ends: ExitStack) -> tuple[str, str]:
    """An endpoint that refuses the key of a file."""
    server, key = new_pair(), root / "key.json"
    write_key(key, KeyFile(pair=new_pair(), server=server.public))
    context = ends.enter_context(zmq.Context())
    gate = ThreadAuthenticator(context)
    gate.start()
    ends.callback(gate.stop)
    gate.configure_curve(domain="clients", location=root)
    router = ends.enter_context(context.socket(zmq.ROUTER))
    CurveServer(pair=server, domain="clients").apply(router)
    router.bind(f"ipc://{root}/refusing.sock")
    return f"ipc://{root}/refusing.sock", str(key)


def once(daemon: FakeDaemon) -> None:
    """Answers the first request of each connection."""
    seen = set()

    def respond(body: dict[str, Any]) -> dict[str, Any] | None:
        if daemon.peer in seen:
            return None
        seen.add(daemon.peer)
        return {"type": "events", "events": [], "last": 0}

    daemon.respond = respond


@pytest.fixture
def failing(root: Path, ends: ExitStack) -> list[tuple[str, str, str | None]]:
    """Endpoint, kind and key of daemons that fail their clients in every way."""

    def half(connection: socket.socket) -> None:
        ends.callback(connection.close)
        with suppress(OSError):
            connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03")  # of ZeroMQ's greeting

    deaf = ends.enter_context(socket.socket(socket.AF_UNIX))
    deaf.bind(f"{root}/deaf.sock")
    deaf.listen(1)
    daemons = {}
    for kind in ("answers once", "nonsense"):
        (root / kind).mkdir()
        daemons[kind] = ends.enter_context(closing(FakeDaemon(root / kind)))
    once(daemons["answers once"])
    daemons["nonsense"].respond = lambda body: [b"nonsense"]
    endpoint, key = refusing(root, ends)
    return [
        (f"ipc://{root}/deaf.sock", "deaf", None),
        (f"ipc://{root}/nobody.sock", "nobody", None),
        ("tcp://127.0.0.1:1", "nobody", None),
        (listening(root / "hangs-up.sock", ends, socket.socket.close), "hangs up", None),
        (listening(root / "half.sock", ends, half), "half answer", None),
        (endpoint, "refuses the key", key),
        *((daemon.endpoint, kind, None) for kind, daemon in daemons.items()),
    ]


def test_no_program_hangs(failing: list[tuple[str, str, str | None]]) -> None:
    """Whatever failed, and however the client was dropped, also when the program ends."""
    program = [sys.executable, "-m", "tests.support.dropped_clients", json.dumps(failing)]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            said, errors = run.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            run.kill()
            pytest.fail(f"hangs after: {run.communicate()[0].splitlines()[-1:]}")
    assert (run.returncode, said.splitlines()[-1]) == (0, "ends"), errors
    assert "Traceback" not in errors, errors


def test_handshakes_that_nobody_reads_stop_nothing(root: Path, ends: ExitStack) -> None:
    """More failed ones than a queue holds: the context's other sockets still work."""
    context = new_context()  # not ended: that waits where this fails
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    handshakes = Handshakes(router)
    for part in (router, dealer, handshakes):
        ends.callback(part.close)
    router.bind(f"ipc://{root}/all.sock")
    for _ in range(2500):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(f"{root}/all.sock")
    dealer.connect(f"ipc://{root}/all.sock")
    dealer.send(b"heard")
    assert router.poll(LIMIT_S * 1000)
    assert router.recv_multipart()[1] == b"heard"
