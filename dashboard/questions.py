"""Questions about one job, asked when a browser wants to know: one at a time, over one connection.

The same question of several browsers is asked once, and its answer is good for some seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from coalloc.client.client import Client
from coalloc.wire.answers import Event, Why
from coalloc.wire.client import NoAnswerError
from coalloc.wire.job_rows import JobDetails

T = TypeVar("T")

GOOD_FOR_S = 3.0
UNDER_WAY = 50
"""Different questions at a time; more are refused."""
KEPT = 500


class BusyError(Exception):
    """Too many questions are under way."""


class Questions:
    """Asks the daemon for browsers.

    `connect` opens a client in the thread that asks, at the first question.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None
        self._thread = ThreadPoolExecutor(1, "dashboard-questions")
        self._answers: dict[tuple[str, str], tuple[float, asyncio.Future[Any]]] = {}

    async def show(self, job: str) -> JobDetails:
        return await self._answer("show", job, lambda client: client.show(job))

    async def why(self, job: str) -> Why:
        return await self._answer("why", job, lambda client: client.why(job))

    async def events(self, job: str) -> tuple[Event, ...]:
        return await self._answer("events", job, lambda client: tuple(client.events(job=job)))

    async def _answer(self, kind: str, job: str, ask: Callable[[Client], T]) -> T:
        now, key = time.monotonic(), (kind, job)
        until, future = self._answers.get(key, (0.0, None))
        if future is None or (future.done() and now >= until):
            if sum(not one.done() for _, one in self._answers.values()) >= UNDER_WAY:
                raise BusyError("too many questions at once; ask again in a moment")
            while len(self._answers) >= KEPT:
                del self._answers[next(iter(self._answers))]
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._thread, self._ask, ask)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._answers.pop(key, None)
            self._answers[key] = now + GOOD_FOR_S, future
        # A browser that goes away takes the question from nobody else.
        answer: T = await asyncio.shield(future)
        return answer

    def _ask(self, ask: Callable[[Client], T]) -> T:
        if self._client is None:
            self._client = self._connect()
        try:
            return ask(self._client)
        except NoAnswerError:
            self._client.close()
            self._client = None
            raise

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
