"""A plan in one line, in a few, and as a Gantt chart.

Every slot of a node is a lane, and a placement takes as many as it has processes. Lanes that look
the same are one row, with the names of their nodes folded.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coalloc.model.formats.nodeset import fold
from coalloc.model.pictures.svg import Bar, Chart, Lane, draw
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


LOCAL, SPLIT = "#7a9cc6", "#d9822b"
LOCAL_SHADES = (LOCAL, "#9bb7d9", "#5f86b5", "#b3c9e3", "#8aabd0")
SPLIT_SHADES = (SPLIT, "#e8a463", "#c06c17", "#f0bd8b", "#e09448")
"""Colours of jobs on one cluster, and on several; neighbours can be told apart."""
LEGEND = ((LOCAL, "on one cluster"), (SPLIT, "split over clusters"))
MOST_LINES = 20
"""Placements and deferrals that a text names, each."""


def headline(plan: Plan) -> str:
    """Policy, status, objective, bound and gap in one line."""
    objective = plan.objective
    out = f"{plan.policy}, {plan.status}: {objective.name} {objective.value:.6g}"
    if objective.bound is not None:
        out += f", bound {objective.bound:.6g}"
        gap = objective.gap
        out += "" if gap is None else f", gap {gap:.2%}"
    return out


def counts(plan: Plan) -> str:
    """Count the jobs that a plan places and defers, and its placements if those differ."""
    placed = len({placement.job for placement in plan.placements})
    deferred = len({entry.job for entry in plan.deferred})
    text = f"{placed} job{'' if placed == 1 else 's'} placed"
    if len(plan.placements) != placed:
        text += f" ({len(plan.placements)} placements)"
    return f"{text}, {deferred} deferred"


def text(plan: Plan) -> str:
    """The plan as lines: what it is worth, the first starts, and what has none."""
    lines = [f"{headline(plan)}; {counts(plan)}"]
    for place in sorted(plan.placements, key=lambda p: (p.start, p.job))[:MOST_LINES]:
        folded = fold(place.nodes)
        procs = sum(place.nodes.values())
        lines.append(f"  {name_of(place)}: {place.start:g} to {place.end:g} s, {procs} on {folded}")
    for entry in plan.deferred[:MOST_LINES]:
        lines.append(f"  {name_of(entry)}: no start, {entry.reason}: {entry.detail}".rstrip(": "))
    more = max(len(plan.placements) - MOST_LINES, 0) + max(len(plan.deferred) - MOST_LINES, 0)
    return "\n".join([*lines, f"  ... {more} more"] if more else lines)


def gantt(plan: Plan, cluster_of: Mapping[str, str]) -> str:
    """A plan as SVG; nodes that do the same are one lane.

    Nodes may be missing in `cluster_of`: then clusters are not told apart.
    """
    rows = rows_of(plan, cluster_of)
    bars = [_bar(plan, index, cluster_of) for index in range(len(plan.placements))]
    lanes = [
        Lane(
            label=row.label,
            height=5 + 6 * len(row.nodes),
            gap=7 if number and row.cluster != rows[number - 1].cluster else 1,
            bars=[bars[index] for _, _, index in row.spans],
        )
        for number, row in enumerate(rows)
    ]
    begin = min((place.start for place in plan.placements), default=0.0)
    end = max((place.end for place in plan.placements), default=begin + 1.0)
    return draw(
        Chart(
            title=headline(plan),
            lanes=lanes,
            begin=begin,
            end=max(end, begin + 1e-9),
            zero=begin,
            legend=LEGEND if cluster_of else (),
        )
    )


def _bar(plan: Plan, index: int, cluster_of: Mapping[str, str]) -> Bar:
    place = plan.placements[index]
    clusters = dict.fromkeys(cluster_of.get(node, "") for node in place.nodes)
    shades = SPLIT_SHADES if len(clusters) > 1 else LOCAL_SHADES
    on = f"on {'+'.join(clusters)}, " if any(clusters) else ""
    return Bar(
        start=place.start,
        end=place.end,
        fill=shades[index % len(shades)],
        title=f"{name_of(place)}: {place.start:g} to {place.end:g} s {on}"
        f"{sum(place.nodes.values())} processes",
        name=name_of(place),
    )
