"""A bar that shows how far a command has come; lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 10.0
"""Between two lines."""

Report = Callable[[str, int, int], None]
"""Receives what is being done, how many steps are done, and of how many."""


def silent(label: str, done: int, total: int) -> None:
    """Report to nobody."""


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Report]:
    """Show a bar on a terminal, elsewhere a line now and then."""
    if quiet or not sys.stderr.isatty():
        yield silent if quiet else _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:>32}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        # What runs first after an installation compiles the kernel, which takes a while.
        task = bar.add_task("preparing", total=None)
        yield lambda label, done, total: bar.update(
            task, description=label, completed=done, total=total
        )


def _lines() -> Report:
    told = [time.monotonic()]

    def tell(label: str, done: int, total: int) -> None:
        if time.monotonic() - told[-1] >= EVERY_S:
            told[:] = [time.monotonic()]
            print(f"{label}: {done} of {total}", file=sys.stderr, flush=True)

    return tell
