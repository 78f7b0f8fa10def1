"""The Python client: submit jobs, ask about them, watch what happens.

>>> from coalloc import Client
>>> with Client() as client:  # doctest: +SKIP
...     job = client.submit(["./model", "input"], procs=64, time_limit=3600).job
...     print(client.wait(job))

A client belongs to one thread. Its requests are those of docs/PROTOCOL.md, and are written in
`coalloc.client.job_requests` and its neighbours; `coalloc.client.async_client` awaits the same.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self, assert_never

from coalloc.client.base import BaseClient
from coalloc.client.endpoint import PATIENCE_S, await_listener
from coalloc.client.steps import BlockingTransport, Hear, Receive, Send, Sleep, Step, Subscribe
from coalloc.client.submission import submission
from coalloc.wire.client import EventSubscriber, NoAnswerError, RefusedError, RequestConnection

__all__ = ["Client", "NoAnswerError", "RefusedError", "submission"]


class Client(BaseClient, BlockingTransport):
    """One thread's connection to the daemon; see `BaseClient` for its parameters."""

    _asker: RequestConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    def perform(self, step: Step) -> Any:
        """Carry out one step of a request."""
        match step:
            case Send():
                return self._connected().send(step.body)
            case Receive():
                return self._connected().answer_to(step.id, timeout_s=step.timeout_s)
            case Sleep():
                return time.sleep(step.seconds)
            case Subscribe():
                return EventSubscriber(self.publish_endpoint, step.topics, self._security)
            case Hear():
                assert isinstance(step.subscription, EventSubscriber)
                _, body = next(step.subscription.messages(step.seconds), (None, None))
                return body
        assert_never(step)

    def _connected(self) -> RequestConnection:
        if self._asker is None:
            await_listener(self.endpoint, min(PATIENCE_S, self.timeout_s))
            self._asker = RequestConnection(
                self.endpoint, timeout_s=self.timeout_s, security=self._security
            )
        return self._asker
