"""Snapshots with plans as records of the replaying program, and what it answers about the jobs.

Notes
-----
Te = Tb * (sigma * SP + (1 - sigma) * SC) is realised in R equal rounds of computing and talking.
A process computes sigma * Tb / R seconds of a full-speed node in each round, on a node of its
power, so the slowest decides (SP). Then everybody sends to everybody: a process talks to the
tau - 1 others at proc_gbps / (tau - 1) each, which is the all-to-all pattern behind equation (4),
for (1 - sigma) * Tb / R seconds where no link holds it up. A job of one process, or without
bandwidth, lets that time pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coalloc.model.cost import base_time, run_time
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.plan import Placement, Plan
from coalloc.model.snapshot import Snapshot
from tests.simgrid.program import run

FULL_SPEED_FLOP_PER_S = 1e9
BYTES_PER_GBIT = 1.25e8
ROUNDS = 20
SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A job as it was planned and as it ran.

    Attributes
    ----------
    began, ended : float
        In the replay, seconds on the snapshot's axis.
    shortest, longest : float
        Te at SC = 1 and Te at the planned SC, seconds.
    """

    planned: Placement
    began: float
    ended: float
    shortest: float
    longest: float

    @property
    def seconds(self) -> float:
        """Run time in the replay."""
        return self.ended - self.began

    @property
    def slowdown(self) -> float:
        """Share of the planned slowdown by links that came about; 0 where none was planned."""
        room = self.longest - self.shortest
        return (self.seconds - self.shortest) / room if room > 0.0 else 0.0


def replay(
    program: Path, snapshot: Snapshot, plan: Plan, *, rounds: int = ROUNDS, **arguments: Any
) -> tuple[Replayed, ...]:
    """Run a plan's jobs, each from its planned start or later, once its nodes are free.

    Parameters
    ----------
    rounds : int
        Phases of computing and of talking in a job.
    arguments
        Those of `tests.simgrid.program.run`.
    """
    times = run(program, list(records(snapshot, plan, rounds)), **arguments)
    return tuple(
        Replayed(
            planned=placement,
            began=snapshot.time + times[f"job{n}"][0],
            ended=snapshot.time + times[f"job{n}"][1],
            shortest=planned_time(snapshot, placement, 1.0),
            longest=planned_time(snapshot, placement, placement.sc),
        )
        for n, placement in enumerate(plan.placements)
    )


def planned_time(snapshot: Snapshot, placement: Placement, sc: float) -> float:
    """Te by the cost model, seconds."""
    job = _job(snapshot, placement)
    power = {node.name: node.power for _, node in snapshot.nodes()}
    base = base_time(job, sum(placement.nodes.values()))
    return run_time(base, job.sigma, min(power[name] for name in placement.nodes), sc)


def records(snapshot: Snapshot, plan: Plan, rounds: int) -> Iterator[str]:
    """Yield the program's input; jobs are named by their number among the placements."""
    yield from platform(snapshot)
    numbers = {placement.job: n for n, placement in enumerate(plan.placements)}
    nodes = {node.name: n for n, (_, node) in enumerate(snapshot.nodes())}
    for placement in plan.placements:
        yield from _task(snapshot, placement, numbers, nodes, rounds)
    for placement in plan.placements:
        for other in _job(snapshot, placement).after:
            if other in numbers:
                yield f"after job{numbers[placement.job]} job{numbers[other]}"


def platform(snapshot: Snapshot) -> Iterator[str]:
    yield f"cluster {SWITCH} inf"
    for k, cluster in enumerate(snapshot.clusters):
        yield f"cluster c{k} {cluster.link_gbps * BYTES_PER_GBIT!r}"
    clusters = {cluster.name: k for k, cluster in enumerate(snapshot.clusters)}
    for n, (cluster, node) in enumerate(snapshot.nodes()):
        speed = node.power * FULL_SPEED_FLOP_PER_S
        yield f"node n{n} c{clusters[cluster.name]} {speed!r} {node.slots}"
    yield from _running_loads(snapshot, clusters)


def _running_loads(snapshot: Snapshot, clusters: Mapping[str, int]) -> Iterator[str]:
    """Running jobs are known by what they ask of each link, so each sends to the switch."""
    for n, job in enumerate(snapshot.running):
        until = job.busy_until(snapshot.time, snapshot.overrun_s) - snapshot.time
        for name, gbps in job.link_gbps.items():
            if gbps > 0.0:
                inner, outer = f"r{n}c{clusters[name]}", f"r{n}s{clusters[name]}"
                yield f"node {inner} c{clusters[name]} 1.0 1"
                yield f"node {outer} {SWITCH} 1.0 1"
                for ends in (f"{inner} {outer}", f"{outer} {inner}"):
                    yield f"load {ends} 0 {until!r} {gbps * BYTES_PER_GBIT!r}"


def _task(
    snapshot: Snapshot,
    placement: Placement,
    numbers: Mapping[str, int],
    nodes: Mapping[str, int],
    rounds: int,
) -> Iterator[str]:
    job = _job(snapshot, placement)
    name = f"job{numbers[placement.job]}"
    procs = sum(placement.nodes.values())
    base = base_time(job, procs)
    flop = job.sigma * base * FULL_SPEED_FLOP_PER_S / rounds
    talking = (1.0 - job.sigma) * base / rounds
    yield f"task {name} {placement.start - snapshot.time!r} {rounds} {flop!r} {talking!r}"
    for node, count in placement.nodes.items():
        for _ in range(count):
            yield f"rank {name} n{nodes[node]}"
    if procs > 1 and job.proc_gbps and talking > 0.0:
        rate = job.proc_gbps * BYTES_PER_GBIT / (procs - 1)
        for one in range(procs):
            for other in range(procs):
                if one != other:
                    yield f"flow {name} {one} {other} {rate * talking!r} {rate!r}"


def _job(snapshot: Snapshot, placement: Placement) -> RigidJob | MoldableJob:
    job = next(job for job in snapshot.queue if job.id == placement.job)
    if not isinstance(job, RigidJob | MoldableJob):
        raise ValueError(f"job {job.id} is neither rigid nor moldable: its tasks are not replayed")
    return job
