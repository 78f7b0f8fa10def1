"""One user's flood is refused, and no other user waits for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coalloc.client.client import Client
from coalloc.runtime.key_files import KeyFile, write_key
from tests.support.loads import percentile
from tests.support.multi_user import ADA, BOB, MultiUser

FLOOD = """
import json, os, sys, time
from pathlib import Path
from coalloc.runtime.key_files import calling, read_key
from coalloc.wire.client import NoAnswerError, RequestConnection
endpoint, key, body = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
askers = [
    RequestConnection(endpoint, security=calling(read_key(key), "", key)) for _ in range(20)
]
print("ready", flush=True)
while True:
    for asker in askers:
        for number in range(50):
            try:
                asker.send({**body, "token": os.urandom(8).hex()})
            except NoAnswerError:
                time.sleep(0.001)
    for asker in askers:
        while asker._socket.poll(0):
            asker._socket.recv_multipart()
"""
FEW, MANY = 10, 100
"""Submits of a user who asks little."""
PAUSE_S = 0.02
"""Between submits of a user who keeps to the limit, seconds."""
LIMIT_S = 0.25
"""For a submit of a user who asks little, seconds."""


@pytest.fixture(scope="module")
def site() -> Iterator[MultiUser]:
    root = Path(tempfile.mkdtemp(prefix="co-"))
    with MultiUser(
        root, clusters={"alpha": 2}, access="requests_per_s = 100.0\nburst = 100.0"
    ) as site:
        yield site
    shutil.rmtree(root, ignore_errors=True)


def submit_times(site: MultiUser, user: str, submits: int) -> list[float]:
    """Seconds from each submit to its answer, one after the other."""
    taken = []
    with site.asking(site.key(user), 60.0) as asker:
        for _ in range(submits):
            body = site.submission(["true"], hold=True)
            began = time.perf_counter()
            answer = asker.ask({"type": "submit", **body})
            taken.append(time.perf_counter() - began)
            assert answer["type"] == "done", answer
            time.sleep(PAUSE_S)
    return sorted(taken)


@contextmanager
def flooding(site: MultiUser, user: str, kind: str) -> Iterator[None]:
    """Requests of a user without pause, the first of which are refused already."""
    key = site.root / f"flood-{kind}.json"
    write_key(key, KeyFile(pair=site.key(user).pair, server=site.server))
    body = {**site.submission(["true"], hold=True), "type": kind}
    process = subprocess.Popen(
        [sys.executable, "-c", FLOOD, site.endpoint, str(key), json.dumps(body)],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        site.audited("request_refused", "too many requests")
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", ["submit", "queue"])
def test_a_flood_is_refused_and_everybody_else_served(site: MultiUser, kind: str) -> None:
    with flooding(site, BOB, kind):
        submit_times(site, ADA, FEW)
    assert site.audited("request_refused", "too many requests")["user"] == BOB


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["submit", "queue"])
def test_a_flood_delays_nobody_else(site: MultiUser, kind: str) -> None:
    quiet = submit_times(site, ADA, MANY)
    with flooding(site, BOB, kind):
        flooded = submit_times(site, ADA, MANY)
    print(
        f"{kind}: quiet p50 {percentile(quiet, 0.5):.4f} worst {quiet[-1]:.4f} s; flooded"
        f" p50 {percentile(flooded, 0.5):.4f} p99 {percentile(flooded, 0.99):.4f} s"
    )
    # Not the worst, which on a shared machine is that of whatever else runs there.
    assert percentile(flooded, 0.5) <= LIMIT_S + quiet[-1]


def test_who_asks_too_fast_is_served_more_slowly(site: MultiUser) -> None:
    """The client waits and asks again: every job of many is queued, none twice."""
    calling = site.key("root", role="operator")
    path = site.root / "many.json"
    write_key(path, KeyFile(pair=calling.pair, server=site.server))
    with Client(site.endpoint, 30.0, key=path) as client:
        rows = [client.status() for _ in range(130)]
        assert len(rows) == 130
    assert site.audited("request_refused", "too many requests")
