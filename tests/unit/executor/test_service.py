"""The executor's loop: it ends when told to, whatever its reader is doing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from coalloc.adapters.base import Adapter
from coalloc.executor.service import Executor
from coalloc.model.reading import ClusterReading, NodeReading
from coalloc.runtime.logs import get_logger


class NoLauncher:
    """Has nothing to launch, adopt or report."""

    def adopt(self) -> tuple[()]:
        return ()

    def poll(self) -> tuple[()]:
        return ()

    def fileno(self) -> None:
        return None

    def renew(self) -> None:
        return None

    def close(self) -> None:
        return None


class GatedReader:
    """Answers when the gate opens."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.gate = threading.Event()

    def read(self) -> ClusterReading:
        self.asked.set()
        assert self.gate.wait(30.0)
        return ClusterReading(cluster="a", nodes=(NodeReading(name="a1"),))


@pytest.mark.parametrize("answers_first", [True, False])
def test_it_ends_although_a_reading_comes_in_at_that_moment(
    tmp_path: Path, answers_first: bool
) -> None:
    """With wait_for of Python 3.11 the loop went on for ever when both came together."""
    reader = GatedReader()

    async def run() -> None:
        executor = Executor(
            "a",
            Adapter(reader=reader, launcher=NoLauncher()),  # type: ignore[arg-type]
            f"ipc://{tmp_path}/x",
            tmp_path,
            get_logger(),
            interval_s=1000.0,
            timeout_s=30.0,
        )
        executor.open()
        await asyncio.to_thread(reader.asked.wait, 10.0)
        closing = asyncio.ensure_future(executor.close()) if not answers_first else None
        reader.gate.set()
        async with asyncio.timeout(10.0):
            await (closing or executor.close())

    asyncio.run(run())
