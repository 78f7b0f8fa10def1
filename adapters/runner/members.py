"""The members of an array that one runner runs one after the other, and what is on disk of each.

Imports the standard library only: the runner loads it without the rest of the package.

Notes
-----
File ``members`` of a part's folder has one slot for each, the first one included: that it has
begun, written before its process is there, and how it has ended. Like ``status`` it is made whole
before the part is ready, and then overwritten in place. That members were taken is on disk with
the part's START; what is written here of each lies with the system until the part's end. After a
loss of power a member without an end on disk may have run.
"""

from __future__ import annotations

import os
from typing import Any

from coalloc.adapters.runner.status import decoded, encoded

SLOT, BEGIN = 512, 64
"""Bytes of a member, and of these for its begin."""
TELL_S = 0.05
"""The launcher hears of ends as often as that, seconds."""


def slot_of(raw: bytes, index: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Begin and end of a member in the file's content; None: there was none."""
    at = index * SLOT
    begin, end = raw[at : at + BEGIN], raw[at + BEGIN : at + SLOT]
    return (decoded(begin) if begin[:1] > b"\0" else None), (
        decoded(end) if end[:1] > b"\0" else None
    )


class MemberFile:
    """The slots, as the runner writes them."""

    def __init__(self, folder: str, count: int) -> None:
        """Make the file such that writing into it needs no more space. Raises `OSError`."""
        self.fd = os.open(f"{folder}/members", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.is_written = [False] * count
        """Of each member: its end is."""
        os.pwrite(self.fd, b"\0" * (SLOT * count), 0)
        os.fsync(self.fd)

    def begin(self, index: int, started: float) -> None:
        """Note that a member begins. Raises `OSError`."""
        os.pwrite(self.fd, encoded({"started": started}), index * SLOT)

    def end(self, index: int, record: dict[str, Any]) -> None:
        """Note how a member has ended, or that it will not begin. Raises `OSError`."""
        self.is_written[index] = True
        raw = encoded(record)
        if len(raw) > SLOT - BEGIN:
            most = len(record["detail"]) - (len(raw) - (SLOT - BEGIN))
            raw = encoded(
                {**record, "detail": record["detail"].encode("ascii", "replace").decode()[:most]}
            )
        os.pwrite(self.fd, raw, index * SLOT + BEGIN)

    def close(self) -> None:
        """Have all of it on disk. Raises `OSError`."""
        os.fsync(self.fd)
        os.close(self.fd)
