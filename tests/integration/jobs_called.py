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


def after(path: str, makes: str = "") -> str:
    """Make a file, and wait for one."""
    if makes:
        Path(makes).touch()
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


def nap(seconds: float, mark: str = "") -> int:
    """Sleep, and leave a mark with the id of this process; a second call by it adds a line."""
    if mark:
        with open(mark, "a") as file:
            file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return os.getpid()


def shout(number: int) -> None:
    """Print in three ways, and raise if the number is even."""
    print(f"printed {number}")
    os.write(2, f"written {number}\n".encode())
    os.system(f"echo echoed {number}")
    if number % 2 == 0:
        raise ValueError(number)


def leave(code: int) -> None:
    raise SystemExit(code)


def die() -> None:
    os._exit(9)
