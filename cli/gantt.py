"""A plan as a picture: text for a terminal, SVG and HTML for everything else.

Every slot of a node is a lane; a placement takes as many lanes of a node as it has processes
there. Lanes that look the same are drawn once, with the names of their nodes folded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from coalloc.cli.picture import Picture, headline
from coalloc.model.nodeset import fold
from coalloc.model.plan import Placement, Plan
from coalloc.runtime.texts import length

SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
IDLE, MIXED = ".", "*"
MARK = "!"
"""Behind the name of what lies on a critical path."""
NOW = "|"
PAST = 0.1
"""Share of the whole that is shown of the time before now."""
MOST_ROWS = 400
"""Rows of a text; lanes of an SVG before they get too thin are not limited."""

Span = tuple[float, float, int]
"""Start, end, index of the placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Lanes that look the same.

    Attributes
    ----------
    cluster : str
        Empty where it is not known.
    nodes : tuple of str
        One name for each lane; a node with several such lanes comes several times.
    spans : tuple of Span
        By rising start.
    """

    cluster: str
    nodes: tuple[str, ...]
    spans: tuple[Span, ...]

    @property
    def label(self) -> str:
        """Node set, and lanes of each node where there are several."""
        names = list(dict.fromkeys(self.nodes))
        lanes = len(self.nodes) // len(names)
        return fold(names) + (f" x{lanes}" if lanes > 1 else "")


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


def extent(picture: Picture) -> tuple[float, float]:
    """First and last instant shown; of what runs already, only a little before now."""
    places = picture.plan.placements
    first = min(
        (p.start for i, p in enumerate(places) if not picture.is_running(i)),
        default=0.0 if picture.begin is None else picture.begin,
    )
    low = first if picture.begin is None else min(picture.begin, first)
    high = max((p.end for p in places), default=low)
    high = high if high > low else low + 1.0
    begun = min((places[-k].start for k in range(1, picture.running + 1)), default=low)
    return max(begun, low - PAST * (high - low)) if begun < low else low, high


def name_of(placement: Placement) -> str:
    """Job, or job and task."""
    return placement.job if placement.task is None else f"{placement.job}.{placement.task}"


def text_gantt(
    picture: Picture,
    node_clusters: Mapping[str, str],
    *,
    columns: int,
    critical: Collection[int] = (),
) -> list[str]:
    """The plan as lines of text.

    Parameters
    ----------
    columns : int
        Width of the whole.
    critical : collection of int
        Placements to be marked, by index.
    """
    plan = picture.plan
    if not plan.placements:
        return ["nothing is placed"]
    rows = rows_of(plan, node_clusters)
    low, high = extent(picture)
    hidden = len(rows) - MOST_ROWS
    rows = rows[:MOST_ROWS]
    labels = [f"{row.cluster}:{row.label}" if row.cluster else row.label for row in rows]
    labels = [label if len(label) <= 30 else label[:29] + "~" for label in labels]
    size = max(map(len, labels))
    cells = max(20, columns - size - 2)
    symbols = _symbols(plan)
    mark = _mark(picture, low, high, cells)
    lines = [
        f"{label:<{size}} |{_cells(row.spans, symbols, low, (high - low) / cells, cells, mark)}"
        for label, row in zip(labels, rows, strict=True)
    ]
    if hidden > 0:
        lines.append(f"{'':<{size}} |... {hidden} more")
    lines.append(f"{'':<{size}} |{_axis(picture, low, high, cells)}")
    return [*lines, "", *_legend(picture, symbols, low, columns, critical)]


def _mark(picture: Picture, low: float, high: float, cells: int) -> int:
    """The column of now; 0 where it is not known."""
    now = low if picture.now is None else min(max(picture.now, low), high)
    return min(cells - 1, int((now - low) / (high - low) * cells))


def _axis(picture: Picture, low: float, high: float, cells: int) -> str:
    """The line under the lanes: where now is, and the right end, counted from there."""
    now = low if picture.now is None else picture.now
    mark = _mark(picture, low, high, cells)
    right = f"+{length(high - now)}"
    left = " " * mark + ("^now" if picture.now is not None else "0")
    return f"{left:<{cells - len(right)}}{right}" if len(left) + len(right) < cells else left


def _symbols(plan: Plan) -> list[str]:
    order = sorted(range(len(plan.placements)), key=lambda i: plan.placements[i].start)
    out = [""] * len(order)
    for rank, index in enumerate(order):
        out[index] = SYMBOLS[rank % len(SYMBOLS)]
    return out


def _cells(
    spans: Sequence[Span], symbols: Sequence[str], low: float, step: float, cells: int, mark: int
) -> str:
    """One character for each step of time; `MIXED` where several placements share it.

    Where nothing is, `NOW` stands in the column `mark`, if this is above 0.
    """
    out = [IDLE] * cells
    for start, end, index in spans:
        first = max(0, min(cells - 1, int((start - low) / step + 1e-6)))
        last = max(first + 1, min(cells, int((end - low) / step - 1e-6) + 1))
        for k in range(first, last):
            out[k] = symbols[index] if out[k] == IDLE else MIXED
    if mark > 0 and out[mark] == IDLE:
        out[mark] = NOW
    return "".join(out)


def _legend(
    picture: Picture, symbols: Sequence[str], low: float, columns: int, critical: Collection[int]
) -> list[str]:
    plan, zero = picture.plan, low if picture.now is None else picture.now
    order = sorted(range(len(symbols)), key=lambda i: plan.placements[i].start)
    shown = order[: len(SYMBOLS)]
    items = [
        f"{symbols[i]} {name_of(p)}{MARK if i in critical else ''}"
        + (
            f" runs, {length(p.end - zero)} left"
            if picture.is_running(i)
            else f" +{length(p.start - zero)} for {length(p.end - p.start)}"
        )
        for i, p in ((i, plan.placements[i]) for i in shown)
    ]
    size = max(map(len, items)) + 2
    per_line = max(1, columns // size)
    lines = [
        "".join(item.ljust(size) for item in items[k : k + per_line]).rstrip()
        for k in range(0, len(items), per_line)
    ]
    if len(order) > len(shown):
        lines.append(f"{len(order) - len(shown)} more use the same letters again, in this order")
    return lines


WIDTH, LEFT, TOP, FOOT = 1200, 220, 30, 28
PLAIN = 'stroke="#fff" stroke-width=".4"'
FRAME = 'stroke="#b00" stroke-width="1.6"'


def svg_gantt(
    picture: Picture,
    node_clusters: Mapping[str, str],
    *,
    critical: Collection[int] = (),
) -> str:
    """The plan as SVG; pointing at a bar shows the job, a frame marks the critical ones."""
    plan = picture.plan
    rows = rows_of(plan, node_clusters)
    low, high = extent(picture)
    scale = (WIDTH - LEFT - 10) / (high - low)
    parts, y, cluster = [], TOP, None
    for row in rows:
        if row.cluster != cluster:
            cluster, y = row.cluster, y + 6
        tall = min(60, 6 + 6 * len(row.nodes))
        label = f"{row.cluster}:{row.label}" if row.cluster else row.label
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{tall - 1}" '
            f'fill="#f3f4f6"/><text x="{LEFT - 6}" y="{y + tall / 2:g}" text-anchor="end">'
            f"{escape(label if len(label) <= 34 else label[:33] + '…')}</text>"
        )
        for start, end, index in row.spans:
            placed, start = plan.placements[index], max(start, low)
            frame = FRAME if index in critical else PLAIN
            zero = low if picture.now is None else picture.now
            when = "runs" if picture.is_running(index) else _offset(start - zero)
            x, wide = LEFT + (start - low) * scale, max((end - start) * scale, 0.5)
            parts.append(_bar(placed, index, when, (x, wide, y, tall), frame))
        y += tall
    zero = low if picture.now is None else picture.now
    if picture.now is not None:
        x = LEFT + (zero - low) * scale
        parts.append(
            f'<path d="M{x:.1f} {TOP}V{y + 4}" stroke="#c00" stroke-width="1.5">'
            f"<title>now</title></path>"
            f'<text x="{x:.1f}" y="{TOP - 4}" fill="#c00" text-anchor="middle">now</text>'
        )
    for k in range(9):
        x = LEFT + (WIDTH - LEFT - 10) * k / 8
        parts.append(
            f'<path d="M{x:.1f} {TOP}V{y + 4}" stroke="#9aa3ad" stroke-width=".5"/>'
            f'<text x="{x:.1f}" y="{y + 14}" text-anchor="middle">'
            f"{_offset(low + (high - low) * k / 8 - zero)}</text>"
        )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + FOOT}" '
        f'viewBox="0 0 {WIDTH} {y + FOOT}" font-family="sans-serif" font-size="11" '
        f'dominant-baseline="middle"><rect width="{WIDTH}" height="{y + FOOT}" fill="#fff"/>'
        f'<text x="{LEFT}" y="16" font-size="13">{escape(headline(plan))}</text>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _bar(
    placement: Placement,
    index: int,
    when: str,
    box: tuple[float, float, float, float],
    frame: str,
) -> str:
    """A placement in its box: left end, width, top, height."""
    x, wide, y, tall = box
    name = escape(name_of(placement))
    # 137.5 degrees apart, so that neighbours in the order differ
    hue = index * 137.5 % 360
    words = f"{length(placement.end - placement.start)} on {len(placement.nodes)} nodes, " + (
        f"{sum(placement.nodes.values())} processes"
    )
    inside = wide > 7 * len(name) and tall >= 12
    label = f'<text x="{x + 3:.1f}" y="{y + tall / 2:g}">{name}</text>' if inside else ""
    return (
        f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{tall - 1}" '
        f'fill="hsl({hue:.0f} 55% 72%)" {frame}><title>{name}: '
        f"{when}, {words}</title></rect>{label}"
    )


def _offset(seconds: float) -> str:
    """A time counted from now."""
    return f"-{length(-seconds)}" if seconds < -0.5 else f"+{length(seconds)}"


def html_gantt(
    picture: Picture,
    node_clusters: Mapping[str, str],
    *,
    critical: Collection[int] = (),
) -> str:
    """The picture and the list of placements as one page without outside parts."""
    plan = picture.plan
    zero = extent(picture)[0] if picture.now is None else picture.now
    rows = "".join(
        f"<tr><td>{escape(name_of(p))}</td><td>{_offset(p.start - zero)}</td>"
        f"<td>{length(p.end - p.start)}</td><td>{sum(p.nodes.values())}</td>"
        f"<td>{escape(fold(p.nodes))}</td></tr>"
        for p in sorted(plan.placements, key=lambda p: p.start)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(headline(plan))}</title><style>body{{font:13px sans-serif;margin:1em}}"
        "td,th{text-align:left;padding:.1em .8em}</style></head><body>\n"
        + svg_gantt(picture, node_clusters, critical=critical)
        + "<table><tr><th>job</th><th>start</th><th>length</th><th>processes</th>"
        f"<th>nodes</th></tr>{rows}</table></body></html>\n"
    )
