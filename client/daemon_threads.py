"""A pool of threads that keep neither a program from ending nor themselves for ever.

`concurrent.futures.ThreadPoolExecutor` lets the interpreter wait at its exit for every call that
runs, and one that waits for a job may do so for days.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S = 2.0
"""A thread ends after this long without a call, seconds."""


class DaemonThreads(Executor):
    """Runs calls in at most so many threads."""

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
