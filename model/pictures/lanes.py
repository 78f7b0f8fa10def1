"""Lanes of a plan: every slot of a node is one, and a placement takes as many as it has processes.

Lanes that look the same are one row, with the names of their nodes folded.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coalloc.model.formats.nodeset import fold
from coalloc.model.plan import Deferred, Placement, Plan

Span = tuple[float, float, int]
"""Start, end, index of the placement."""


class Row(Struct, frozen=True, kw_only=True):
    """Lanes that look the same."""

    cluster: str
    """Empty where it is not known."""
    nodes: tuple[str, ...]
    """One name for each lane; a node with several such lanes comes several times."""
    spans: tuple[Span, ...]
    """By rising start."""

    @property
    def label(self) -> str:
        """Cluster, node set, and lanes of each node where there are several."""
        names = list(dict.fromkeys(self.nodes))
        lanes = len(self.nodes) // len(names)
        cluster = f"{self.cluster}:" if self.cluster else ""
        return cluster + fold(names) + (f" x{lanes}" if lanes > 1 else "")


def rows_of(plan: Plan, node_clusters: Mapping[str, str]) -> list[Row]:
    """The lanes of all nodes the plan uses, by cluster, equal ones together."""
    lanes: dict[str, list[list[Span]]] = {}
    order = sorted(range(len(plan.placements)), key=lambda i: plan.placements[i].start)
    for index in order:
        placement = plan.placements[index]
        for node, count in placement.nodes.items():
            _occupy(lanes.setdefault(node, []), count, (placement.start, placement.end, index))
    known = {node: i for i, node in enumerate(node_clusters)}
    same: dict[tuple[str, tuple[Span, ...]], list[str]] = {}
    for node in sorted(lanes, key=lambda n: known.get(n, len(known))):
        for lane in lanes[node]:
            same.setdefault((node_clusters.get(node, ""), tuple(lane)), []).append(node)
    return [
        Row(cluster=cluster, nodes=tuple(nodes), spans=spans)
        for (cluster, spans), nodes in same.items()
    ]


def _occupy(lanes: list[list[Span]], count: int, span: Span) -> None:
    """Give a placement the first lanes that are free; spans come by rising start."""
    for lane in lanes:
        if not count:
            return
        if lane[-1][1] <= span[0] + 1e-9:
            lane.append(span)
            count -= 1
    lanes.extend([span] for _ in range(count))


def name_of(entry: Placement | Deferred) -> str:
    """Job, or job and task."""
    return entry.job if entry.task is None else f"{entry.job}.{entry.task}"
