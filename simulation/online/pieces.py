"""Pieces of real job logs, each in the circumstances of a scenario.

Notes
-----
The usable jobs of a log are cut into pieces of `PIECE_JOBS` consecutive ones; what is left at the
end is not used. A piece is called LOG@NUMBER, and the first byte of the SHA-256 of that name tells
its half: even is `choose`, odd is `report`. So the halves never depend on a result. All pieces of
the logs that are kept back belong to `report`.

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
drawn by the piece's number; `simulation.kinds` says how they are drawn. Shapes of real
workflows come from the folder ``workflows/dax`` beside that of the logs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import tomli
from msgspec import Struct

from coalloc.adapters.formats.platforms import Platform, read_platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.errors import InputError
from coalloc.model.formats.structs import read_json
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.values import replace
from coalloc.simulation.kinds import Mix, Shape, make_moldable, make_workflows
from coalloc.simulation.workload import Workload, piece_of, read_workload

PIECE_JOBS = 1500
CHOOSE, REPORT, BOTH = "choose", "report", "both"
SHARES = (0.4, 0.3, 0.2, 0.1)
"""Of the nodes, by cluster, where a log's machine is cut into several."""
LINK_GBPS = 1.0
"""Of such a cluster."""
SIGMA = (0.3, 1.0)
PARALLEL = (0.8, 0.98)
NO_MIX = Mix()
SHAPES = Path("workflows", "dax")
"""Folder of workflow files, beside that of the logs."""


class Log(Struct, frozen=True, kw_only=True):
    """A log and the machine that it is replayed on."""

    name: str = ""
    file: str
    nodes: int
    """Of the machine as one cluster: its nodes, and the slots of each."""
    slots: int = 1
    clusters: str = ""
    """File with its own clusters; empty: it is cut by `SHARES`."""
    kept_back: bool = False
    """No piece of it is used for choosing."""


class Scenario(Struct, frozen=True, kw_only=True):
    """One circumstance."""

    name: str = ""
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
    gbps: tuple[float, float] = (0.0, 0.02)
    """Where the machine is several clusters: least and most bandwidth of a process, Gbit/s."""
    wide: bool = False
    """Keep jobs wider than the largest cluster."""
    history: bool = True
    """What ended in the log before the piece is known; else the site is in its first week."""
    moldable: float = 0.0
    """Share of the jobs that are."""
    mix: Mix = NO_MIX
    """Shares of the jobs that are workflows or arrays."""
    study: str = ""
    """Name that stands for this scenario and others; those without one are the default."""
    against: str = ""
    """Scenario of the same jobs that this one is compared with."""


class Declared(Struct, frozen=True, kw_only=True):
    """Choices of a bench."""

    policies: tuple[str, ...]
    logs: dict[str, Log]
    scenarios: dict[str, Scenario]


def read_declared(path: Path) -> Declared:
    """Read the file of a bench. Raises `InputError`."""
    found: Declared = read_json(tomli.loads(path.read_text("utf-8")), Declared, str(path))
    return Declared(
        policies=found.policies,
        logs={name: replace(log, name=name) for name, log in found.logs.items()},
        scenarios={name: replace(one, name=name) for name, one in found.scenarios.items()},
    )


DECLARED = read_declared(Path(__file__).parent / "data" / "online.toml")
LOGS, EVERY = DECLARED.logs, DECLARED.scenarios


class Piece(Struct, frozen=True, kw_only=True):
    """Consecutive jobs of a log, by number from 0."""

    log: Log
    number: int

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.log.name}@{self.number:02}"

    @property
    def half(self) -> str:
        """`choose` or `report`; see the module's notes."""
        odd = sha256(self.name.encode()).digest()[0] % 2
        return REPORT if odd or self.log.kept_back else CHOOSE


def find_data(folder: Path | None = None) -> Path:
    """The folder of the logs: ../shared/data/swf or COALLOC_SHARED's. Raises `InputError`."""
    found = folder or Path(os.environ.get("COALLOC_SHARED") or "../shared", "data", "swf")
    if not found.is_dir():
        what = "is absent; --data or COALLOC_SHARED names the folder of the logs"
        raise InputError(str(found), what)
    return found


def choose_logs(names: Sequence[str]) -> list[Log]:
    """The logs of these names, all of them if there are none. Raises `InputError`."""
    for name in names:
        if name not in LOGS:
            raise InputError("--logs", f"there is no log {name!r}; there are {', '.join(LOGS)}")
    return [LOGS[name] for name in names or LOGS]


def cut(log: Log, folder: Path, half: str = BOTH, most: int | None = None) -> list[Piece]:
    """The pieces of a log that belong to a half; `most` of them, evenly spread."""
    count = len(read_log(log, folder).jobs) // PIECE_JOBS
    pieces = [Piece(log=log, number=number) for number in range(count)]
    pieces = [piece for piece in pieces if half in (BOTH, piece.half)]
    if most is None or most >= len(pieces):
        return pieces
    return [pieces[(2 * n + 1) * len(pieces) // (2 * most)] for n in range(most)]


@cache
def read_log(log: Log, folder: Path) -> Workload:
    """All jobs of a log that fit its machine. Raises `InputError`."""
    path = folder / log.file
    if not path.exists():
        raise InputError(str(path), "is absent")
    read = read_workload([path])
    slots = log.nodes * log.slots
    return replace(read, jobs=tuple(one for one in read.jobs if one.job.procs <= slots))


def take(piece: Piece, folder: Path, jobs: int = PIECE_JOBS) -> Workload:
    """The first jobs of a piece."""
    logged = read_log(piece.log, folder).jobs
    return piece_of(logged, piece.number * PIECE_JOBS, min(jobs, PIECE_JOBS), piece.name)


@cache
def single(log: Log) -> Platform:
    """The machine of a log as one cluster."""
    return Platform(name=log.name, clusters=(_cluster("c1", log.nodes, log.slots),))


@cache
def several(log: Log, folder: Path) -> Platform:
    """The clusters of a log: its own, or its machine cut by `SHARES`."""
    if log.clusters:
        return read_platform(folder / log.clusters)
    bounds = [0, *(round(log.nodes * sum(SHARES[: k + 1])) for k in range(len(SHARES)))]
    sizes = [high - low for low, high in pairwise(bounds)]
    return Platform(
        name=f"{log.name} in {len(sizes)}",
        clusters=tuple(_cluster(f"c{k}", nodes, log.slots) for k, nodes in enumerate(sizes, 1)),
    )


def _cluster(name: str, nodes: int, slots: int) -> Cluster:
    members = tuple(Node(name=f"{name}n{n}", slots=slots) for n in range(1, nodes + 1))
    return Cluster(name=name, nodes=members, link_gbps=LINK_GBPS)


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
