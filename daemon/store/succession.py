"""What makes an older copy of the store a successor of the one it replaces.

Pure: `coalloc.daemon.store.backup` writes it into a file, and the simulation into its model of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from coalloc.core.after_restore import MARK
from coalloc.core.records import JobRecord, JobState

ORDERS_AHEAD = 1_000_000
NUMBERS_AHEAD = 10_000
"""Jobs and events that may have been numbered since the copy was made."""
EVENT = "event"


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """What is written over a copy.

    Attributes
    ----------
    meta : mapping of key to value
    event : int
        Number of the event that tells of the restoration.
    epoch : int
        The one before that of the next start.
    """

    meta: Mapping[str, str]
    event: int
    epoch: int


def highest(meta: Mapping[str, str], event: int) -> dict[str, int]:
    """The numbers of a store that must not come again, by their keys in `meta`.

    Raises
    ------
    ValueError
        One of them is no number.
    """
    numbers = {
        key: int(value)
        for key, value in meta.items()
        if key in {"epoch", "last_job"} or key.startswith("seq.")
    }
    return {**numbers, EVENT: event}


def succeed(
    own: Mapping[str, int], former: Mapping[str, int], last_job: int, now: float
) -> Successor:
    """Return what puts a copy ahead of everything that anybody has seen.

    Parameters
    ----------
    own, former : mapping of key to number
        `highest` of the copy, and of the store that it replaces: empty where that is unreadable.
    last_job : int
        Highest number of a job in the copy.
    now : float
        Wall-clock seconds.
    """
    high = {key: max(own.get(key, 0), former.get(key, 0)) for key in {*own, *former}}
    epoch = max(int(now), high.get("epoch", 0) + 1)
    meta = {
        "epoch": str(epoch),
        "last_job": str(max(high.get("last_job", 0), last_job) + NUMBERS_AHEAD),
        "paused": "1",
    }
    for key, number in high.items():
        if key.startswith("seq."):
            meta[key] = str(number + ORDERS_AHEAD)
            meta[f"{MARK}{key.removeprefix('seq.')}"] = "1"
    return Successor(meta=meta, event=high[EVENT] + NUMBERS_AHEAD, epoch=epoch)


def unprepared(record: JobRecord) -> JobRecord:
    """Have a job that was being prepared wait, one attempt earlier; others stay as they are."""
    if record.state is not JobState.PREPARING:
        return record
    return replace(
        record,
        state=JobState.PENDING,
        attempt=record.attempt - 1,
        parts=(),
        link_gbps={},
        deadline=None,
        rendezvous="",
    )
