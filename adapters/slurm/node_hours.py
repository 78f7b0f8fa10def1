"""Node-hours that were kept for us on one cluster, over a window that moves on with time.

Counted from one reading to the next, by the hour, and kept in a file: a restart of the executor
loses no more than `WRITTEN_S` of it. Where the file cannot be read, the count begins anew; where it
cannot be written, it goes on in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

HOUR_S = 3600.0
WINDOW_S = 168 * HOUR_S
WRITTEN_S = 60.0
"""Between two writes of the file, seconds."""
CLOSE_S = 60.0
"""Between readings that are no further apart, what is ours now was ours all the time, seconds."""


class NodeHours:
    """The count.

    Parameters
    ----------
    path : Path or None
        Where it is kept; None: in memory alone.
    window_s : float
        What is older counts no more, seconds.
    """

    def __init__(self, path: Path | None = None, window_s: float = WINDOW_S) -> None:
        self._path, self._window_s = path, window_s
        self._by_hour = {} if path is None else _read(path)
        self._last: tuple[float, int] | None = None
        self._written_at = float("-inf")

    def count(self, nodes: int, now: float) -> None:
        """Take in how many nodes are ours now."""
        if self._last is not None:
            since, before = self._last
            gap_s = max(0.0, now - since)
            held = nodes if gap_s <= CLOSE_S else min(nodes, before)
            hour = int(now // HOUR_S)
            self._by_hour[hour] = self._by_hour.get(hour, 0.0) + held * gap_s
        self._last = now, nodes
        oldest = int((now - self._window_s) // HOUR_S)
        self._by_hour = {hour: held for hour, held in self._by_hour.items() if hour > oldest}
        if now - self._written_at >= WRITTEN_S:
            self._written_at = now
            self._write()

    @property
    def used(self) -> float:
        """Node-hours within the window."""
        return sum(self._by_hour.values()) / HOUR_S

    def _write(self) -> None:
        """Keep the count; one that cannot be written now is written later."""
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(OSError):
            new.write_text(json.dumps(self._by_hour), encoding="ascii")
            os.replace(new, self._path)


def _read(path: Path) -> dict[int, float]:
    """The node-seconds of each hour since 1970; none where there is no such file."""
    try:
        found = json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    rows = found.items() if isinstance(found, Mapping) else ()
    return {int(hour): float(held) for hour, held in rows if hour.isdecimal()}
