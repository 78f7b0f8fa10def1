"""Program that drops clients of daemons that fail them.

Argument: endpoint, kind of failure and key of each daemon, as JSON. It says how far it came.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coalloc import AsyncClient, Client, Executor
from coalloc.client import async_client
from coalloc.wire.client import EventSubscriber, NoAnswerError

TIMEOUT_S = 0.03
LIMIT_S = 20.0


class Failing(NamedTuple):
    """A daemon that fails its clients."""

    endpoint: str
    kind: str
    key: str | None

    def client(self) -> Client:
        """A client of it."""
        return Client(self.endpoint, TIMEOUT_S, key=None if self.key is None else Path(self.key))

    def async_client(self) -> AsyncClient:
        """The same for asyncio."""
        return AsyncClient(
            self.endpoint, TIMEOUT_S, key=None if self.key is None else Path(self.key)
        )


def failed(client: Client) -> NoAnswerError:
    """The error of a request."""
    for _ in range(2):  # of one daemon, the first is answered
        try:
            client.ask("status")
        except NoAnswerError as error:
            return error
    raise AssertionError("was answered")


def deleted(daemon: Failing) -> None:
    """Dropped at once."""
    client = daemon.client()
    failed(client)
    del client


def in_cycle(daemon: Failing) -> None:
    """Left to the garbage collector, with its error."""
    client: Any = daemon.client()
    client.error, client.itself = failed(client), client
    del client
    gc.collect()


def in_thread(daemon: Failing) -> None:
    """Made and dropped in a thread, collected in this one."""
    thread = threading.Thread(target=in_cycle, args=(daemon,))
    thread.start()
    thread.join()
    gc.collect()


def in_fork(daemon: Failing) -> None:
    """Used by the child of a fork, too, and dropped in both."""
    client = daemon.client()
    failed(client)
    child = multiprocessing.get_context("fork").Process(target=forked, args=(client,))
    child.start()
    child.join(LIMIT_S)
    assert child.exitcode == 0, child.exitcode


def forked(client: Client) -> None:
    """Ask with the parent's client."""
    failed(client)
    del client
    gc.collect()


def interrupted(daemon: Failing) -> None:
    """Ended by SIGINT while it waits."""
    client = daemon.client()
    client.timeout_s = LIMIT_S
    with suppress(KeyboardInterrupt):  # which may come after the error as well
        signal.setitimer(signal.ITIMER_REAL, TIMEOUT_S)
        with suppress(NoAnswerError):
            while True:
                client.status()
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def subscribed(daemon: Failing) -> None:
    """A subscriber in a cycle."""
    watcher: Any = EventSubscriber(daemon.endpoint)
    watcher.itself = watcher
    next(watcher.messages(TIMEOUT_S), None)
    del watcher
    gc.collect()


def awaited(daemon: Failing) -> None:
    """An asynchronous client in a cycle, never closed, with a task that nobody awaits."""

    async def main() -> None:
        client: Any = daemon.async_client()
        client.itself = client
        client.task = asyncio.create_task(client.wait("1"))
        client.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        for _ in range(2):
            with suppress(NoAnswerError):
                await client.ask("status")

    asyncio.run(main())
    gc.collect()


WAYS: tuple[Callable[[Failing], None], ...] = (
    deleted,
    in_cycle,
    in_thread,
    in_fork,
    interrupted,
    subscribed,
    awaited,
)


def kept(daemon: Failing) -> list[Any]:
    """What is still there when the program ends."""
    client, waiting = daemon.client(), daemon.async_client()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # the task may fail at once; nobody asks it
    task = loop.create_task(waiting.wait("1"))
    loop.run_until_complete(asyncio.sleep(0))
    found = [client, failed(client), waiting, loop, task]
    if daemon.kind == "answers once":
        patient = partial(Client, daemon.endpoint, LIMIT_S)
        executor = Executor(
            client=patient, folder=Path(daemon.endpoint.removeprefix("ipc://")).parent
        )
        return [*found, executor, executor.run(["true"])]
    return found


def main(daemons: list[Failing]) -> None:
    async_client.IDLE_S = TIMEOUT_S
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for way in WAYS:
        for daemon in daemons:
            print(way.__name__, daemon.kind, flush=True)
            way(daemon)
    gc.collect()
    end = time.monotonic() + LIMIT_S
    while threading.active_count() > 1:
        assert time.monotonic() < end, threading.enumerate()
        time.sleep(0.01)
        gc.collect()  # a thread that just ended may have held the last of a cycle
    files = len(os.listdir("/proc/self/fd"))
    assert files < 40, files
    global _kept
    _kept = [kept(daemon) for daemon in daemons]
    print("ends", flush=True)


_kept: list[Any] = []

if __name__ == "__main__":
    main([Failing(*row) for row in json.loads(sys.argv[1])])
