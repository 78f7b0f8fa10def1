"""The status file: written by a part's runner, read by its launcher.

Imports the standard library only: the runner loads it without the rest of the package.

Notes
-----
A status file has one slot for each step of a part, written once and checked by a CRC. The file
is written in full before the part is ready, and then only overwritten in place: a full disk
cannot keep an exit code from being recorded. START is on disk before anything is started: a
part whose START is empty never ran, whatever crashed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from binascii import crc32
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from coalloc.adapters.runner import durable
from coalloc.adapters.runner.once import HOLDS

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import RunnerSpec

PAGE = 4096
READY, START, RUN, END = range(4)
MEMBER = 1024
"""Bytes of each member's slot, behind those of the steps."""
MOST_LETTERS = 100
"""Of what is written of its end in words: a slot has room for them in any script."""
NO_RUNNER = 203
"""Exit code of a wrapper that has not reached its part's runner."""
SIGNAL_EXIT = 128
"""A shell adds the signal's number."""
FORK_SERVER_NAME, RUNNER_NAME = "coalloc-nest", "coalloc-part"


def encoded(record: dict[str, Any]) -> bytes:
    """A record as it stands in a slot."""
    body = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(body), body)


def decoded(raw: bytes) -> dict[str, Any] | None:
    """The record in a slot; None where there is none, or not yet all of it."""
    line, newline, _ = raw.partition(b"\n")
    if not newline or line[:8] != b"%08x" % crc32(line[9:]):
        return None
    record = json.loads(line[9:])
    return record if isinstance(record, dict) else None


def status_size(procs: int, members: int = 0) -> int:
    """Bytes of a status file; the last slot of a step has room for every exit code."""
    return PAGE * (END + 1) + 8 * procs + MEMBER * members


def member_end(raw: bytes, place: int) -> dict[str, Any] | None:
    """The end of a member, of one process, in the content of a status file."""
    at = status_size(1, place)
    return decoded(raw[at : at + MEMBER]) if raw[at : at + 1] > b"\0" else None


def was_signalled(end: dict[str, Any]) -> bool:
    """Tell if a signal may have ended a node's processes or its wrapper.

    A batch system that ends a job signals the wrapper and the processes alike, and which of them
    is gone first is chance. A shell whose child was killed exits with 128 or more.
    """
    if end["reason"] in {"signalled", "exited"}:
        return any(code is not None and (code < 0 or code > SIGNAL_EXIT) for code in end["codes"])
    return bool(end["reason"] == "cancelled")


def verdict(spec: RunnerSpec, codes: Sequence[int | None]) -> tuple[str, str]:
    """Reason and detail of an end by the ranks' exit codes: of a signal, its negative number."""
    signals = (code for code in codes if code is not None and code < 0)
    bad = next(signals, 0) or next(filter(None, codes), 0)
    if not bad:
        return "exited", ""
    rank = spec["ranks"][codes.index(bad)]
    who = "its command" if spec.get("once") and HOLDS not in rank else f"rank {rank['rank']}"
    if bad > 0:
        return "exited", f"{who} exited with {bad}"
    name = signal.Signals(-bad).name if -bad in set(signal.Signals) else str(-bad)
    return "signalled", f"{who} was killed by {name}"


class StatusFile:
    """A part's status, as its runner writes it; the launcher hears of it by FIFO ``news``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.fd = -1

    def preallocate(self, procs: int, behind: int = 0) -> None:
        """Make the file such that writing into it needs no more space.

        `behind`: members that run behind its own, which has a slot among them.
        """
        self.open()
        size = status_size(procs, behind and behind + 1)
        if os.fstat(self.fd).st_size < size:  # else it was made ahead
            os.pwrite(self.fd, b"\0" * size, 0)
            os.fsync(self.fd)

    def synchronise(self) -> None:
        """Have the file keep its name, and its folder's, whatever happens."""
        for folder in (self.folder, os.path.dirname(self.folder)):
            durable.synchronise(folder)

    def open(self) -> None:
        if self.fd < 0:
            self.fd = os.open(f"{self.folder}/status", os.O_RDWR | os.O_CREAT, 0o600)

    def read(self, slot: int) -> dict[str, Any] | None:
        size = PAGE if slot < END else 1 << 24
        return decoded(os.pread(self.fd, size, slot * PAGE))

    def write(self, slot: int, record: dict[str, Any], durable: bool = False) -> None:
        """Write a slot. Raises `OSError`."""
        self.open()
        os.pwrite(self.fd, encoded(record), slot * PAGE)
        if durable:
            os.fdatasync(self.fd)

    def write_member(self, place: int, end: dict[str, Any]) -> None:
        """Write the end of a member. Raises `OSError`."""
        raw = encoded({**end, "detail": end["detail"][:MOST_LETTERS]})
        os.pwrite(self.fd, raw[:MEMBER], status_size(1, place))

    def record(self, slot: int, record: dict[str, Any], durable: bool = False) -> bool:
        """Write a slot, and tell the launcher, if one listens; whether it was written."""
        try:
            self.write(slot, record, durable)
            is_written = True
        except OSError:
            is_written = False
        self.tell(b"" if is_written else b" " + encoded(record).rstrip(b"\n"))
        return is_written

    def tell(self, more: bytes = b"") -> None:
        """Have the launcher, if one listens, look at this part."""
        with contextlib.suppress(OSError):
            fd = os.open(
                f"{os.path.dirname(self.folder)}/news", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
            )
            line = os.path.basename(self.folder).encode() + more
            with contextlib.suppress(OSError):
                if len(line) < PAGE:
                    os.write(fd, line + b"\n")
            os.close(fd)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Name of the present boot of this machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def uid_of(pid: int) -> int:
    """Real user of a process; its folder's owner is not, which a process can hide."""
    with open(f"/proc/{pid}/status", "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"Uid:")), -1)


def children(root: int) -> list[int]:
    """Children of this process of one thread, as quickly as can be; none where Linux cannot say."""
    try:
        with open(f"/proc/{root}/task/{root}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def stat_of(pid: int | str) -> list[bytes]:
    """State, parent and more of a process, as Linux has them; empty: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def descendants(root: int, spared: Container[int] = ()) -> list[int]:
    """Living processes below this one, but for these children and what is below them."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = stat_of(name)
        if fields and fields[0] not in b"ZX":
            children.setdefault(int(fields[1]), []).append(int(name))
    found = front = [pid for pid in children.get(root, ()) if pid not in spared]
    while front:
        front = [child for pid in front for child in children.get(pid, ())]
        found += front
    return found
