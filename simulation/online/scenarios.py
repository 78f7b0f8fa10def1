"""The circumstances under which pieces are replayed.

Notes
-----
A load of x means that work arrives x times as fast as all slots at their power can do it: times
between submissions are scaled, run times are not. 0 keeps the log's own times.

Where the machine is several clusters, jobs communicate: sigma and the bandwidth of a process are
drawn for each job from a generator whose seed is the piece's name, uniformly from `SIGMA` and
`GBPS`. Jobs wider than the largest cluster are left out there, so that the same jobs run whether
co-allocation is forbidden or not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.platform import NodeState
from coalloc.simulation.online.pieces import PIECE_JOBS, Piece, several, single, take
from coalloc.simulation.workload import Workload

SIGMA = (0.3, 1.0)
GBPS = (0.0, 0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One circumstance.

    Attributes
    ----------
    doc : str
        One line for the report.
    load : float
        0: as logged.
    exact : bool
        Estimates are the real run times.
    clusters : bool
        Several clusters.
    coallocation : str
        The option of all policies.
    """

    name: str
    doc: str
    load: float = 0.0
    exact: bool = False
    clusters: bool = False
    coallocation: str = "sooner"


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="logged", doc="one cluster, the log's own times and estimates"),
        Scenario(name="exact", doc="the same, estimates are the real run times", exact=True),
        Scenario(name="load-70", doc="one cluster, arrivals scaled to a load of 0.7", load=0.7),
        Scenario(name="load-90", doc="one cluster, arrivals scaled to a load of 0.9", load=0.9),
        Scenario(
            name="clusters",
            doc="several clusters, a load of 0.7, jobs split where they end sooner so",
            load=0.7,
            clusters=True,
        ),
        Scenario(
            name="apart",
            doc="the same clusters, load and jobs, co-allocation forbidden",
            load=0.7,
            clusters=True,
            coallocation="forbidden",
        ),
    )
}


def stage(
    piece: Piece, scenario: Scenario, folder: Path, jobs: int = PIECE_JOBS
) -> tuple[Workload, Platform]:
    """The jobs of a piece, and the machine, in a scenario."""
    workload = take(piece, folder, jobs)
    platform = several(piece.log, folder) if scenario.clusters else single(piece.log)
    made = workload.jobs
    if scenario.exact:
        made = tuple(replace(one, job=replace(one.job, base_time=one.run_s)) for one in made)
    if scenario.clusters:
        made = _communicating(made, platform, piece.name)
    if scenario.load:
        made = _arriving(made, platform, scenario.load)
    return replace(workload, jobs=made), platform


def _communicating(
    jobs: tuple[LoggedJob, ...], platform: Platform, seed: str
) -> tuple[LoggedJob, ...]:
    largest = max(cluster.slots for cluster in platform.clusters)
    generator = random.Random(seed)
    out = []
    for one in jobs:
        sigma, gbps = generator.uniform(*SIGMA), generator.uniform(*GBPS)
        if one.job.procs <= largest:
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
