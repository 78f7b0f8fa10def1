"""Says that kernels are being compiled, and for how long, on terminals and into pipes alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from coalloc.cli.command import note

FIRST_S, EVERY_S = 2.0, 10.0
"""After so long, say that it compiles, and after so long again, seconds."""


class Stopwatch:
    """Seconds that compiling took, once it is over."""

    seconds = 0.0


@contextmanager
def compiling() -> Iterator[Stopwatch]:
    """Say how long the block has been compiling, if it takes longer than a cache does."""
    began, over, watch = time.monotonic(), threading.Event(), Stopwatch()

    def say() -> None:
        if over.wait(FIRST_S):
            return
        note("compiling, once for this machine and version")
        while not over.wait(EVERY_S):
            note(f"compiling, {time.monotonic() - began:.0f} s so far")

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
        watch.seconds = time.monotonic() - began
