"""A local user of Grid Engine cells who knows nothing of us, and always has jobs waiting there."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pwd import struct_passwd

from tests.testbeds.gridengine import Cell, GridEngineTestbed


def _look(cell: Cell, account: struct_passwd, waiting: int, draw: random.Random) -> None:
    """Have so many of his jobs wait, each of one to three slots, of half a second to a second."""
    there = sum(job.owner == account.pw_name for job in cell.status().waiting)
    for _ in range(waiting - there):
        slots, seconds = draw.choice((1, 2, 3)), draw.uniform(0.5, 1.0)
        words = ["-terse", "-S", "/bin/sh", "-wd", "/", "-o", "/dev/null", "-j", "y", "-N", "local"]
        words += ["-l", "h_rt=180", "-q", "main"]
        words += ["-pe", "smp", str(slots)] if slots > 1 else []
        cell.commands.run("qsub", *words, text=f"sleep {seconds:.2f}\n", account=account)


@contextlib.contextmanager
def background_user(
    bed: GridEngineTestbed, account: struct_passwd, *, waiting: int = 3, every_s: float = 0.3
) -> Iterator[None]:
    """Keep so many jobs waiting in each cell; those that are left are deleted in the end.

    Parameters
    ----------
    account : struct_passwd
        Whose jobs they are.
    every_s : float
        Between two looks, seconds.
    """
    draw, over = random.Random(1), threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not over.wait(every_s):
                for cell in bed:
                    _look(cell, account, waiting, draw)
        except BaseException as error:
            errors.append(error)

    for cell in bed:
        _look(cell, account, waiting + 4, draw)  # more than there are slots for
    thread = threading.Thread(target=work, name="background user")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for cell in bed:
            cell.delete_all()
    if errors:
        raise errors[0]
