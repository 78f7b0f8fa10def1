"""The Python client for asyncio: the requests of `coalloc.Client`, awaited.

>>> from coalloc import AsyncClient
>>> async def main() -> None:
...     async with AsyncClient() as client:
...         job = (await client.submit(["./model", "input"], procs=64)).job
...         async for event in client.events(follow=True, job=job):
...             print(event.kind)

A client belongs to one event loop. Any number of its tasks may ask at the same time, over one
connection.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Self, assert_never

from coalloc.client.base import BaseClient
from coalloc.client.endpoint import (
    LOOK_AGAIN_S,
    PATIENCE_S,
    NobodyListensError,
    is_listening,
)
from coalloc.client.steps import AsyncTransport, Hear, Receive, Send, Sleep, Step, Subscribe
from coalloc.wire.async_client import AsyncEventSubscriber, AsyncRequestConnection


class AsyncClient(BaseClient, AsyncTransport):
    """An event loop's connection to the daemon; see `BaseClient` for its parameters."""

    _asker: AsyncRequestConnection | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    async def perform(self, step: Step) -> Any:
        """Carry out one step of a request."""
        match step:
            case Send():
                return (await self._connected()).send(step.body)
            case Receive():
                return await (await self._connected()).answer_to(step.id, timeout_s=step.timeout_s)
            case Sleep():
                return await asyncio.sleep(step.seconds)
            case Subscribe():
                return AsyncEventSubscriber(self.publish_endpoint, step.topics, self._security)
            case Hear():
                assert isinstance(step.subscription, AsyncEventSubscriber)
                return await step.subscription.body(step.seconds)
        assert_never(step)

    async def _connected(self) -> AsyncRequestConnection:
        if self._asker is None:
            end = time.monotonic() + min(PATIENCE_S, self.timeout_s)
            while not is_listening(self.endpoint):
                if time.monotonic() >= end:
                    raise NobodyListensError(self.endpoint)
                await asyncio.sleep(LOOK_AGAIN_S)
        if self._asker is None:  # no other task has connected meanwhile
            self._asker = AsyncRequestConnection(
                self.endpoint, timeout_s=self.timeout_s, security=self._security
            )
        return self._asker
