"""The Python client for asyncio: the requests of `coalloc.Client`, awaited.

>>> from coalloc import AsyncClient
>>> async def main() -> None:
...     async with AsyncClient() as client:
...         job = (await client.submit(["./model", "input"], procs=64)).job
...         async for event in client.events(follow=True, job=job):
...             print(event.kind)

A client belongs to one event loop. Any number of its tasks may ask at the same time: each call
runs in a thread, as the same method of `Client`, over one connection that all calls share.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from coalloc.client.base import new_connection
from coalloc.client.client import Client, NoAnswerError, RefusedError
from coalloc.client.endpoint import PATIENCE_S, await_listener
from coalloc.wire.client import AnswerFrame
from coalloc.wire.shared_client import SharedConnection

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 64
"""For requests that are answered at once."""
LONG_THREADS = 10_000
"""For calls that may go on for days; a thread that waits costs next to nothing."""
IDLE_S = 2.0
"""A thread ends after this long without a call, seconds."""


def awaited(
    method: Callable[Concatenate[Client, P], T], *, is_long: bool = False
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method of `Client`, awaited."""

    @wraps(method)
    async def run(self: AsyncClient, /, *args: P.args, **fields: P.kwargs) -> T:
        return await self._run(lambda client: method(client, *args, **fields), is_long)

    return run


def iterated(
    method: Callable[Concatenate[Client, P], Generator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[T]]:
    """A method of `Client` whose values come one by one, as an asynchronous iterator."""

    @wraps(method)
    def iterate(self: AsyncClient, /, *args: P.args, **fields: P.kwargs) -> AsyncGenerator[T]:
        return self._iterate(lambda client: method(client, *args, **fields))

    return iterate


class DaemonThreads(Executor):
    """Runs calls in at most so many threads, which end when they are idle, or with the program.

    `concurrent.futures.ThreadPoolExecutor` lets the interpreter wait at its exit for every call
    that runs, and one that waits for a job may do so for days.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = self._left = 0
        """Threads there are, and calls that have not ended."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._calls.put(partial(_run, future, partial(fn, *args, **kwargs)))
        with self._lock:
            self._left += 1
            is_needed = self._threads < min(self._left, self._most)
            self._threads += is_needed
        if is_needed:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._left < self._threads:
                        self._threads -= 1
                        return
                continue
            call()
            del call  # what it has refers to is not kept while we wait
            with self._lock:
                self._left -= 1


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
        del future, call  # the error's frames would make a cycle with them


class CallConnection:
    """The requests of one call, over the connection that all calls share."""

    def __init__(self, shared: Callable[[], SharedConnection]) -> None:
        self._shared = shared
        self._connection: SharedConnection | None = None
        self._sent: set[str] = set()
        self._closed = threading.Event()

    def send(self, body: Mapping[str, Any]) -> str:
        if self._connection is None:
            self._connection = self._shared()  # which says so where all was closed
        if self._closed.is_set():
            raise NoAnswerError("the request was given up")
        request = self._connection.send(body)
        self._sent.add(request)
        if self._closed.is_set():
            self.close()
        return request

    def answer_to(self, request: str, *, timeout_s: float | None = None) -> AnswerFrame:
        assert self._connection is not None
        answer = self._connection.answer_to(request, timeout_s=timeout_s)
        self._sent.discard(request)
        return answer

    def close(self) -> None:
        """Send nothing more, and wait for no answer."""
        self._closed.set()
        if self._connection is not None:
            self._connection.forget(tuple(self._sent))


class AsyncClient:
    """An event loop's connection to the daemon; its parameters are those of `Client`."""

    Refused = RefusedError
    NoAnswer = NoAnswerError

    def __init__(
        self,
        endpoint: str | None = None,
        timeout_s: float = 10.0,
        *,
        publish_endpoint: str | None = None,
        config: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self._client = Client(
            endpoint, timeout_s, publish_endpoint=publish_endpoint, config=config, key=key
        )
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._threads = DaemonThreads(THREADS, "coalloc-ask")
        self._long_threads = DaemonThreads(LONG_THREADS, "coalloc-wait")
        self._calls: set[Client] = set()
        self._shared: SharedConnection | None = None
        self._session = object()
        """Calls of one that is closed open no connection any more."""
        self._opening = threading.Lock()

    @property
    def endpoint(self) -> str:
        return self._client.endpoint

    @property
    def timeout_s(self) -> float:
        """For one answer, seconds."""
        return self._client.timeout_s

    @property
    def publish_endpoint(self) -> str:
        return self._client.publish_endpoint

    ask = awaited(Client.ask)
    submit = awaited(Client.submit)
    send_submission = awaited(Client.send_submission)
    submit_many = iterated(Client.submit_many)
    submit_workflow = awaited(Client.submit_workflow)
    test_submit = awaited(Client.test_submit)
    test_submission = awaited(Client.test_submission)
    cancel = awaited(Client.cancel)
    hold = awaited(Client.hold)
    release = awaited(Client.release)
    update = awaited(Client.update)
    queue = awaited(Client.queue)
    whole_queue = awaited(Client.whole_queue)
    show = awaited(Client.show)
    shown = awaited(Client.shown)
    why = awaited(Client.why)
    explained = awaited(Client.explained)
    wait = awaited(Client.wait, is_long=True)
    nodes = awaited(Client.nodes)
    known_nodes = awaited(Client.known_nodes)
    plan = awaited(Client.plan)
    status = awaited(Client.status)
    last_event = awaited(Client.last_event)
    events = iterated(Client.events)

    priority = awaited(Client.priority)
    accuracy = awaited(Client.accuracy)
    account = iterated(Client.account)
    usage = iterated(Client.usage)

    set_priority = awaited(Client.set_priority)
    reserve = awaited(Client.reserve)
    unreserve = awaited(Client.unreserve)
    drain = awaited(Client.drain)
    resume = awaited(Client.resume)
    pause_rounds = awaited(Client.pause_rounds)
    resume_rounds = awaited(Client.resume_rounds)
    round_now = awaited(Client.round_now)
    snapshot = awaited(Client.snapshot)
    rules = awaited(Client.rules)
    backup = awaited(Client.backup)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, and end what still waits; a later request opens a new one."""
        if self._pid != os.getpid():
            self._begin()
        self._session = object()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()  # takes milliseconds; all threads may be waiting for its end
        for call in list(self._calls):
            call.give_up()

    def _connected(self, session: object) -> SharedConnection:
        """The connection, opened by the first call that needs it, unless we were closed since."""
        client = self._client
        with self._opening:
            shared = self._shared
            if shared is None and session is self._session:
                await_listener(client.endpoint, min(PATIENCE_S, client.timeout_s))
                self._shared = shared = new_connection(client, SharedConnection)
                if session is not self._session:
                    self._shared = None
                    shared.close()
            if shared is None or session is not self._session:
                raise NoAnswerError(f"the connection to {client.endpoint} was closed")
            return shared

    async def _run(self, request: Callable[[Client], T], is_long: bool) -> T:
        with self._call() as call:
            threads = self._long_threads if is_long else self._threads
            return await asyncio.get_running_loop().run_in_executor(threads, request, call)

    async def _iterate(self, values_of: Callable[[Client], Generator[T]]) -> AsyncGenerator[T]:
        loop, turn = asyncio.get_running_loop(), threading.Lock()

        def advance() -> list[T]:
            """The next value, alone; or nothing."""
            with turn:
                return list(islice(values, 1))

        def end() -> None:
            """Wait for the thread that is asking, and end."""
            with turn:
                values.close()

        with self._call() as call:
            values = values_of(call)
            try:
                while found := await loop.run_in_executor(self._long_threads, advance):
                    yield found[0]
            finally:
                call.give_up()
                await loop.run_in_executor(self._long_threads, end)

    @contextmanager
    def _call(self) -> Iterator[Client]:
        """A client for one call, given up when nobody waits for it any more."""
        if self._pid != os.getpid():  # the threads stayed in the process that was forked
            self._begin()
        call = self._client.over(CallConnection(partial(self._connected, self._session)))
        self._calls.add(call)
        try:
            yield call
        finally:
            self._calls.discard(call)
            call.give_up()
