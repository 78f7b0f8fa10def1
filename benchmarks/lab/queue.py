"""A Slurm cluster in virtual time: priorities, the main scheduler, backfill by time limits.

Notes
-----
- *Priority*: ``fcfs`` is priority/basic: the order of submission, which a later begin keeps.
  ``age`` is priority/multifactor with its age factor alone: a job gathers age from when it may
  begin, and loses it when that is put off.
- *Main scheduler*, after each submission and each end: jobs in order of priority, up to the first
  that does not fit (``Resources``); those behind it have the reason ``Priority``.
- *Backfill*, every second in which something has changed: each job in order of priority gets the
  earliest time at which it fits for its whole time limit beside what runs (to its limit) and the
  jobs before it; that is its expected start. ``easy`` keeps the first job's time alone.
- A job whose begin has not come is not looked at (``BeginTime``), nor one that is held.
- Nodes are interchangeable. A whole-node cluster has one slot for each node, and a per-CPU cluster
  places processes wherever CPUs are free.

Deviations: times are not rounded to ``bf_resolution``; ``bf_max_job_test`` has no bound.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Literal

Priority = Literal["fcfs", "age"]
Backfill = Literal["conservative", "easy"]


@dataclass(kw_only=True, eq=False)
class QueuedJob:
    """A job in the queue, or running.

    Attributes
    ----------
    on_start : callable
        Told of the time and the nodes when it is granted.
    """

    number: int
    width: int
    limit_s: float
    submitted: float
    on_start: Callable[[float, Mapping[str, int]], None]
    is_ours: bool = False
    begin: float = 0.0
    since: float | None = None
    """When it was first seen that it may begin, s: age counts from then, whatever comes later."""
    nice_s: float = 0.0
    """So much later it counts as submitted, s."""
    is_held: bool = False
    expected: float | None = None
    reason: str = "None"
    granted: float | None = None
    nodes: dict[str, int] = field(default_factory=dict)

    @property
    def ends_by(self) -> float:
        """Slurm's own limit, s."""
        assert self.granted is not None
        return self.granted + self.limit_s


@dataclass(kw_only=True)
class SlurmQueue:
    """One cluster: its nodes, its queue, what runs."""

    name: str
    node_count: int
    cpus: int = 1
    """Slots of each node; 1: nodes are whole."""
    priority: Priority = "fcfs"
    backfill: Backfill = "conservative"
    waiting: list[QueuedJob] = field(default_factory=list)
    running: list[QueuedJob] = field(default_factory=list)
    is_dirty: bool = False
    used_s: float = 0.0
    """Slot-seconds that jobs had."""
    _last: int = 0

    def __post_init__(self) -> None:
        self.free = {f"{self.name}{n}": self.cpus for n in range(1, self.node_count + 1)}

    @property
    def slots(self) -> int:
        return self.node_count * self.cpus

    def submit(self, job: QueuedJob, now: float) -> None:
        """Take in a job; it starts at once where nothing goes before it."""
        self._last += 1
        job.number = self._last
        self.waiting.append(job)
        self.schedule(now)

    def try_now(self, job: QueuedJob, nodes: Mapping[str, int], now: float) -> bool:
        """Grant exactly these nodes, or nothing, as srun is answered that does not wait."""
        if any(self._is_eligible(other, now) for other in self.waiting):
            return False
        if any(self.free[name] < count for name, count in nodes.items()):
            return False
        self._last += 1
        job.number = self._last
        self._start(job, dict(nodes), now)
        return True

    def end(self, job: QueuedJob, now: float) -> None:
        """Its processes have ended, or it is cancelled."""
        if job in self.waiting:
            self.waiting.remove(job)
        elif job in self.running:
            self.running.remove(job)
            for name, count in job.nodes.items():
                self.free[name] += count
            assert job.granted is not None
            self.used_s += (now - job.granted) * job.width
        self.schedule(now)

    def update(self, job: QueuedJob, now: float, *, begin: float) -> None:
        """``scontrol update StartTime``."""
        job.begin = begin
        if job in self.waiting:
            self.schedule(now)

    def _is_eligible(self, job: QueuedJob, now: float) -> bool:
        return not job.is_held and job.begin <= now

    def order_of(self, job: QueuedJob) -> tuple[float, int]:
        """The less, the sooner it has its turn."""
        since = job.submitted if self.priority == "fcfs" or job.since is None else job.since
        return since + job.nice_s, job.number

    def in_order(self, now: float) -> list[QueuedJob]:
        """The jobs that may start, the first to go before."""
        found = [job for job in self.waiting if self._is_eligible(job, now)]
        for job in found:
            job.since = now if job.since is None else job.since
        return sorted(found, key=self.order_of)

    def is_next(self, job: QueuedJob, now: float) -> bool:
        """Whether no job that may start goes before it, or is older where it may not start yet."""
        if job.begin > now:
            return not any(other.submitted < job.submitted for other in self.in_order(now))
        mine = self.order_of(job)
        return not any(self.order_of(o) < mine for o in self.in_order(now) if o is not job)

    def schedule(self, now: float) -> None:
        """The main scheduler: in order, up to the first that does not fit."""
        self.is_dirty = True
        room, blocked = sum(self.free.values()), False
        for job in self.in_order(now):
            if not blocked and job.width <= room:
                room -= job.width
                self._start(job, self._pick(job.width), now)
                continue
            job.reason = "Priority" if blocked else "Resources"
            blocked = True

    def look(self, now: float) -> None:
        """A turn of the backfill scheduler."""
        began = [j for j in self.waiting if 0.0 < j.begin <= now and j.reason == "BeginTime"]
        for job in self.waiting:
            if not self._is_eligible(job, now):
                job.reason, job.expected = "BeginTime", max(job.begin, now)
        if not self.is_dirty and not began:
            return
        self.is_dirty = False
        profile = Profile(now, sum(self.free.values()))
        for job in self.running:
            profile.give(max(job.ends_by, now + 1.0), job.width)
        first = True
        for job in self.in_order(now):
            start = profile.earliest(job.width, job.limit_s)
            job.reason = "Resources" if first else "Priority"
            job.expected = start
            if start <= now:
                self._start(job, self._pick(job.width), now)
                profile.take(now, now + job.limit_s, job.width)
                continue
            if first or self.backfill == "conservative":
                profile.take(start, start + job.limit_s, job.width)
            first = False

    def _pick(self, width: int) -> dict[str, int]:
        nodes: dict[str, int] = {}
        for name, count in self.free.items():
            if count and width:
                nodes[name] = min(count, width)
                width -= nodes[name]
        assert not width, "slots that are not there"
        return nodes

    def _start(self, job: QueuedJob, nodes: dict[str, int], now: float) -> None:
        for name, count in nodes.items():
            self.free[name] -= count
            assert self.free[name] >= 0
        job.nodes, job.granted = nodes, now
        if job in self.waiting:
            self.waiting.remove(job)
        self.running.append(job)
        job.on_start(now, nodes)


class Profile:
    """Free slots over time, as backfill sees them."""

    def __init__(self, now: float, free: int) -> None:
        self._times, self._change = [now], {now: free}

    def give(self, at: float, width: int) -> None:
        if at not in self._change:
            insort(self._times, at)
            self._change[at] = 0
        self._change[at] += width

    def take(self, start: float, end: float, width: int) -> None:
        self.give(start, -width)
        self.give(end, width)

    def earliest(self, width: int, length: float) -> float:
        """The earliest time from which on so many slots are free for so long."""
        free, since = 0, inf
        for at in self._times:
            if since < inf and at >= since + length:
                return since
            free += self._change[at]
            if free < width:
                since = inf
            elif since == inf:
                since = at
        return since


def minutes(seconds: float) -> float:
    """A time limit as Slurm takes it: whole minutes, in seconds."""
    return 60.0 * ceil(seconds / 60.0 - 1e-9)
