"""Intervals of expected starts over job logs, replayed by the daemon's core under EASY.

    python -m benchmarks start_intervals --logs ../shared/data/swf [--log NAME ...]

Every log is replayed on one cluster of its own machine's size. Expected starts are two halves, by
the order of the starts. The constants of `coalloc.core.base.start_intervals` were chosen on the
first halves of KTH-SP2 and SDSC-BLUE; their second halves and the other logs were kept back. The
instants are those of the same plans: each width stands beside the error of the very estimate that
it surrounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.logs.fair_shares import faster
from coalloc.adapters.formats.platforms import Platform
from coalloc.core.base.accuracy import ALL, StartAccuracy, start_accuracy
from coalloc.core.base.start_intervals import StartError
from coalloc.model.platform import Cluster, Node
from coalloc.simulation.replay import replay
from coalloc.simulation.workload import read_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A log, the machine it is replayed on, and how many of its first jobs are."""

    file: str
    nodes: int
    per_node: int = 1
    jobs: int = 8000
    load: float | None = None
    """The log is submitted faster or slower, so that it asks for so much of the machine."""


LOGS: dict[str, Machine] = {
    "KTH-SP2-1996": Machine(file="KTH-SP2-1996-2.1-cln.swf.gz", nodes=100),
    "SDSC-BLUE-2000": Machine(file="SDSC-BLUE-2000-4.2-cln.first25k.swf.gz", nodes=144, per_node=8),
    "HPC2N-2002": Machine(file="HPC2N-2002-2.1-cln.first25k.swf.gz", nodes=120, per_node=2),
    "NASA-iPSC-1993": Machine(file="NASA-iPSC-1993-3.1-cln.swf.gz", nodes=128, load=0.9),
    "CEA-Curie-2011": Machine(
        file="CEA-Curie-2011-2.1-cln.first20k.swf.gz", nodes=5832, per_node=16, load=0.9
    ),
    "CERIT-2013": Machine(
        file="CERIT-wagap-2013.part1.xswf.gz", nodes=34, per_node=64, jobs=6000, load=0.9
    ),
    # Grids: machines that their first days and months keep as busy as the others are.
    "METACENTRUM-2009": Machine(
        file="METACENTRUM-2009-2.part1.swf.gz", nodes=20, per_node=8, load=0.9
    ),
    "LCG-2005": Machine(file="LCG-2005.part1.swf.gz", nodes=30, per_node=8, load=0.95),
}


def replayed(machine: Machine, folder: Path, policy: str, jobs: int) -> Sequence[StartError]:
    """Errors of all expected starts, in the order of the starts."""
    workload = read_workload([folder / machine.file], limit=jobs)
    slots = machine.nodes * machine.per_node
    if machine.load is not None:
        workload = faster(workload, slots, machine.load)
    nodes = tuple(Node(name=f"n{n}", slots=machine.per_node) for n in range(machine.nodes))
    platform = Platform(name="machine", clusters=(Cluster(name="a", nodes=nodes),))
    return replay(workload, platform, policy, path="general").start_errors


def line(name: str, half: str, row: StartAccuracy) -> str:
    """A row of the table in docs/PERFORMANCE.md."""
    held = "-" if row.held is None else f"{row.held:.1%}"
    width = "-" if row.width_s is None else f"{row.width_s / 60:.0f}"
    return (
        f"| {name} | {row.kind} | {half} | {row.intervals} | {held} | {width} |"
        f" {row.error_s / 60:.0f} | {row.error_width_s / 60:.0f} |"
    )


def main() -> None:
    """Print a line for each log, kind and half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, required=True, help="folder of the logs")
    parser.add_argument("--log", action="append", choices=tuple(LOGS))
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--jobs", type=int, help="of each log (default: 8000)")
    args = parser.parse_args()
    print("| log | promise | half | starts | held | width, min | error, min | 5-95 %, min |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in args.log or LOGS:
        machine, began = LOGS[name], time.process_time()
        errors = replayed(machine, args.logs, args.policy, args.jobs or machine.jobs)
        for kind in ("first", "later"):
            mine = [error for error in errors if error.kind == kind]
            middle = len(mine) // 2
            for half, part in (("first", mine[:middle]), ("second", mine[middle:])):
                for row in start_accuracy(part):
                    if row.lead == ALL:
                        print(line(name, half, row), flush=True)
        print(f"<!-- {name}: {time.process_time() - began:.0f} s of processor time -->")


if __name__ == "__main__":
    main()
