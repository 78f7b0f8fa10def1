"""The fork server: a warm process of the launcher's that forks a runner for each claim.

Imports the standard library only, as the runners do.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Protocol

from coalloc.adapters.runner.status import FORK_SERVER_NAME, PAGE, RUNNER_NAME

ORDERS_FD, LOCK_FD = 0, 1


class Runs(Protocol):
    """Made of a part's folder, the descriptors of its orders and its lock."""

    def run(self) -> None:
        """Carry the part to its end and record it."""


def named(name: str) -> None:
    """Give this process the name that `ps` and the reader of loads know it by."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def serve(socket_fd: int, runner: Callable[[str, int, int], Runs]) -> None:
    """Fork a runner for every folder that comes over this socket, until it is closed.

    Runners are reaped here, so that their CPU time stays with this process's.
    """
    sock = socket.socket(fileno=socket_fd)
    named(FORK_SERVER_NAME)
    os.chdir("/")
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    gc.freeze()
    while True:
        for fd, _ in poller.poll():
            if fd == wake_read:
                os.read(wake_read, 4096)
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
                continue
            folder, fds, _, _ = socket.recv_fds(sock, PAGE, 2)
            if not folder:
                return
            if os.fork() == 0:
                try:
                    sock.close()
                    os.setsid()
                    named(RUNNER_NAME)
                    for passed in fds:
                        os.set_inheritable(passed, False)
                    runner(os.fsdecode(folder), fds[ORDERS_FD], fds[LOCK_FD]).run()
                finally:
                    os._exit(0)
            for passed in fds:
                os.close(passed)
