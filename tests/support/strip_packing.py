"""Strip-packing instances as snapshots.

A strip-packing instance is a P|size_j|Cmax instance: the strip's width is the number of processors,
an item's width its processes, its height its run time; ``Demand`` is the number of such items.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot


def read_instance(path: Path) -> Snapshot:
    """Read an instance: one cluster as wide as the strip, a job for each copy of an item."""
    data = json.loads(path.read_text(encoding="utf-8"))
    width = int(data["Objects"][0]["Length"])
    queue: list[RigidJob] = []
    for item in data["Items"]:
        for _ in range(int(item["Demand"])):
            queue.append(
                RigidJob(
                    id=str(len(queue) + 1),
                    procs=int(item["Length"]),
                    base_time=float(item["Height"]),
                )
            )
    nodes = tuple(Node(name=f"n{n}") for n in range(width))
    return Snapshot(clusters=(Cluster(name="strip", nodes=nodes),), queue=tuple(queue))


def perfect_instances(folder: Path) -> list[tuple[Path, float]]:
    """Files of the instances that have a perfect packing, with its height."""
    with (folder / "reference.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    return [
        (folder / row["file"], float(row["perfect_packing_optimum"]))
        for row in rows
        if row["perfect_packing_optimum"]
    ]
