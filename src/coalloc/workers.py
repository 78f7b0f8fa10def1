"""Worker processes for long computations: they end with this process, whatever ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Any

from coalloc.model.errors import InputError

CONTEXT = get_context("spawn")
KILLED = "a process was killed, perhaps for its memory; to go on, give the command again"


@contextmanager
def workers(
    count: int, option: str, begin: Callable[..., None] | None = None, *given: Any
) -> Iterator[Executor]:
    """So many, each of which first calls `begin` with what is given.

    Raises `InputError`, which names the option that asked for them, where one is killed.
    """
    is_main = threading.current_thread() is threading.main_thread()
    former = is_main and signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with ProcessPoolExecutor(count, CONTEXT, _begin, (begin, given)) as pool:
            try:
                yield pool
            except BaseException:
                for child in active_children():
                    child.terminate()
                raise
    except BrokenExecutor:
        raise InputError(option, KILLED) from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, former)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Interrupts come later; processes that start meanwhile leave them to this one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def _begin(begin: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*given)


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)
