"""Has all kernels compiled that policies ask for, the most wanted first.

``python -m coalloc.daemon.solver.warming`` fills the cache, and ends; ``coallocd --warm`` fills
the one that the configured daemon uses.

Notes
-----
A kernel is compiled by solving a tiny case (`coalloc.policies.warming`). Where cores are idle,
children take cases from the same list, in the order of need; in the end this process loads what
they have compiled from the cache.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from coalloc.daemon.solver.answer import explained, told
from coalloc.daemon.solver.frames import Request
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.warming import CASES, EVEN, warmed

LOOK_S = 0.1
"""For how long the cores are looked at, s."""
TELL_S = 5.0
"""Between two lines that say how far it is, where there is no terminal, s."""
PR_SET_PDEATHSIG = 1

OnProgress = Callable[[int, int], None]
"""Told how many of how many cases are done."""


def warm(on_progress: OnProgress | None = None) -> list[str]:
    """Compile the kernels; returns what failed, one line each."""
    claims, filling = os.pipe()
    os.write(filling, bytes(range(len(CASES))))
    os.close(filling)
    children = [_child(claims) for _ in range(min(_idle_cores(), len(CASES)) - 1)]
    failures: dict[int, str] = {}

    def take(number: int) -> None:
        failures[number] = warmed(CASES[number])
        if on_progress is not None:
            on_progress(len(failures), len(CASES) + 1)

    while claim := os.read(claims, 1):
        take(claim[0])
    os.close(claims)
    for child in children:
        os.waitpid(child, 0)
    for number in range(len(CASES)):
        if number not in failures:
            take(number)
    return [failure for failure in (*failures.values(), _explained()) if failure]


def _idle_cores() -> int:
    """Cores that nothing uses now; the load average would count an install that has just ended."""
    busy = psutil.cpu_percent(interval=LOOK_S)
    return round((os.cpu_count() or 1) * (1.0 - busy / 100.0))


def _child(claims: int) -> int:
    """Fork a child that takes cases; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    with suppress(BaseException):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        while claim := os.read(claims, 1):
            warmed(CASES[claim[0]])
    os._exit(0)


def _explained() -> str:
    try:
        request = Request(explain="1", soft_at=time.monotonic())
        explained(read_snapshot(EVEN), b'{"policy": "easy"}', request)
    except Exception as error:
        return f"explain: {told(error)}"
    return ""


def main(arguments: Sequence[str] = ()) -> int:
    """Fill the cache, and show how far it is: at each step on a terminal, else now and then."""
    began = told = time.monotonic()

    def show(done: int, cases: int) -> None:
        nonlocal told
        if sys.stderr.isatty():
            print(f"\rcompiling: {done} of {cases} steps", end="", file=sys.stderr, flush=True)
        elif time.monotonic() > told + TELL_S:
            told = time.monotonic()
            print(f"compiling: {done} of {cases} steps", file=sys.stderr, flush=True)

    failures = warm(show)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    print(f"warm after {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
