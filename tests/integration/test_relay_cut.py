"""A wrapper that calls by a relay, whose connection is lost when its processes wait to start."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.runner.batch.ends import has_started
from coalloc.adapters.runner.status import StatusFile
from coalloc.adapters.slurm.launcher import SlurmLauncher
from tests.support.fake_slurm import FakeSlurm


def waits_for_go(chunk: bytes) -> bool:
    """Tell a job's description that a wrapper receives before the order to go."""
    return b"spec {" in chunk and b'"is_open":true' not in chunk and b"\ngo" not in chunk


class Relay:
    """Carries connections to the port that each names, as `adapters.ssh` does."""

    def __init__(self) -> None:
        self.is_deaf = False
        """What is said to wrappers is lost."""
        self.joins = False
        """A job's description and the order to go reach a wrapper in one chunk."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._near: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def cut(self) -> None:
        """End all that is carried now."""
        near, self._near = self._near, []
        for sock in near:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self._near.append(near)
                self._threads.append(threading.Thread(target=self._carry, args=(near,)))
                self._threads[-1].start()

    def _carry(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            line = b"".join(iter(lambda: near.recv(1), b"\n"))
            with socket.create_connection(("127.0.0.1", int(line.split()[1]))) as far:
                ways = {near: far, far: near}
                while True:
                    for sock in select.select(list(ways), [], [])[0]:
                        chunk = sock.recv(1 << 16)
                        while self.joins and waits_for_go(chunk):
                            if not (more := far.recv(1 << 16)):
                                return
                            chunk += more
                        if not chunk:
                            return
                        if not (sock is far and self.is_deaf):
                            ways[sock].sendall(chunk)


@pytest.mark.parametrize("is_let_go", [True, False], ids=["go lost", "lost before go"])
def test_it_calls_again_and_starts_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_let_go: bool
) -> None:
    relay, site = Relay(), SlurmLauncher._site

    def relayed(self: SlurmLauncher, part: Any) -> Any:
        return {**site(self, part), "relay": relay.address}

    monkeypatch.setattr(SlurmLauncher, "_site", relayed)
    cut_off = "echo 'Unable to contact slurm controller' >&2; exit 1\n"
    fake = FakeSlurm(root, scontrol=cut_off)
    try:
        spec = fake.shell("echo began", nodes=(("n1", 1),))
        fake.claim(spec)
        relay.is_deaf = is_let_go
        if is_let_go:
            fake.launcher.go(spec.key)
            (folder,) = root.glob("state/part*/status")
            status = StatusFile(str(folder.parent))
            status.open()
            end = time.monotonic() + 20.0
            while not has_started(status):
                assert time.monotonic() < end
                time.sleep(0.01)
        relay.is_deaf, relay.joins = False, True
        relay.cut()
        fake.launcher.go(spec.key)
        assert fake.ended(spec.key).exit_code == 0
        assert fake.output() == "began\n"
    finally:
        fake.close()
        relay.close()
