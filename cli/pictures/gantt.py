"""A plan as a picture of text, for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from coalloc.cli.output import WALL_CLOCK_S
from coalloc.model.pictures.plans import Span, name_of, rows_of
from coalloc.model.plan import Placement, Plan
from coalloc.model.values import replace
from coalloc.runtime.texts import clock, length

AT_ONCE_S = 1.0
"""Placements that start so soon after the plan was made were started with it, seconds."""


class Picture(Struct, frozen=True, kw_only=True):
    """Contents of a chart."""

    plan: Plan
    """Planned placements, then those that run."""
    begin: float | None = None
    """Left end, seconds on the plan's axis; None: the first start."""
    now: float | None = None
    """Place of the line for now; None: there is none."""
    running: int = 0
    """How many placements, the last ones, run already."""

    def is_running(self, index: int) -> bool:
        return index >= len(self.plan.placements) - self.running


def picture_of(plan: Plan, running: Sequence[Placement], made: float, now: float) -> Picture:
    """A plan beside what runs; `made` is when the plan was made.

    What has begun of the plan is left out: if it still runs, it is among `running`.
    """
    begun = {(one.job, one.task) for one in running}

    def is_to_come(place: Placement) -> bool:
        runs = (place.job, place.task) in begun
        if place.start > now or (runs and place.chunks is None):
            return not runs or place.chunks is not None
        return not runs and not (now > made + AT_ONCE_S and place.start <= made + AT_ONCE_S)

    planned = tuple(filter(is_to_come, plan.placements))
    return Picture(
        plan=replace(plan, placements=(*planned, *running)),
        begin=min(made, now),
        now=now,
        running=len(running),
    )


SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
IDLE, MIXED = ".", "*"
MARK = "!"
"""Behind the name of what lies on a critical path."""
NOW = "|"
PAST = 0.1
"""Share of the whole that is shown of the time before now."""
MOST_ROWS = 400
"""Before the rest is only counted."""


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


def text_gantt(
    picture: Picture,
    node_clusters: Mapping[str, str],
    *,
    columns: int,
    critical: Collection[int] = (),
) -> list[str]:
    """The plan as lines of text, so many columns wide; placements that are critical are marked."""
    plan = picture.plan
    if not plan.placements:
        return ["nothing is placed"]
    rows = rows_of(plan, node_clusters)
    low, high = extent(picture)
    hidden = len(rows) - MOST_ROWS
    rows = rows[:MOST_ROWS]
    labels = [row.label if len(row.label) <= 30 else row.label[:29] + "~" for row in rows]
    size = max(map(len, labels))
    cells = max(20, columns - size - 2)
    order = sorted(range(len(plan.placements)), key=lambda i: plan.placements[i].start)
    symbols = {index: SYMBOLS[rank % len(SYMBOLS)] for rank, index in enumerate(order)}
    mark = _mark(picture, low, high, cells)
    lines = [
        f"{label:<{size}} |{_cells(row.spans, symbols, low, (high - low) / cells, cells, mark)}"
        for label, row in zip(labels, rows, strict=True)
    ]
    if hidden > 0:
        lines.append(f"{'':<{size}} |... {hidden} more")
    lines.append(f"{'':<{size}} |{_axis(picture, low, high, cells)}")
    return [*lines, "", *_legend(picture, symbols, low, columns, critical, node_clusters)]


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
    if now > WALL_CLOCK_S:
        left, right = f"{left} {clock(now, now)}", f"{clock(high, now)} {right}"
    return f"{left:<{cells - len(right)}}{right}" if len(left) + len(right) < cells else left


def _cells(
    spans: Sequence[Span],
    symbols: Mapping[int, str],
    low: float,
    step: float,
    cells: int,
    mark: int,
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
    picture: Picture,
    symbols: Mapping[int, str],
    low: float,
    columns: int,
    critical: Collection[int],
    node_clusters: Mapping[str, str],
) -> list[str]:
    plan, zero = picture.plan, low if picture.now is None else picture.now
    order = list(symbols)
    shown = order[: len(SYMBOLS)]
    items = [
        f"{symbols[i]} {name_of(p)}{MARK if i in critical else ''}"
        + (
            f" runs, {length(p.end - zero)} left"
            if picture.is_running(i)
            else f" +{length(p.start - zero)} for {length(p.end - p.start)}"
        )
        + (f" on {on}" if (on := _clusters(p, node_clusters)) else "")
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


def _clusters(place: Placement, node_clusters: Mapping[str, str]) -> str:
    """The clusters of a placement on several; empty for one, or where they are not known."""
    names = dict.fromkeys(node_clusters.get(node, "") for node in place.nodes)
    return "+".join(names) if len(names) > 1 else ""
