"""Signs of a running service: messages to its manager, see sd_notify(3), and its name."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

BEFORE_JOBS = -20
"""Niceness of daemon and executors beside the jobs of others."""
READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def notify(*assignments: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send assignments such as ``READY=1`` or ``STATUS=...`` in one message; whether it was sent.

    It never raises, for no service should fail over it.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    text = "\n".join(" ".join(assignment.splitlines()) for assignment in assignments)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            # "@" stands for the zero byte of an abstract address
            sender.connect(f"\0{address[1:]}" if address[0] == "@" else address)
            sender.sendall(text.encode(errors="replace"))
    except OSError:
        return False
    return True


def status(text: str) -> str:
    """The assignment that ``systemctl status`` shows."""
    return f"STATUS={text}"


def reloading() -> tuple[str, str]:
    """The assignments for the begin of a reload; `READY` ends it."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"


def watchdog_interval_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """Interval between two `WATCHDOG`, seconds: half of what the manager allows; None: none."""
    usec = environ.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or int(usec) == 0:
        return None
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(usec) / 2e6


def set_process_name(name: str) -> None:
    """Name this process for ``ps`` and ``top``; the kernel keeps 15 bytes.

    The local adapter takes load below processes named coalloc... for our own.
    """
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def go_before_jobs() -> None:
    """Be served before the processes of jobs, however many these are, where that is permitted."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, BEFORE_JOBS)
    keep_place()


def keep_place() -> None:
    """Have this process's niceness count among other sessions, where it leads one.

    Linux' scheduler may group sessions (``sched_autogroup``); niceness then only counts within one.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if nice < 0 and os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))
