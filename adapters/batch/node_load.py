"""Load of each node by work that neither we nor its batch system put there.

Two sources. A probe on the node (`coalloc.adapters.probe`) measures it, and leaves it where the
batch system shows it (Slurm: the node's ``Extra``). Where there is no probe, or it has fallen
silent, the load that the batch system reports has to do: runnable processes on average, less
the CPUs that it has allocated.

Notes
-----
What is reported is the operating system's mean over a minute, and slurmctld learns it when it
hears of the node, every ``SlurmdTimeout``/3. It goes on after a job has gone. The highest
allocation of the last `REMEMBERED_S` is therefore taken off it, so that no load of a finished
job is mistaken for somebody else's; foreign load that comes just then is seen late.

Smoothing and steps are the daemon's (`coalloc.core.base.power`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

NOISE = 0.03
"""A load below this is the system itself; without it no node would ever be whole."""
LEAST_SHARE = 0.05
REMEMBERED_S = 180.0
PROBE = "coalloc-probe"


class Load(Struct, frozen=True, kw_only=True):
    """Share of a node taken by work that is not ours, 0..1, and its age in seconds."""

    share: float = 0.0
    age_s: float = 0.0


@dataclass(slots=True)
class _Past:
    """Past readings of a node's CPULoad."""

    seen: tuple[float | None, int | None]
    """CPULoad and free memory, which slurmctld learns together."""
    since: float
    """When they last changed, seconds."""
    taken: list[tuple[float, int]]
    """Allocations of the last while."""


class MeasuredNode(Struct, frozen=True, kw_only=True):
    """A node by its batch system's words."""

    name: str
    cpus: int = 1
    """Usable by jobs."""
    cpus_taken: int = 0
    """Allocated to jobs."""
    cpu_load: float | None = None
    """Runnable processes, a mean over a minute or so; None: not known."""
    free_mb: int | None = None
    """MiB that the operating system calls free, learned with the load: a change shows a new one."""
    extra: str = ""
    """The free text that the probe writes to."""


class LoadWatch:
    """Keeps what of earlier readings is needed to understand the next.

    `source` is ``none``: nothing is read; ``auto``: a probe is believed first; else what the batch
    system reports. A probe's reading older than `max_age_s` seconds counts as none.
    """

    def __init__(self, source: str, max_age_s: float = 0.0) -> None:
        self._source, self._max_age_s = source, max_age_s
        self._past: dict[str, _Past] = {}

    def loads(self, nodes: Iterable[MeasuredNode], now: float) -> dict[str, Load]:
        """The load of every node; `now` is in seconds since 1970."""
        if self._source == "none":
            return {}
        found = {node.name: self._load(node, now) for node in nodes}
        self._past = {name: past for name, past in self._past.items() if name in found}
        return found

    def _load(self, node: MeasuredNode, now: float) -> Load:
        past = self._remember(node, now)
        probed = read_probe(node.extra) if self._source == "auto" else None
        if probed is not None and abs(now - probed[1]) <= self._max_age_s:
            return Load(share=_quiet(probed[0]), age_s=max(0.0, now - probed[1]))
        if node.cpu_load is None:
            return Load()
        taken = max(count for _, count in past.taken)
        share = max(0.0, node.cpu_load - taken) / node.cpus
        return Load(share=_quiet(min(1.0, share)), age_s=now - past.since)

    def _remember(self, node: MeasuredNode, now: float) -> _Past:
        seen = (node.cpu_load, node.free_mb)
        past = self._past.get(node.name)
        if past is None:
            past = self._past[node.name] = _Past(seen=seen, since=now, taken=[])
        if past.seen != seen:
            past.seen, past.since = seen, now
        past.taken = [(at, n) for at, n in past.taken if now - at <= REMEMBERED_S]
        past.taken.append((now, node.cpus_taken))
        return past


def effective_power(relative: float, load: Load) -> float:
    """Relative speed times the share that is left."""
    return relative * max(1.0 - load.share, LEAST_SHARE)


def probe_text(share: float, at: float) -> str:
    """Text that a probe leaves in a node's ``Extra``."""
    return f"{PROBE}/1 load={share:.3f} at={at:.0f}"


def read_probe(text: str) -> tuple[float, float] | None:
    """Load and time of what a probe left; None where none did."""
    found = re.search(rf"{PROBE}/1 load=([01]\.[0-9]{{3}}) at=([0-9]{{1,12}})(?![0-9])", text, re.A)
    return None if found is None else (min(1.0, float(found[1])), float(found[2]))


def _quiet(share: float) -> float:
    return 0.0 if share < NOISE else share
