"""The client's end of the wire in an asyncio loop: a DEALER for many tasks, and a subscriber."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import deque
from collections.abc import Mapping
from typing import Any

import zmq

from coalloc.wire.client import (
    MAX_BYTES,
    AnswerFrame,
    NoAnswerError,
    Silence,
    read_answer,
    read_publication,
)
from coalloc.wire.curve import CurveClient
from coalloc.wire.frames import PROTOCOL, encode
from coalloc.wire.sockets import AsyncSocket, new_context

QUEUED = 100_000
"""Messages that may lie in a queue."""


class AsyncRequestConnection:
    """One connection to the daemon; made in the loop in which it is used.

    Parameters
    ----------
    endpoint : str
        Such as ``ipc:///run/coalloc/coalloc.sock``.
    timeout_s : float
        For one answer, seconds.
    security : CurveClient, optional
        The key to connect with, and the daemon's.
    """

    def __init__(
        self, endpoint: str, *, timeout_s: float = 10.0, security: CurveClient | None = None
    ) -> None:
        self.endpoint, self.timeout_s = endpoint, timeout_s
        self._silence = Silence(endpoint, is_keyed=security is not None)
        self._refused: NoAnswerError | None = None
        self._waiting: dict[str, asyncio.Future[AnswerFrame]] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._context = new_context()
        self._socket = AsyncSocket(
            self._context,
            zmq.DEALER,
            self._take,
            max_bytes=MAX_BYTES,
            hwm=QUEUED,
            receive_hwm=QUEUED,
            security=security,
            on_handshake=self._handshaken,
        )
        self._socket.connect(endpoint)
        self._socket.attach(self._loop)

    def send(self, body: Mapping[str, Any]) -> str:
        """Send a request; returns its id for `answer_to`."""
        request = f"{os.getpid()}-{next(self._numbers)}"
        if not self._socket.send([encode({**body, "id": request, "protocol": PROTOCOL})]):
            raise NoAnswerError(f"no daemon at {self.endpoint}")
        self._waiting[request] = self._loop.create_future()
        if self._refused is not None:
            self._fail(self._refused)
        return request

    async def answer_to(self, request: str, *, timeout_s: float | None = None) -> AnswerFrame:
        """Wait for the answer to a request that was sent.

        Raises
        ------
        NoAnswerError
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        future = self._waiting.get(request)
        if future is None:
            raise NoAnswerError(f"the connection to {self.endpoint} was closed meanwhile")
        await asyncio.wait({future}, timeout=limit)
        if not future.done():
            raise self._silence.error(limit)
        del self._waiting[request]
        return future.result()

    def close(self) -> None:
        """Close the connection; what still waits for an answer gets none."""
        self._fail(NoAnswerError(f"the connection to {self.endpoint} was closed"))
        self._socket.close(linger_ms=0)
        self._context.term()

    def _take(self, frames: list[bytes]) -> None:
        try:
            answer = read_answer(frames, self.endpoint)
        except NoAnswerError as error:
            # whose answer it was cannot be known
            self._fail(error)
            return
        future = self._waiting.get(answer.id)
        if future is not None and not future.done():
            future.set_result(answer)

    def _handshaken(self, outcome: str) -> None:
        self._refused = None
        try:
            self._silence.handshaken(outcome)
        except NoAnswerError as error:
            self._refused = error
            self._fail(error)

    def _fail(self, error: NoAnswerError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody need ask


class AsyncEventSubscriber:
    """Subscribes to the daemon's publications.

    Parameters
    ----------
    topics : tuple of str
        Prefixes, such as ``event.``.
    """

    def __init__(
        self, endpoint: str, topics: tuple[str, ...], security: CurveClient | None = None
    ) -> None:
        self._heard: deque[list[bytes]] = deque()
        self._news = asyncio.Event()
        self._context = new_context()
        self._socket = AsyncSocket(
            self._context,
            zmq.SUB,
            self._take,
            max_bytes=MAX_BYTES,
            receive_hwm=QUEUED,
            security=security,
        )
        for topic in topics:
            self._socket.socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self._socket.connect(endpoint)
        self._socket.attach(asyncio.get_running_loop())

    async def body(self, timeout_s: float) -> dict[str, Any] | None:
        """The next publication; None where none comes in time.

        Raises
        ------
        NoAnswerError
            It is unreadable.
        """
        if not self._heard:
            self._news.clear()
            try:
                # Not wait_for: in Python 3.11 it loses a cancellation that comes with the news.
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return None
        return read_publication(self._heard.popleft())[1]

    def close(self) -> None:
        """Close the subscription."""
        self._socket.close(linger_ms=0)
        self._context.term()

    def _take(self, frames: list[bytes]) -> None:
        if len(self._heard) < QUEUED:  # beyond, a gap is seen, as with what ZeroMQ drops
            self._heard.append(frames)
        self._news.set()
