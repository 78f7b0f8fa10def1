"""The circumstances under which pieces are replayed.

Notes
-----
A load of x means that work arrives x times as fast as all slots at their power can do it: times
between submissions are scaled, run times are not. 0 keeps the log's own times.

Where the machine is several clusters, jobs communicate: sigma and the bandwidth of a process are
drawn for each job from a generator whose seed is the piece's name, uniformly from `SIGMA` and from
the scenario's range. Jobs wider than the largest cluster are left out there, unless the scenario
keeps them, so that the same jobs run whether co-allocation is forbidden or not.

Where jobs are moldable, that is a share of them, drawn by the piece's number; their speed-up is
Amdahl's with a parallel fraction drawn from `PARALLEL`, and they take as long as in the log on as
many processors as there.

Where jobs are workflows or arrays, that is a share of those that ran for ten minutes or longer,
drawn by the piece's number; `simulation.workflows` says how they are drawn. Shapes of real
workflows come from the folder ``workflows/dax`` beside that of the logs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.platform import NodeState
from coalloc.model.values import replace
from coalloc.simulation.moldable import Shape, make_moldable
from coalloc.simulation.online.pieces import PIECE_JOBS, Piece, several, single, take
from coalloc.simulation.workflows import Mix, make_workflows
from coalloc.simulation.workload import Workload

SIGMA = (0.3, 1.0)
GBPS = (0.0, 0.02)
PARALLEL = (0.8, 0.98)
NO_MIX = Mix()
SHAPES = Path("workflows", "dax")
"""Folder of workflow files, beside that of the logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One circumstance."""

    name: str
    doc: str
    """One line for the report."""
    load: float = 0.0
    """0: as logged."""
    exact: bool = False
    """Estimates are the real run times."""
    clusters: bool = False
    """Several clusters."""
    coallocation: str = "sooner"
    """The option of all policies."""
    gbps: tuple[float, float] = GBPS
    """Where the machine is several clusters: least and most bandwidth of a process, Gbit/s."""
    wide: bool = False
    """Keep jobs wider than the largest cluster."""
    history: bool = True
    """What ended in the log before the piece is known; else the site is in its first week."""
    moldable: float = 0.0
    """Share of the jobs that are."""
    mix: Mix = NO_MIX
    """Shares of the jobs that are workflows or arrays."""


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="logged", doc="one cluster, the log's own times and estimates"),
        Scenario(name="first-week", doc="the same, nothing known of earlier jobs", history=False),
        Scenario(name="exact", doc="as logged, estimates are the real run times", exact=True),
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
"""What is replayed where nothing is chosen."""

AMOUNTS: Mapping[str, tuple[float, float]] = {
    "silent": (0.0, 0.0),
    "light": (0.0, 0.02),
    "heavy": (0.0, 0.2),
}
"""Bandwidth of a process in the study of co-allocation, Gbit/s, on links of 1 Gbit/s."""
STUDY: Mapping[str, Scenario] = {
    scenario.name: scenario
    for amount, gbps in AMOUNTS.items()
    for load in (0.7, 0.9)
    for kind, coallocation, wide in (
        ("free", "sooner", False),
        ("forbidden", "forbidden", False),
        ("wide-free", "sooner", True),
        ("wide-needed", "needed", True),
    )
    for scenario in (
        Scenario(
            name=f"{amount}-{load * 100:.0f}-{kind}",
            doc=f"several clusters, a load of {load:g}, processes of up to {gbps[1]:g} Gbit/s, "
            f"{'wide jobs too, ' if wide else ''}co-allocation: {coallocation}",
            load=load,
            clusters=True,
            coallocation=coallocation,
            gbps=gbps,
            wide=wide,
        ),
    )
}
"""What is replayed to see when co-allocation pays."""
PAIRS: tuple[tuple[str, str], ...] = (
    ("clusters", "apart"),
    *(
        (f"{prefix}{one}", f"{prefix}{other}")
        for amount in AMOUNTS
        for prefix in (f"{amount}-70-", f"{amount}-90-")
        for one, other in (("free", "forbidden"), ("wide-free", "wide-needed"))
    ),
)
"""Scenarios of the same jobs: co-allocation as a policy likes, and less or none of it."""
MOLDABLE: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        SCENARIOS["logged"],
        Scenario(name="moldable-half", doc="as logged, half of the jobs moldable", moldable=0.5),
        Scenario(name="moldable-all", doc="as logged, all jobs moldable", moldable=1.0),
    )
}
"""What is replayed to see what policies make of moldable jobs; the first has users' widths."""
WORKFLOWS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="workflows-10",
            doc="a load of 0.8, a tenth of the jobs of ten minutes or longer are workflows",
            load=0.8,
            mix=Mix(flows=0.1),
        ),
        Scenario(
            name="workflows-30",
            doc="the same, three tenths are workflows",
            load=0.8,
            mix=Mix(flows=0.3),
        ),
        Scenario(
            name="workflows-malleable",
            doc="the same three tenths, their tasks on 1 to as many processors as the job",
            load=0.8,
            mix=Mix(flows=0.3, malleable=True),
        ),
        Scenario(
            name="mixture",
            doc="a load of 0.8, a quarter of the jobs moldable; of others of ten minutes or longer "
            "a fifth are workflows and a fifth arrays",
            load=0.8,
            moldable=0.25,
            mix=Mix(flows=0.2, arrays=0.2),
        ),
    )
}
"""What is replayed to see how long users of workflows wait, and others beside them."""
EVERY: Mapping[str, Scenario] = {**SCENARIOS, **STUDY, **MOLDABLE, **WORKFLOWS}


def stage(
    piece: Piece, scenario: Scenario, folder: Path, jobs: int = PIECE_JOBS
) -> tuple[Workload, Platform]:
    """The jobs of a piece, and the machine, in a scenario."""
    workload = take(piece, folder, jobs)
    platform = several(piece.log, folder) if scenario.clusters else single(piece.log)
    made, earlier = workload.jobs, workload.earlier if scenario.history else ()
    if scenario.exact:
        made, earlier = _exact(made), _exact(earlier)
    if scenario.clusters:
        made = _communicating(made, platform, piece.name, scenario)
    if scenario.load:
        made = _arriving(made, platform, scenario.load)
    workload = replace(workload, jobs=made, earlier=earlier)
    if scenario.moldable:
        shape = Shape(model="amdahl", values=PARALLEL, share=scenario.moldable)
        workload = make_moldable(workload, shape, platform.slots, piece.number)
    if scenario.mix != NO_MIX:
        shapes = folder.parent / SHAPES
        workload = make_workflows(workload, scenario.mix, shapes, piece.number)
    return workload, platform


def _exact(jobs: tuple[LoggedJob, ...]) -> tuple[LoggedJob, ...]:
    return tuple(replace(one, job=replace(one.job, base_time=one.run_s)) for one in jobs)


def _communicating(
    jobs: tuple[LoggedJob, ...], platform: Platform, seed: str, scenario: Scenario
) -> tuple[LoggedJob, ...]:
    largest = max(cluster.slots for cluster in platform.clusters)
    generator = random.Random(seed)
    out = []
    for one in jobs:
        sigma, gbps = generator.uniform(*SIGMA), generator.uniform(*scenario.gbps)
        if scenario.wide or one.job.procs <= largest:
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
