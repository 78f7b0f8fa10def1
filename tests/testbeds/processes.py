"""What the beds of batch systems have in common: ports, daemons, orphans, a clean end."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from coalloc.adapters.runner.status import descendants

SBIN = "/usr/sbin"
PORTS = range(20000, 32000)
SHARES = 4
UP_LIMIT_S = 90.0
PR_SET_CHILD_SUBREAPER = 36


class BedError(Exception):
    """The clusters do not come up; the message says why."""


class Daemons(Protocol):
    """Clusters that run."""

    def start(self) -> None:
        """Bring everything up, and wait until it takes jobs."""

    def stop(self) -> None:
        """End every daemon, and every process that any of them left."""


Bed = TypeVar("Bed", bound=Daemons)


def absent(programs: Iterable[str], packages: str) -> str:
    """Programs that are not installed, and how to install them; empty: nothing."""
    path = os.pathsep.join([os.environ.get("PATH", ""), SBIN])
    names = [name for name in programs if shutil.which(name, path=path) is None]
    return f"{', '.join(names)} not found; as root: apt-get install {packages}" if names else ""


@contextlib.contextmanager
def bed_folder(name: str, *, keep: bool) -> Iterator[Path]:
    """A folder for a while; orphans of what runs in it become this process's children.

    Parameters
    ----------
    keep : bool
        Whether the folder with the logs stays.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A socket's path holds 107 bytes, and everybody's jobs must reach the socket.
    root = Path(tempfile.mkdtemp(prefix=f"co-{name}-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def up(running: Bed) -> Iterator[Bed]:
    """Clusters that run for a while."""
    try:
        running.start()
        yield running
    finally:
        running.stop()


def wait_until(
    holds: Callable[[], bool],
    what: str,
    logs: Callable[[], str],
    limit_s: float = UP_LIMIT_S,
) -> None:
    """Wait for something that a batch system offers no event for.

    Raises
    ------
    BedError
    """
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise BedError(f"not within {limit_s:g} s: {what}\n{logs()}")
        time.sleep(0.02)


def free_ports(count: int, taken: set[int]) -> int:
    """The first of so many consecutive ports that nobody listens on.

    Raises
    ------
    BedError
    """
    # Those who run tests side by side choose from different ports.
    share = len(PORTS) // SHARES
    begin = PORTS.start + share * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % SHARES)
    for _ in range(200):
        first = random.randrange(begin, begin + share - count)
        wanted = range(first, first + count)
        if taken.isdisjoint(wanted) and all(_is_free(port) for port in wanted):
            taken.update(wanted)
            return first
    raise BedError(f"no {count} consecutive free ports from {begin} on")


def wait_port(port: int, process: subprocess.Popen[bytes] | None, what: str) -> None:
    """Wait until somebody listens on a port of loopback.

    Raises
    ------
    BedError
    """
    end = time.monotonic() + UP_LIMIT_S
    while True:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process is not None and process.poll() is not None:
            raise BedError(f"{what} ended with exit code {process.returncode}")
        if time.monotonic() > end:
            raise BedError(f"{what} does not listen on port {port}")
        time.sleep(0.01)


def wait_gone(pids: Iterable[int]) -> None:
    """Wait until processes that were killed have ended."""
    for pid in pids:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            try:
                select.select([fd], [], [], 1.0)
            finally:
                os.close(fd)


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def reap_dead(but: set[int], command: str) -> None:
    """Collect what ended before, having come to us as an orphan: nobody else would."""
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for pid in map(int, path.read_text().split()):
            with contextlib.suppress(OSError):
                comm, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
                if pid not in but and rest.split()[0] == "Z" and f"({command}" in comm:
                    os.waitpid(pid, os.WNOHANG)


def _is_marked(pid: int, mark: str) -> bool:
    """Whether a process's environment or open files name this; a slurmstepd's hold only a log."""
    try:
        if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
            return True
        paths = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for path in paths:
        with contextlib.suppress(OSError):
            if mark in os.readlink(path):
                return True
    return False


def marked(mark: str) -> list[int]:
    """Processes below this one that are marked so, and all below them."""
    found: dict[int, None] = {}
    for pid in descendants(os.getpid()):
        if _is_marked(pid, mark):
            found |= dict.fromkeys([pid, *descendants(pid)])
    return list(found)


def by_hand(
    parser: argparse.ArgumentParser,
    make: Callable[[argparse.Namespace], AbstractContextManager[Bed]],
    steering: Callable[[Bed], Iterable[str]],
) -> int:
    """Run what the arguments ask for until interrupted; the exit code."""
    parser.add_argument("--once", action="store_true", help="up, and down again at once")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    args = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with make(args) as running:
            print(f"up after {time.monotonic() - began:.2f} s", flush=True)
            for line in steering(running):
                print(f"export {line}")
            sys.stdout.flush()
            if not args.once:
                with contextlib.suppress(KeyboardInterrupt):
                    signal.pause()
            began = time.monotonic()
    except BedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"down after {time.monotonic() - began:.2f} s")
    return 0
