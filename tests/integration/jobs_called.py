"""Functions that tests run as jobs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def size_and_rank() -> tuple[int, int]:
    return int(os.environ["COALLOC_SIZE"]), int(os.environ["COALLOC_RANK"])


def square(value: int) -> int:
    return value * value


def odd_only(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"{value} is even")
    return value


def after(path: str) -> str:
    """Wait for a file."""
    end = time.monotonic() + 60.0
    while not Path(path).exists():
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.02)
    return path


def tell_parent_and_stay(path: str) -> None:
    """Leave the id of the process that looks after this one, and wait to be ended."""
    written = Path(f"{path}.part")
    written.write_text(str(os.getppid()))
    written.rename(path)
    signal.pause()


def die() -> None:
    os._exit(9)
