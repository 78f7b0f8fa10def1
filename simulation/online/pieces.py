"""Pieces of real job logs, in two halves: one to choose by, one to report on.

Notes
-----
The usable jobs of a log are cut into pieces of `PIECE_JOBS` consecutive ones; what is left at the
end is not used. A piece is called LOG@NUMBER, and the first byte of the SHA-256 of that name tells
its half: even is `choose`, odd is `report`. So the halves never depend on a result. All pieces of
the logs that are kept back belong to `report`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from coalloc.adapters.formats.platforms import Platform, read_platform
from coalloc.model.errors import InputError
from coalloc.model.platform import Cluster, Node
from coalloc.model.values import replace
from coalloc.simulation.workload import Workload, piece_of, read_workload

PIECE_JOBS = 1500
CHOOSE, REPORT, BOTH = "choose", "report", "both"
SHARES = (0.4, 0.3, 0.2, 0.1)
"""Of the nodes, by cluster, where a log's machine is cut into several."""
LINK_GBPS = 1.0
"""Of such a cluster."""


class NoDataError(InputError):
    """A log is absent; the message says where it was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log and the machine that it is replayed on."""

    name: str
    file: str
    nodes: int
    """Of the machine as one cluster: its nodes, and the slots of each."""
    slots: int = 1
    clusters: str = ""
    """File with its own clusters; empty: it is cut by `SHARES`."""
    kept_back: bool = False
    """No piece of it is used for choosing."""


LOGS: Mapping[str, Log] = {
    log.name: log
    for log in (
        Log(name="KTH-SP2", file="KTH-SP2-1996-2.1-cln.swf.gz", nodes=100),
        Log(name="HPC2N", file="HPC2N-2002-2.1-cln.first25k.swf.gz", nodes=120, slots=2),
        Log(name="SDSC-BLUE", file="SDSC-BLUE-2000-4.2-cln.first25k.swf.gz", nodes=144, slots=8),
        Log(
            name="METACENTRUM",
            file="METACENTRUM-2009-2.part1.swf.gz",
            nodes=403,
            slots=2,
            clusters="METACENTRUM-2009-2.clusters.json",
        ),
        Log(name="NASA-iPSC", file="NASA-iPSC-1993-3.1-cln.swf.gz", nodes=128),
        Log(name="LCG", file="LCG-2005.part1.swf.gz", nodes=4903, slots=5),
        Log(
            name="CEA-Curie",
            file="CEA-Curie-2011-2.1-cln.first20k.swf.gz",
            nodes=5832,
            slots=16,
            kept_back=True,
        ),
        Log(
            name="CERIT-wagap",
            file="CERIT-wagap-2013.part1.xswf.gz",
            nodes=136,
            slots=16,
            clusters="CERIT-wagap-2013.machines",
            kept_back=True,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
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
    """The folder of the logs: as given, else ../shared/data/swf, or where COALLOC_SHARED says.

    Raises `NoDataError`.
    """
    found = folder or Path(os.environ.get("COALLOC_SHARED") or "../shared", "data", "swf")
    if not found.is_dir():
        what = "is absent; --data or COALLOC_SHARED names the folder of the logs"
        raise NoDataError(str(found), what)
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
        raise NoDataError(str(path), "is absent")
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
