"""Small random problems, and their optima by exhaustion: plain Python on snapshots alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from coalloc.model.cost import base_time, link_loads, run_time
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.kernel.instance.decoding import Planner

POWERS = (1.0, 0.8, 0.5)
Counts = tuple[int, ...]
Busy = tuple[float, Counts, tuple[float, ...]]
"""End, slots of each class, and load on each link."""


def random_snapshot(seed: int, **changed: Any) -> Snapshot:
    """Two or three tiny clusters and a few jobs, with a bit of everything that bounds look at."""
    rng = random.Random(seed)
    clusters: list[dict[str, Any]] = []
    for name in ("a", "b", "c")[: rng.choice((2, 2, 3))]:
        mixed = rng.random() < 0.4
        nodes: list[dict[str, Any]] = [
            {"name": f"{name}{n}", "power": rng.choice(POWERS) if mixed or not n else None}
            for n in range(rng.randint(1, 3))
        ]
        for node in nodes:
            node["power"] = node["power"] or nodes[0]["power"]
            node["slots"] = rng.choice((1, 1, 2))
        link = rng.choice((None, 1.0, 0.5, 0.3, 0.1))
        clusters.append({"name": name, "link_gbps": link, "nodes": nodes})
    names = [cluster["name"] for cluster in clusters]
    every = [node for cluster in clusters for node in cluster["nodes"]]
    total = sum(node["slots"] for node in every)
    queue = [_job(rng, n, names, total) for n in range(rng.randint(2, 4))]
    running = []
    if rng.random() < 0.4:
        node = rng.choice(every)
        running.append(
            {
                "id": "r",
                "nodes": {node["name"]: 1},
                "start": -5.0,
                "end": rng.choice((4.0, 9.0)),
                "link_gbps": {rng.choice(names): 0.1} if rng.random() < 0.5 else {},
            }
        )
    kept = []
    if rng.random() < 0.25:
        node = rng.choice(every)
        kept.append({"id": "v", "nodes": [node["name"]], "start": 6.0, "end": 15.0, "jobs": ["1"]})
    body = {
        "format": "coalloc-snapshot/1",
        "overrun_s": 0.0,
        "clusters": clusters,
        "queue": queue,
        "running": running,
        "reservations": kept,
    }
    return read_snapshot({**body, **changed})


def _job(rng: random.Random, number: int, names: list[str], total: int) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": str(number),
        "sigma": rng.choice((1.0, 0.7, 0.0)),
        "weight": rng.choice((1.0, 2.0, 5.0)),
    }
    traffic = rng.choice((0.0, 0.05, 0.1, 0.2, 0.4))
    if rng.random() < 0.25:
        times = rng.choice(([9.0, 5.0, 4.0], [12.0, 7.0], [6.0, 5.0, 5.0, 2.0]))
        out |= {"kind": "moldable", "times": times}
        if rng.random() < 0.6:
            out["proc_gbps"] = traffic
    else:
        procs = rng.choice((1, rng.randint(1, total), rng.randint(max(1, total - 2), total)))
        out |= {"kind": "rigid", "procs": procs, "base_time": float(rng.randint(1, 12))}
        out["proc_gbps"] = traffic
    if rng.random() < 0.2:
        out["earliest"] = rng.choice((3.0, 8.0))
    if rng.random() < 0.15:
        out["clusters"] = rng.sample(names, rng.randint(1, len(names)))
    if number and rng.random() < 0.2:
        out["after"] = [str(rng.randrange(number))]
    return out


@dataclass
class Way:
    """One way to run a job."""

    counts: Counts
    loads: tuple[float, ...]
    seconds: float


@dataclass
class Exhaustion:
    """Every order of starts, every split, each start as early as the ones before allow.

    Nodes of one cluster, power and set of reservations are counted together. Since the jobs of an
    optimal plan, taken by their starts, can each start as early as it fits after the one before,
    these plans contain an optimal one.
    """

    snapshot: Snapshot
    options: dict[str, Any] = field(default_factory=dict)
    best: float = inf

    def __post_init__(self) -> None:
        shot = self.snapshot
        kept = {r.id: frozenset(r.nodes) for r in shot.reservations}
        self.windows = {r.id: (r.start, r.end, r.jobs) for r in shot.reservations}
        self.classes: list[tuple[int, float, frozenset[str]]] = []
        self.total: list[int] = []
        place: dict[str, int] = {}
        for k, cluster in enumerate(shot.clusters):
            for node in cluster.nodes:
                held = frozenset(r for r, nodes in kept.items() if node.name in nodes)
                key = k, node.power, held
                if key not in self.classes:
                    self.classes.append(key)
                    self.total.append(0)
                place[node.name] = self.classes.index(key)
                self.total[place[node.name]] += node.slots
        self.links = [cluster.link_gbps for cluster in shot.clusters]
        self.names = [cluster.name for cluster in shot.clusters]
        self.busy: list[Busy] = []
        for job in shot.running:
            counts = [0] * len(self.total)
            for name, count in job.nodes.items():
                counts[place[name]] += count
            loads = tuple(job.link_gbps.get(name, 0.0) for name in self.names)
            self.busy.append((job.busy_until(shot.time, shot.overrun_s), tuple(counts), loads))

    def optimum(self, objective: str) -> float:
        """Value of the best plan that places all jobs; infinite if there is none."""
        jobs = [job for job in self.snapshot.queue if isinstance(job, RigidJob | MoldableJob)]
        self.jobs = {job.id: job for job in jobs}
        self.ways = {job.id: list(self._ways(job)) for job in jobs}
        self.shortest = {
            name: min((way.seconds for way in ways), default=inf)
            for name, ways in self.ways.items()
        }
        self.weighted = objective == "weighted_completion"
        self.best = inf
        self._extend(0.0, {}, list(self.busy), 0.0)
        return self.best

    def _ways(self, job: RigidJob | MoldableJob) -> Iterator[Way]:
        low, high = (
            (job.procs, job.procs) if isinstance(job, RigidJob) else (job.min_procs, job.max_procs)
        )
        alone = self.options.get("coallocation") == "forbidden" or (
            isinstance(job, MoldableJob)
            and job.proc_gbps is None
            and not self.options.get("coallocate_moldable")
        )
        threshold = self.options.get("saturation_threshold", 1.0)
        for procs in range(low, high + 1):
            for counts in _vectors(procs, self.total):
                used = [c for c, count in enumerate(counts) if count]
                inside: dict[str, int] = {}
                for c in used:
                    name = self.names[self.classes[c][0]]
                    inside[name] = inside.get(name, 0) + counts[c]
                if (job.clusters is not None and not inside.keys() <= set(job.clusters)) or (
                    alone and len(inside) > 1
                ):
                    continue
                loads = link_loads(job.proc_gbps or 0.0, inside)
                by_link = tuple(loads.get(name, 0.0) for name in self.names)
                limits = zip(by_link, self.links, strict=True)
                if any(load > threshold * link * (1 + 1e-9) for load, link in limits):
                    continue
                power = min(self.classes[c][1] for c in used)
                seconds = run_time(base_time(job, procs), job.sigma, power)
                yield Way(counts, by_link, seconds)

    def _extend(
        self,
        since: float,
        ends: dict[str, float],
        active: list[Busy],
        value: float,
    ) -> None:
        left = [job for name, job in self.jobs.items() if name not in ends]
        if not left:
            self.best = min(self.best, value)
            return
        hope = [max(since, job.earliest) + self.shortest[job.id] for job in left]
        if self.weighted:
            rest = sum(job.weight * end for job, end in zip(left, hope, strict=True))
            if value + rest >= self.best - 1e-12:
                return
        elif max(value, *hope) >= self.best - 1e-12:
            return
        for job in left:
            if any(name in self.jobs and name not in ends for name in job.after):
                continue
            ready = max([since, job.earliest, *(ends.get(name, 0.0) for name in job.after)])
            for way in self.ways[job.id]:
                start = self._first(job.id, way, ready, active)
                if start is None:
                    continue
                end = start + way.seconds
                ends[job.id] = end
                active.append((end, way.counts, way.loads))
                gained = value + job.weight * end if self.weighted else max(value, end)
                self._extend(start, ends, active, gained)
                active.pop()
                del ends[job.id]

    def _first(self, job: str, way: Way, ready: float, active: list[Busy]) -> float | None:
        closing = [end for _, end, _ in self.windows.values()]
        times = {ready, *(e for e, _, _ in active), *closing}
        for start in sorted(t for t in times if t >= ready):
            if self._fits(job, way, start, active):
                return start
        return None

    def _fits(self, job: str, way: Way, start: float, active: list[Busy]) -> bool:
        now = [entry for entry in active if entry[0] > start]
        for c, count in enumerate(way.counts):
            if not count:
                continue
            if count + sum(counts[c] for _, counts, _ in now) > self.total[c]:
                return False
            for held in self.classes[c][2]:
                begin, end, allowed = self.windows[held]
                if job not in allowed and start < end and start + way.seconds > begin:
                    return False
        threshold = self.options.get("saturation_threshold", 1.0)
        for k, load in enumerate(way.loads):
            limit = threshold * self.links[k] * (1 + 1e-9)
            if load and load + sum(loads[k] for _, _, loads in now) > limit:
                return False
        return True


def _vectors(total: int, most: list[int]) -> Iterator[Counts]:
    if not most:
        if total == 0:
            yield ()
        return
    for count in range(min(total, most[0]), -1, -1):
        for rest in _vectors(total - count, most[1:]):
            yield (count, *rest)


def optimum(snapshot: Snapshot, objective: str, options: dict[str, Any]) -> float:
    """Best value of the jobs that can be planned; infinite where they cannot all be."""
    left = {entry.job for entry in Planner(snapshot, options).intake.deferred}
    queue = tuple(job for job in snapshot.queue if job.id not in left)
    return Exhaustion(replace(snapshot, queue=queue), options).optimum(objective)
