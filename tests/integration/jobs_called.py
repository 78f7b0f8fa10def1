"""Functions that tests run as jobs."""

from __future__ import annotations

import os
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


def die() -> None:
    os._exit(9)
