"""Orders to what holds a part: one in each line, and the lease that they renew.

``go TIME``, ``renew``, ``limit SECONDS`` and ``abort - TEXT`` come to both kinds of holders,
`runner.batch.supervisor` and `runner.runner`, and so does ``stream``, on which they call the
executor (`runner.streams`); the first also takes ``arrange`` and ``hasten``, the second, on nodes,
``cancel SIGNAL GRACE`` and ``finish``.
Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from coalloc.adapters.runner.status import PAGE

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import RunnerSpec

MOST_AHEAD_S = 10.0
"""An order to go at a time is obeyed at most so much later, whatever the clock is, seconds."""


class OrderLoop:
    """Waits for orders, signals and deadlines of one part; reading `orders_fd` does not block."""

    spec: RunnerSpec
    poller: select.poll
    stop: Callable[[str, str], None]
    """End what runs, for this reason and with this detail; the first reason stays."""
    _start_if_ready: Callable[[], None]
    """Pass the point of no return, if that was ordered and everything is there."""
    _take: Callable[[int], None]
    """Read another descriptor of the poller's."""

    def __init__(self, orders_fd: int) -> None:
        self.orders_fd, self.wake_fd = orders_fd, -1
        self.orders = b""
        self.go_asked = self.is_started = False
        self.lease_end = self.go_due = float("inf")

    def _poll(self, *fds: int) -> None:
        """Wait for these descriptors from now on, beside orders and signals."""
        self.poller = select.poll()
        for fd in (self.orders_fd, self.wake_fd, *fds):
            self.poller.register(fd, select.POLLIN)

    def _renew(self) -> None:
        self.lease_end = time.monotonic() + self.spec["lease_s"]

    def _wait(self, *deadlines: float) -> None:
        """Wait for the first deadline or for something to read, and take that in."""
        due = min(self.lease_end, self.go_due, *deadlines)
        wait = None if due == float("inf") else max(0.0, (due - time.monotonic()) * 1e3 + 1.0)
        for fd, _ in self.poller.poll(wait):
            if time.monotonic() >= self.lease_end:
                break  # an order that comes too late is none
            if fd == self.orders_fd:
                self._take_orders()
            elif fd == self.wake_fd:
                os.read(fd, PAGE)
            else:
                self._take(fd)
        self._look_at_go()

    def _take_orders(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._obey(os.read(self.orders_fd, PAGE))

    def _obey(self, chunk: bytes) -> None:
        self.orders += chunk
        *lines, self.orders = self.orders.split(b"\n")
        for line in lines:
            self._obey_one(line.decode(errors="replace").split(" ", 2))

    def _obey_one(self, words: list[str]) -> None:
        if words[0] == "go":
            ahead_s = float(words[1]) - time.time() if words[1:] else 0.0
            self.go_due = time.monotonic() + max(0.0, min(ahead_s, MOST_AHEAD_S))
            self._look_at_go()
        elif words[0] == "renew" and not self.go_asked:
            self._renew()
        elif words[0] == "limit":
            self._limit(float(words[1]))
        elif words[0] == "abort":
            self.stop("aborted", words[2] if len(words) > 2 else "")

    def _look_at_go(self) -> None:
        if time.monotonic() >= self.go_due:
            self.go_due = float("inf")
            self.go_asked = True
            self._start_if_ready()

    def _limit(self, limit_s: float) -> None:
        self.spec["time_limit_s"] = limit_s

    def _look_at_lease(self, now: float) -> None:
        if now >= self.lease_end:
            self.stop("expired", f"not renewed for {self.spec['lease_s']:g} s")


def wake_on_signals(orders_fd: int, on_term: Callable[[], None]) -> int:
    """Take signals in as something to poll; returns its descriptor, and none blocks any more."""
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write, orders_fd):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: on_term())
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    return wake_read
