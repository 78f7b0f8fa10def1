"""The executor's loop: it ends when told to, whatever its reader is doing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from coalloc.adapters.base import Act, Adapter, AdapterError
from coalloc.core.base.messages import Read, Statement, Streamed
from coalloc.executor.service import READ_ANYWAY_S, ExecutorService
from coalloc.model.sites.reading import ClusterReading, NodeReading
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
        executor = ExecutorService(
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


def test_an_act_that_fails_costs_neither_the_reading_nor_another_act(tmp_path: Path) -> None:
    reader = GatedReader()
    reader.gate.set()
    done = threading.Event()

    def fail() -> None:
        raise AdapterError("scontrol: no answer")

    acts = (Act(what="hold_jobs", run=fail), Act(what="keep_share", run=done.set))

    async def run() -> list[Statement | Streamed]:
        executor = ExecutorService(
            "a",
            Adapter(reader=reader, launcher=NoLauncher(), due=lambda: acts),  # type: ignore[arg-type]
            f"ipc://{tmp_path}/x",
            tmp_path,
            get_logger(),
            interval_s=1000.0,
            timeout_s=30.0,
        )
        said: list[Statement | Streamed] = []
        read = asyncio.Event()

        def say(statement: Statement | Streamed) -> None:
            said.append(statement)
            if isinstance(statement, Read):
                assert done.is_set(), "what is published may count on what was done"
                read.set()

        executor._say = say  # type: ignore[method-assign]
        executor.open()
        async with asyncio.timeout(10.0):
            await read.wait()
            await executor.close()
        return said

    (reading,) = (each for each in asyncio.run(run()) if isinstance(each, Read))
    assert reading.reading is not None
    assert reading.error == ""


@pytest.mark.parametrize(
    ("wanted", "took_s", "max_age_s", "expected_s"),
    [
        (0, 0.1, 60.0, 15.0),  # nothing is there, nothing is wanted
        (4, 0.1, 60.0, 5.0),
        (4, 4.0, 60.0, 12.0),  # the batch system is slow
        (0, 9.0, 60.0, 27.0),
        (0, 0.1, 20.0, 10.0),  # a reading is not to be stale
        (0, 0.1, 8.0, 5.0),
    ],
)
def test_the_pause_between_readings(
    tmp_path: Path, wanted: int, took_s: float, max_age_s: float, expected_s: float
) -> None:
    def pause(is_idle: bool) -> float:
        return 3.0 if is_idle else 1.0

    executor = ExecutorService(
        "a",
        Adapter(reader=GatedReader(), launcher=NoLauncher(), pause=pause),  # type: ignore[arg-type]
        f"ipc://{tmp_path}/x",
        tmp_path,
        get_logger(),
        interval_s=5.0,
        timeout_s=30.0,
        max_age_s=max_age_s,
    )
    executor._wanted = wanted
    assert executor._interval_s(took_s) == expected_s
    executor._is_read = True
    assert executor._interval_s(took_s) == (expected_s if wanted else READ_ANYWAY_S)
    executor._port.close()
    executor._context.term()
