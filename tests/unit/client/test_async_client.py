"""The asyncio client: it asks what the other one asks, many tasks at a time."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from coalloc import AsyncClient, Client
from coalloc.client import async_client
from coalloc.client.async_client import THREADS
from coalloc.client.client import NoAnswerError
from tests.support.fake_daemon import LIMIT_S, FakeDaemon, Stream

STATUS = {
    "type": "status",
    "time": 0.0,
    "user": "ada",
    "epoch": 1,
    "rounds": 0,
    "paused": False,
    "waiting": 0,
    "placed": 0,
}
Scene = Callable[[AsyncClient], Coroutine[Any, Any, None]]


def played(daemon: FakeDaemon, scene: Scene, timeout_s: float = LIMIT_S) -> None:
    """Run a scene with a client of this daemon."""

    async def main() -> None:
        publishing = daemon.publish_endpoint
        async with AsyncClient(
            daemon.endpoint, timeout_s=timeout_s, publish_endpoint=publishing
        ) as client:
            await scene(client)

    asyncio.run(main())


def test_both_clients_have_the_same_requests() -> None:
    """Public names, parameters and words: the one is the other, awaited."""
    own = {"over", "give_up"}
    assert {n for n in dir(Client) if n[0] != "_"} - own <= {*dir(AsyncClient), "security"}
    for name in {n for n in dir(AsyncClient) if n[0] != "_"} - {"close"}:
        blocking, awaited = getattr(Client, name, None), getattr(AsyncClient, name)
        if inspect.isfunction(blocking):
            assert inspect.signature(awaited) == inspect.signature(blocking)
            assert inspect.getdoc(awaited) == inspect.getdoc(blocking)


def test_answers_find_the_task_that_asked(daemon: FakeDaemon) -> None:
    waiting: list[dict[str, Any]] = []

    def respond(body: dict[str, Any]) -> dict[str, Any] | None:
        waiting.append(body)
        if len(waiting) < 20:
            return None
        for asked in reversed(waiting):  # in another order than they were asked
            daemon.answer(asked, {"type": "done", "jobs": [asked["job"]]})
        return None

    daemon.respond = respond

    async def scene(client: AsyncClient) -> None:
        jobs = [str(number) for number in range(20)]
        concerned = await asyncio.gather(*(client.cancel(job) for job in jobs))
        assert concerned == [(job,) for job in jobs]

    played(daemon, scene)


def test_silence_is_an_error_and_a_submit_is_sent_again(daemon: FakeDaemon) -> None:
    daemon.respond = lambda body: None

    async def scene(client: AsyncClient) -> None:
        with pytest.raises(NoAnswerError, match=r"no answer from .* within 0\.2 s"):
            await client.submit(["true"], token="mine")

    played(daemon, scene, timeout_s=0.2)
    assert [body["token"] for body in daemon.heard_all(2)] == ["mine", "mine"]


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_client, "PATIENCE_S", 0.05)

    async def main() -> None:
        async with AsyncClient(f"ipc://{tmp_path}/absent") as client:
            with pytest.raises(NoAnswerError, match="no daemon listens"):
                await client.queue()

    asyncio.run(main())


def test_garbage_is_an_error(daemon: FakeDaemon) -> None:
    daemon.respond = lambda body: [b"\xff\x00"]

    async def scene(client: AsyncClient) -> None:
        with pytest.raises(NoAnswerError, match="not JSON"):
            await client.queue()

    played(daemon, scene)


def test_a_cancelled_task_leaves_the_connection_usable(daemon: FakeDaemon) -> None:
    heard = threading.Event()

    def respond(body: dict[str, Any]) -> dict[str, Any] | None:
        heard.set()
        return None if body["type"] == "cancel" else {"type": "done"}

    daemon.respond = respond

    async def scene(client: AsyncClient) -> None:
        task = asyncio.create_task(client.cancel("1"))
        assert await asyncio.to_thread(heard.wait, LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.round_now()

    played(daemon, scene)


def test_closing_ends_what_waits(daemon: FakeDaemon) -> None:
    """More of it than there are threads."""
    daemon.respond = lambda body: None

    async def scene(client: AsyncClient) -> None:
        tasks = [asyncio.create_task(client.cancel(str(job))) for job in range(THREADS + 9)]
        while len(daemon.heard) < THREADS:
            await asyncio.sleep(0.001)
        await client.close()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {str(end) for end in ends} == {f"the connection to {daemon.endpoint} was closed"}
        daemon.respond = lambda body: {"type": "done"}
        await client.round_now()

    played(daemon, scene)


def test_values_come_one_by_one(daemon: FakeDaemon) -> None:
    stream = Stream(daemon, 3)

    async def scene(client: AsyncClient) -> None:
        assert [event.seq async for event in client.events(1)] == [2, 3]
        async with aclosing(client.events(1, follow=True)) as events:
            greeting = asyncio.create_task(asyncio.to_thread(stream.greet))
            assert [(await anext(events)).seq for _ in range(2)] == [2, 3]
            await greeting
            stream.happen()
            assert (await anext(events)).seq == 4

    try:
        played(daemon, scene)
    finally:
        stream.close()


def test_waits_do_not_hold_up_what_is_answered_at_once(daemon: FakeDaemon) -> None:
    """More of them than there are threads for requests; their tasks end when they are cancelled."""

    def respond(body: dict[str, Any]) -> dict[str, Any] | None:
        return {"wait": None, "status": STATUS}.get(body["type"], {"type": "done"})

    daemon.respond = respond

    async def scene(client: AsyncClient) -> None:
        waits = [asyncio.create_task(client.wait(str(job))) for job in range(2 * THREADS)]
        while sum(body["type"] == "wait" for body in daemon.heard) < len(waits):
            await client.round_now()
        for wait in waits:
            wait.cancel()
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}

    played(daemon, scene)


@pytest.mark.parametrize("way", ["cancel", "close"])
def test_a_stream_that_nobody_reads_any_more_ends(daemon: FakeDaemon, way: str) -> None:
    stream = Stream(daemon, 0)

    async def scene(client: AsyncClient) -> None:
        async def read() -> None:
            async for _ in client.events(0, follow=True):
                pass

        reading = asyncio.create_task(read())
        await asyncio.to_thread(stream.greet)
        if way == "cancel":
            reading.cancel()
        else:
            await client.close()
        (end,) = await asyncio.gather(reading, return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError | NoAnswerError | None)
        assert await client.last_event() == 0

    try:
        played(daemon, scene)
    finally:
        stream.close()
    assert not [t for t in threading.enumerate() if t.name == "coalloc-requests"]
