"""The load on slurmctld: what need not be asked for each time, and how much we ask."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from coalloc.adapters.slurm.parsers.records import (
    NodeRecord,
    PartitionEntry,
    QueueEntry,
    ReservationEntry,
)
from coalloc.adapters.slurm.reading import KEPT

POINTS_TO = ("Partition", "Resv", "Reserv", "ReqNodeNotAvail")
"""Beginnings of the reasons of waiting jobs that partitions and reservations give."""
MANY_THREADS, MANY_MESSAGES = 60, 500
"""slurmctld is busy with so many requests at once, or messages that it has still to send."""
COUNTED_S = 300.0
"""Requests are counted over this time, seconds."""


class Seldom(Struct, frozen=True, kw_only=True):
    """Answers that rarely change, as they were when they were asked for."""

    asked: float = float("-inf")
    hint: object = None
    """What the cycle said that points to it (`hint_of`)."""
    reservations: tuple[ReservationEntry, ...] = ()
    partitions: tuple[PartitionEntry, ...] = ()


def hint_of(nodes: Iterable[NodeRecord], queue: Iterable[QueueEntry]) -> object:
    """The words of nodes and queue on partitions and reservations: another hint, a change."""
    kept = frozenset(node.name for node in nodes if KEPT & {*node.states})
    inside = frozenset((node.name, node.partitions) for node in nodes)
    waiting = frozenset(
        (entry.reason, entry.partition) for entry in queue if entry.reason.startswith(POINTS_TO)
    )
    return kept, inside, waiting, frozenset(entry.reservation for entry in queue)


def is_busy(said: str) -> bool:
    """Whether slurmctld has much to do, by ``sdiag``; not understood is not busy."""
    threads = re.search(r"Server thread count:\s*(\d+)", said)
    messages = re.search(r"Agent queue size:\s*(\d+)", said)
    return (threads is not None and int(threads[1]) >= MANY_THREADS) or (
        messages is not None and int(messages[1]) >= MANY_MESSAGES
    )


class Tally:
    """Requests a minute, by the file that grows with each (`slurm.commands`); it begins empty."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: deque[tuple[float, int]] = deque()
        if path is not None:
            with contextlib.suppress(OSError):
                path.write_bytes(b"")

    def per_minute(self, now: float) -> float | None:
        """Requests a minute of late; None: not known yet, or not counted."""
        try:
            count = 0 if self._path is None else self._path.stat().st_size
        except OSError:
            return None
        self._seen.append((now, count))
        while now - self._seen[0][0] > COUNTED_S and len(self._seen) > 2:
            self._seen.popleft()
        since, before = self._seen[0]
        return (count - before) / (now - since) * 60.0 if count and now > since else None
