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
from coalloc.cli.pictures.gantt import name_of, rows_of
from coalloc.cli.pictures.picture import headline
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.gantt import LOCAL, LOCAL_SHADES, SPLIT, SPLIT_SHADES
from coalloc.simulation.gantt_svg import Bar, Chart, Lane, draw

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
    return drawn(snapshot, solve(snapshot, policy, work=WORK))


def drawn(snapshot: Snapshot, plan: Plan) -> str:
    """A plan as SVG; nodes that do the same are one lane."""
    cluster_of = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    rows = rows_of(plan, cluster_of)
    bars = [_bar(plan, index, cluster_of) for index in range(len(plan.placements))]
    lanes = [
        Lane(
            label=f"{row.cluster}:{row.label}",
            height=5 + 6 * len(row.nodes),
            gap=7 if number and row.cluster != rows[number - 1].cluster else 1,
            bars=[bars[index] for _, _, index in row.spans],
        )
        for number, row in enumerate(rows)
    ]
    end = max(place.end for place in plan.placements)
    legend = ((LOCAL, "on one cluster"), (SPLIT, "split over clusters"))
    return draw(
        Chart(title=headline(plan), lanes=lanes, begin=0.0, end=end, zero=0.0, legend=legend)
    )


def _bar(plan: Plan, index: int, cluster_of: Mapping[str, str]) -> Bar:
    place = plan.placements[index]
    clusters = dict.fromkeys(cluster_of[node] for node in place.nodes)
    shades = SPLIT_SHADES if len(clusters) > 1 else LOCAL_SHADES
    where = f"on {'+'.join(clusters)}, {sum(place.nodes.values())} processes"
    return Bar(
        start=place.start,
        end=place.end,
        fill=shades[index % len(shades)],
        title=f"{name_of(place)}: {place.start:g} to {place.end:g} s {where}",
        name=name_of(place),
    )


def write() -> int:
    """Write them all; returns the exit code."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write())
