"""A worker of `coalloc.Executor` without its client, and a client without workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from coalloc.client.futures import serving
from coalloc.client.futures.workers import CallWorkers, PooledCall
from coalloc.wire.worker_socket import WorkerSocket


class Silent:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send(self, message: Any) -> None:
        self.heard.append(message)

    def next_answer(self, timeout_s: float) -> None:
        assert timeout_s == serving.GONE_S


def test_a_worker_whose_client_is_gone_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / serving.KEYS).write_text("{}")
    client = Silent()
    monkeypatch.setattr(serving, "GONE_S", 0.05)
    monkeypatch.setattr(serving, "connected", lambda _: client)
    kept = [os.dup(1), os.dup(2)]
    try:
        assert serving.serve(tmp_path / "worker-1") == 0
    finally:
        for standard, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, standard)
            os.close(descriptor)
    assert [message["type"] for message in client.heard] == ["hello"]


def test_a_client_that_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / serving.KEYS).write_text('{"hosts": ["nowhere.invalid"], "port": 1}')
    assert serving.serve(tmp_path / "worker-1") == 0
    assert not (tmp_path / "worker-1.out").exists()


class Daemon:
    """Takes jobs, and never starts one."""

    def submit(self, job: Any) -> None: ...

    def withdraw(self, job: Any) -> None: ...

    def stop(self, *, join: bool) -> None: ...


def test_an_executor_may_be_left_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_and_close(socket: WorkerSocket) -> None:
        workers._look()  # as one does whose turn came before the end
        await close(socket)

    close = WorkerSocket.close
    monkeypatch.setattr(WorkerSocket, "close", look_and_close)
    workers = CallWorkers(Daemon(), tmp_path, "", {"base_time": 1.0}, 9)  # type: ignore[arg-type]
    call = PooledCall(name="f", text="", calls=1, output=tmp_path / "1.out", value=list)
    workers.make(call)
    assert call.future.cancel()
    workers.stop(join=True)
    assert not (tmp_path / serving.KEYS).exists()
