"""Pieces of job logs, each in the circumstances of a scenario.

Notes
-----
The usable jobs of a log, those that fit its machine, are cut into pieces of as many consecutive
ones; what is left at the end is not used. A piece is called LOG@NUMBER, and the first byte of the
SHA-256 of that name tells its half: even is `choose`, odd is `report`. So the halves never depend
on a result. All pieces of the logs that are kept back belong to `report`.

A load of x means that work arrives x times as fast as all slots at their power can do it: times
between submissions are scaled, run times are not. 0 keeps the log's own times.

Sigma and the bandwidth of a process are drawn for each job, first the one, then the other, from a
generator whose seed is the piece's name. Where the machine is several clusters, jobs wider than the
largest one are left out, unless the scenario keeps them, so that the same jobs run whether
co-allocation is forbidden or not.

Where jobs are moldable, that is a share of them, drawn by the piece's number; they take as long as
in the log on as many processors as there.

Where jobs are workflows or arrays, that is a share of those that ran for ten minutes or longer,
drawn by the piece's number; `simulation.kinds` says how they are drawn.

All these draws are others with another seed of the study.
"""

from __future__ import annotations

import random
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from coalloc.adapters.formats.platforms import Platform, read_platform
from coalloc.adapters.formats.swf_jobs import JobRule, LoggedJob, read_bandwidth, read_sigma
from coalloc.model.errors import InputError
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.values import replace
from coalloc.simulation.kinds import make_moldable, make_workflows, read_shape
from coalloc.simulation.study.declared import (
    BOTH,
    CHOOSE,
    NO_MIX,
    REPORT,
    Log,
    Scenario,
    StudyFile,
)
from coalloc.simulation.workload import Workload, piece_of, read_workload

SHARES = (0.4, 0.3, 0.2, 0.1)
"""Of the nodes, by cluster, where a log's machine is cut into several."""
LINK_GBPS = 1.0
"""Of such a cluster."""


class Piece(Struct, frozen=True, kw_only=True):
    """Consecutive jobs of a log, by number from 0."""

    log: Log
    number: int
    size: int
    """Jobs of each piece of the log."""

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.log.name}@{self.number:02}"

    @property
    def half(self) -> str:
        """`choose` or `report`; see the module's notes."""
        odd = sha256(self.name.encode()).digest()[0] % 2
        return REPORT if odd or self.log.kept_back else CHOOSE


def cut(log: Log, study: StudyFile, folder: Path) -> list[Piece]:
    """The pieces of a log that a study asks for; a log shorter than a piece is one.

    Raises `InputError`.
    """
    count = len(read_log(log, folder).jobs) // study.piece_jobs or 1
    pieces = [Piece(log=log, number=number, size=study.piece_jobs) for number in range(count)]
    pieces = [piece for piece in pieces if study.half in (BOTH, piece.half)]
    most = study.pieces
    if most is None or most >= len(pieces):
        return pieces
    return [pieces[(2 * n + 1) * len(pieces) // (2 * most)] for n in range(most)]


@cache
def read_log(log: Log, folder: Path) -> Workload:
    """All jobs of a log that fit its machine. Raises `InputError`."""
    platform = machine(log, folder)
    rule = JobRule.on(
        platform.clusters, keep_clusters=log.keep_clusters, partitions=platform.partitions
    )
    read = read_workload([folder / name for name in log.files], rule)
    jobs = [one for one in read.jobs if one.job.procs <= platform.slots][: log.limit]
    if not jobs:
        raise InputError(log.name, f"no job fits {platform.slots} slots")
    return replace(read, jobs=tuple(jobs))


@cache
def machine(log: Log, folder: Path, *, several: bool = False) -> Platform:
    """The machine of a log: as it is, or as several clusters. Raises `InputError`."""
    file = (several and log.clusters) or log.platform
    if file:
        return read_platform(folder / file)
    shares = SHARES if several else (1.0,)
    bounds = [0, *(round(log.nodes * sum(shares[: k + 1])) for k in range(len(shares)))]
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            nodes=tuple(Node(name=f"c{k}n{n}", slots=log.slots) for n in range(1, b - a + 1)),
            link_gbps=LINK_GBPS,
        )
        for k, (a, b) in enumerate(pairwise(bounds), 1)
    )
    return Platform(name=log.name, clusters=clusters)


def stage(
    piece: Piece,
    scenario: Scenario,
    folder: Path,
    jobs: int | None = None,
    seed: int = 0,
    shapes: str = "",
) -> tuple[Workload, Platform]:
    """The first jobs of a piece, and the machine, in a scenario. Raises `InputError`."""
    size = min(jobs or piece.size, piece.size)
    logged = read_log(piece.log, folder).jobs
    workload = piece_of(logged, piece.number * piece.size, size, piece.name)
    platform = machine(piece.log, folder, several=scenario.clusters)
    made, earlier = workload.jobs, workload.earlier if scenario.history else ()
    if scenario.exact:
        made, earlier = _exact(made), _exact(earlier)
    made = _communicating(made, scenario, f"{piece.name} {seed}" if seed else piece.name)
    if scenario.clusters and not scenario.wide:
        largest = max(cluster.slots for cluster in platform.clusters)
        made = tuple(one for one in made if one.job.procs <= largest)
    if scenario.load:
        made = _arriving(made, platform, scenario.load)
    workload = replace(workload, jobs=made, earlier=earlier)
    if scenario.moldable:
        shape = read_shape(scenario.speedup, scenario.moldable)
        workload = make_moldable(workload, shape, platform.slots, piece.number, seed)
    if scenario.mix != NO_MIX:
        workload = make_workflows(workload, scenario.mix, folder / shapes, piece.number, seed)
    return workload, platform


def _exact(jobs: tuple[LoggedJob, ...]) -> tuple[LoggedJob, ...]:
    return tuple(replace(one, job=replace(one.job, base_time=one.run_s)) for one in jobs)


def _communicating(
    jobs: tuple[LoggedJob, ...], scenario: Scenario, seed: str
) -> tuple[LoggedJob, ...]:
    """Draw sigma and bandwidth of each job."""
    generator = random.Random(seed)
    draws = read_sigma(scenario.sigma), read_bandwidth(scenario.bandwidth)
    out = []
    for one in jobs:
        sigma, gbps = (draw.draw(generator.random()) for draw in draws)
        out.append(replace(one, job=replace(one.job, sigma=sigma, proc_gbps=gbps)))
    return tuple(out)


def _arriving(
    jobs: tuple[LoggedJob, ...], platform: Platform, load: float
) -> tuple[LoggedJob, ...]:
    """Scale submit times so that work arrives at this load."""
    span = jobs[-1].job.submitted - jobs[0].job.submitted
    able = sum(
        node.slots * node.power
        for cluster in platform.clusters
        for node in cluster.nodes
        if node.state is NodeState.UP
    )
    work = sum(one.run_s * one.job.procs for one in jobs)
    factor = work / (able * load * span) if span > 0.0 else 1.0
    out = []
    for one in jobs:
        time = one.job.submitted * factor
        out.append(replace(one, job=replace(one.job, submitted=time, earliest=time)))
    return tuple(out)
