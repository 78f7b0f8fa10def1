"""By how much local jobs wait longer since nodes are kept for us.

Notes
-----
Counted from one reading to the next. With the nodes that are idle and those that are kept for us,
some of the local jobs that wait could run, taken in the order of their submission; those of them
that the idle nodes alone would not take wait for us, and the time between the readings is added
to their delay. It is an estimate from above: another rule of Slurm's may keep them too.
"""

from __future__ import annotations

from collections.abc import Iterable

from coalloc.adapters.slurm.parsers.records import QueueEntry

LONGEST_GAP_S = 60.0
"""Between two readings; of a longer time it is not known who has waited."""
STARTABLE = frozenset({"None", "Priority", "Resources", "ReqNodeNotAvail", "Reserved"})
"""Reasons of a job that only nodes are missing to."""


class LocalDelays:
    """Watches the local queue of one cluster."""

    def __init__(self) -> None:
        self._delay_s: dict[str, float] = {}
        self._looked = 0.0

    def take(self, now: float, waiting: Iterable[QueueEntry], idle: int, kept: int) -> None:
        """Count the time since the last look.

        `waiting` local jobs could run on nodes that are kept for us. Anybody may have the `idle`
        nodes; only we may have, or do have, the `kept` ones.
        """
        passed = min(max(0.0, now - self._looked), LONGEST_GAP_S) if self._looked else 0.0
        self._looked = now
        jobs = {entry.id: entry for entry in waiting}
        self._delay_s = {job: self._delay_s.get(job, 0.0) for job in jobs}
        free, room = idle, idle + kept
        for entry in sorted(jobs.values(), key=lambda e: (e.submitted or now, e.id)):
            if entry.reason not in STARTABLE or entry.node_count > room:
                continue
            room -= entry.node_count
            if entry.node_count <= free:
                free -= entry.node_count
            else:
                self._delay_s[entry.id] += passed

    @property
    def worst(self) -> tuple[str, float]:
        """Of the local jobs that wait, the one delayed most, and by how many seconds."""
        return max(self._delay_s.items(), key=lambda found: found[1], default=("", 0.0))
