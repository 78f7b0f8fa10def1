"""The jobs of a plan and the processors of its snapshot as one pool: what bounds are checked on.

Notes
-----
The pool allows more than the snapshot does. Every processor is as fast as the strongest usable node
that a job may use; links carry everything that some split can send; jobs wait for nothing but what
runs; of nodes only the processes they hold count, each of the least memory and the least share of a
slot that any job asks for, whatever else shapes say. A reservation closes its nodes unless a placed
job is let in. So every plan that the checker allows is a schedule of the pool, no later in any job,
and what is proved of the pool is proved of the plan.

Of the queue, the rigid and moldable jobs count that the plan does not defer; tasks of workflows
are left out, which lowers a bound and never raises it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, sqrt
from typing import Any

import numpy as np

from coalloc.model.cost import base_time
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob
from coalloc.model.plan import Plan
from coalloc.model.shape import ONE_SLOT
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import TableSpeedup
from coalloc.policies.checking.jobs import number_option, stepped
from coalloc.policies.checking.sheet import RELATIVE, Flags, Floats, Ints, NodeColumns, Unit

PoolJob = tuple[Ints, Floats, float, float]
"""Counts of processes, seconds on them (strictly falling), weight, release in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """N jobs on m(t) equal processors; times are seconds from the snapshot's time."""

    jobs: Sequence[tuple[RigidJob | MoldableJob, Sequence[int], float, float]]
    """`slower` is what a job's time on dedicated nodes is multiplied with."""
    steps: tuple[Floats, Ints]
    """Times from which so many processors are there, from 0; and how many."""

    @property
    def allotments(self) -> int:
        """Counts of processes that the jobs have in all."""
        return sum(len(counts) for _, counts, _, _ in self.jobs)

    def rows(self) -> Iterator[PoolJob]:
        """Each job with its counts, without those that are no faster than a smaller one."""
        for job, counts, slower, release in self.jobs:
            times = np.array([base_time(job, n) for n in counts], dtype=np.float64) * slower
            times = np.minimum(times, inf if job.time_limit is None else job.time_limit)
            best = np.minimum.accumulate(times)
            kept = np.concatenate((times[:1] < inf, best[1:] < best[:-1]))
            yield np.array(counts, dtype=np.int64)[kept], times[kept], job.weight, release


def pool_of(snapshot: Snapshot, plan: Plan, nodes: NodeColumns) -> Pool:
    """The pool for the jobs that a plan has a start for."""
    left = {item.job for item in plan.deferred}
    # What is proved of the others holds with divisible jobs beside them.
    placed = [
        job for job in snapshot.queue if job.id not in left and not isinstance(job, DivisibleJob)
    ]
    room = _PoolRoom(snapshot, plan.options, nodes)
    steps = _steps(snapshot, placed, nodes, *room.least(placed))
    width = int(steps[1].max(initial=0))
    busy = {r.id: r.busy_until(snapshot.time, snapshot.overrun_s) for r in snapshot.running}
    jobs = []
    for job in placed:
        if isinstance(job, RigidJob | MoldableJob):
            release = max([job.earliest, snapshot.time, *(busy.get(n, -inf) for n in job.after)])
            slower = job.sigma / room.strongest(job) + 1.0 - job.sigma
            counts = room.counts(job, width)
            jobs.append((job, counts, slower, release - snapshot.time))
    return Pool(jobs=jobs, steps=steps)


class _PoolRoom:
    """Processes of each job that the usable nodes hold when they are empty."""

    def __init__(self, snapshot: Snapshot, options: Mapping[str, Any], nodes: NodeColumns) -> None:
        self.nodes, self.options = nodes, options
        self.names = [cluster.name for cluster in snapshot.clusters]
        self.links = [cluster.link_gbps for cluster in snapshot.clusters]
        self.power = stepped(nodes.power, number_option(options, "power_step", 0.0))
        self.threshold = number_option(options, "saturation_threshold", 1.0)
        self.usable = nodes.usable & (nodes.free_at < inf)
        self._known: dict[Any, tuple[Flags, float, list[int]]] = {}

    def _open(self, job: Job) -> tuple[Flags, float, list[int]]:
        """Nodes a job may use, the strongest of their powers, processes that each cluster holds."""
        key = job.clusters, job.features, job.memory_mb_per_proc, job.shape
        if key not in self._known:
            nodes = self.nodes
            allowed = [job.clusters is None or name in job.clusters for name in self.names]
            is_open = self.usable & nodes.with_features(job.features)
            held = nodes.most(job.shape, job.memory_mb_per_proc)
            is_open &= np.array(allowed, dtype=np.bool_)[nodes.cluster] & (held > 0.0)
            sums = np.bincount(nodes.cluster, np.where(is_open, held, 0.0), len(self.names))
            power = float(self.power[is_open].max(initial=0.0)) or 1.0
            self._known[key] = is_open, power, [int(total) for total in sums]
        return self._known[key]

    def strongest(self, job: Job) -> float:
        return self._open(job)[1]

    def least(self, jobs: Sequence[Job]) -> tuple[Floats, Floats]:
        """MiB and slots that any of the jobs takes of a node per process; inf where none may run.

        A process that counts CPUs takes a share of a slot where the slots have several.
        """
        memory, slots = np.full((2, len(self.nodes.slots)), inf)
        for job in jobs:
            self._open(job)
        for (_, _, mb, shape), (is_open, _, _) in self._known.items():
            each = shape.cpus_per_proc * self.nodes.slots / self.nodes.cpus
            share = each if shape.cpus_per_proc else np.ones_like(each)
            memory[is_open] = np.minimum(memory, float(mb))[is_open]
            slots[is_open] = np.minimum(slots, share)[is_open]
        return memory, slots

    def counts(self, job: RigidJob | MoldableJob, width: int) -> Sequence[int]:
        """Counts of processes that the format allows, and some set of nodes can hold."""
        if isinstance(job, RigidJob):
            return (job.procs,)
        room = self._open(job)[2]
        largest = max(room, default=0)
        splits = self.options.get("coallocation") != "forbidden" and (
            job.proc_gbps is not None or self.options.get("coallocate_moldable") is True
        )
        splits = splits and not job.one_cluster
        # What a shape asks of nodes may not be found on one cluster, though its slots are.
        fewest = Unit(job=job, task=None).fewest or job.min_procs
        whole = job.shape == ONE_SLOT and fewest <= largest
        if self.options.get("coallocation") == "needed" and whole:
            splits = False
        high = min(job.max_procs, width, sum(room) if splits else largest)
        if not isinstance(job.speedup, TableSpeedup):
            return range(job.min_procs, high + 1)
        gbps = job.proc_gbps or 0.0
        listed = [n for n in job.speedup.procs if job.min_procs <= n <= high]
        return [n for n in listed if n <= largest or self._splits(n, gbps, room)]

    def _splits(self, procs: int, gbps: float, room: Sequence[int]) -> bool:
        """Whether the links carry some split: on one cluster more than half, or on none."""
        low = [_low_side(procs, gbps, link * self.threshold) for link in self.links]
        small = [min(pair) for pair in zip(low, room, strict=True)]
        total = sum(small)
        return total >= procs or any(
            max(procs - low[k], procs - total + small[k]) <= room[k] for k in range(len(room))
        )


def _low_side(procs: int, gbps: float, link: float) -> int:
    """Most processes, of up to half, whose traffic g n (N - n) / (N - 1) the link carries."""
    most = link * (1.0 + RELATIVE) * (procs - 1) / gbps if gbps > 0.0 else inf
    if most >= procs * procs / 4.0:
        return procs
    return floor(procs / 2.0 - sqrt(procs * procs / 4.0 - most) + RELATIVE)


def _steps(
    snapshot: Snapshot, placed: Sequence[Job], nodes: NodeColumns, least: Floats, share: Floats
) -> tuple[Floats, Ints]:
    """m(t): processes of the least memory and slots that the open nodes hold at each time."""
    now = snapshot.time
    known = {job.id for job in placed}
    slots, memory = nodes.slots.tolist(), nodes.memory_mb.tolist()
    held: dict[int, list[tuple[float, float, int, float]]] = {}
    for job in snapshot.running:
        until = job.busy_until(now, snapshot.overrun_s)
        for name, count in job.nodes.items():
            if name in nodes.index:
                n = nodes.index[name]
                mb = job.memory_mb.get(name, memory[n] * count // slots[n])
                held.setdefault(n, []).append((now, until, count, mb))
    for n in np.flatnonzero(nodes.free_at > now).tolist():
        whole = (now, float(nodes.free_at[n]), slots[n], 0.0)
        held.setdefault(n, []).append(whole)
    for kept in snapshot.reservations:
        if kept.end > now and not known.intersection(kept.jobs):
            for name in kept.nodes:
                if name in nodes.index:
                    n = nodes.index[name]
                    closed = (max(kept.start, now), kept.end, slots[n], 0.0)
                    held.setdefault(n, []).append(closed)
    change: dict[float, int] = {now: 0}
    is_open = nodes.usable & (nodes.free_at < inf) & np.isfinite(least)
    for n in np.flatnonzero(is_open).tolist():
        before = 0
        for time in sorted({now, *(t for span in held.get(n, ()) for t in span[:2])}):
            here = [(count, mb) for a, b, count, mb in held.get(n, ()) if a <= time < b]
            free = max(slots[n] - sum(count for count, _ in here), 0)
            procs = floor(free / share[n] * (1.0 + RELATIVE))
            if least[n] > 0.0 and memory[n] < inf:
                procs = min(
                    procs, floor(max(memory[n] - sum(mb for _, mb in here), 0.0) / least[n])
                )
            if isfinite(time) and procs != before:
                change[time] = change.get(time, 0) + procs - before
                before = procs
    times = np.array(sorted(change), dtype=np.float64)
    level = np.cumsum([change[t] for t in times.tolist()]).astype(np.int64)
    return times - now, level
