"""Draw small schedules of the policies into docs/policies/pictures/: ``make docs`` runs it.

Each policy plans the same small queue of its kind, with limits in counts, so that the same pictures
come in every run. docs/policies/pictures.md shows them side by side.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coalloc import read_snapshot, solve
from coalloc.model.pictures.plans import gantt

FOLDER = Path(__file__).resolve().parent / "policies" / "pictures"
WORK = 2000
CLUSTERS = [
    {"name": "alpha", "link_gbps": 1.0, "nodes": [{"name": "a[1-4]"}]},
    {"name": "beta", "link_gbps": 1.0, "nodes": [{"name": "b[1-4]"}]},
]
RIGID = [
    {"id": name, "kind": "rigid", "procs": procs, "base_time": minutes * 60.0, "proc_gbps": 0.1}
    for name, procs, minutes in (
        ("A", 3, 40),
        ("B", 4, 60),
        ("C", 6, 30),
        ("D", 2, 20),
        ("E", 1, 50),
        ("F", 2, 30),
        ("G", 5, 20),
        ("H", 1, 90),
    )
]
"""Processes and minutes: C and G are wider than a cluster."""
MOLDABLE = [
    {
        "id": name,
        "kind": "moldable",
        "max_procs": 8,
        "weight": weight,
        "speedup": {"model": "amdahl", "time": minutes * 60.0, "parallel_fraction": fraction},
    }
    for name, minutes, fraction, weight in (
        ("A", 120, 0.95, 1.0),
        ("B", 60, 0.6, 3.0),
        ("C", 90, 0.9, 1.0),
        ("D", 30, 0.5, 5.0),
        ("E", 45, 0.8, 2.0),
        ("F", 20, 0.3, 4.0),
    )
]
"""Minutes on one process, what of it is parallel, weight."""
WORKFLOW = [
    {
        "id": "w",
        "kind": "workflow",
        "tasks": [
            {"id": name, "work": minutes * 60.0, "parallel_fraction": 0.9, "max_procs": 8}
            for name, minutes in (
                ("split", 10),
                ("left", 60),
                ("mid", 40),
                ("right", 50),
                ("join", 30),
            )
        ],
        "edges": [
            {"from": one, "to": other, "gb": 10.0}
            for one, other in (
                ("split", "left"),
                ("split", "mid"),
                ("split", "right"),
                ("left", "join"),
                ("mid", "join"),
                ("right", "join"),
            )
        ],
    }
]
DIVISIBLE = [*RIGID, {"id": "scan", "kind": "divisible", "work": 4 * 3600.0, "chunk_s": 300.0}]
QUEUES: Mapping[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "rigid": (RIGID, ("fcfs", "easy", "conservative", "oas", "oas-slots", "mbpc", "cbs", "auto")),
    "moldable": (MOLDABLE, ("sequential", "gang", "two-shelf", "demt", "bicriteria")),
    "workflow": (WORKFLOW, ("m-heft", "mca-heft", "workflow")),
    "divisible": (DIVISIBLE, ("easy",)),
}
"""By the kind of queue: its jobs, and the policies that plan it."""


def pictures() -> Iterator[tuple[str, str]]:
    """Name and text of each picture."""
    for kind, (queue, policies) in QUEUES.items():
        for policy in policies:
            yield f"{kind}-{policy}.svg", picture(queue, policy)


def picture(queue: list[dict[str, Any]], policy: str) -> str:
    """The plan of a queue as SVG."""
    snapshot = read_snapshot(
        {"format": "coalloc-snapshot/1", "time": 0.0, "clusters": CLUSTERS, "queue": queue}
    )
    cluster_of = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    return gantt(solve(snapshot, policy, work=WORK), cluster_of)


def write() -> int:
    """Write them all; returns the exit code."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write())
