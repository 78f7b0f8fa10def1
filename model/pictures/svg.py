"""Gantt charts as SVG: lanes over time, with bars or shares.

What a lane is, a node's slots or a whole cluster, is the caller's choice; so is what its bars are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct

WIDTH, LEFT, RIGHT, TOP, FOOT = 1200, 150, 20, 46, 34
"""Of the whole, and of the margins, pixels; names are in the left one."""
COLUMNS = WIDTH - LEFT - RIGHT
"""Pixels from the plot's left edge to its right."""
STEPS_S = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 4 * 3600, 8 * 3600, 86400),
    *(2 * 86400, 5 * 86400, 10 * 86400, 20 * 86400, 50 * 86400, 100 * 86400),
)
UNITS_S = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
MOST_TICKS = 10


class Bar(Struct, frozen=True, kw_only=True):
    """A rectangle in a lane."""

    start: float
    end: float
    """Seconds on the chart's axis."""
    fill: str
    title: str
    """Shown by pointing at it."""
    name: str
    """Written into it where there is room."""
    top: float = 0.0
    bottom: float = 1.0
    """Shares of the lane's height, from above."""


class Area(Struct, frozen=True, kw_only=True):
    """A share of a lane over time."""

    shares: Sequence[float]
    """One for each pixel of the plot, 0..1."""
    fill: str


class Lane(Struct, frozen=True, kw_only=True):
    """One row of a chart."""

    label: str
    height: float
    """Pixels."""
    aside: str = ""
    """Behind the label, less prominent."""
    gap: float = 0.0
    """The space above it, pixels."""
    bars: Sequence[Bar] = ()
    areas: Sequence[Area] = ()
    note: str = ""
    """Written into its upper left corner."""


class Chart(Struct, frozen=True, kw_only=True):
    """A whole chart."""

    title: str
    lanes: Sequence[Lane]
    begin: float
    end: float
    """What is shown, seconds."""
    zero: float
    """From where the axis counts."""
    legend: Sequence[tuple[str, str]] = ()
    """Fill and text."""

    def x(self, instant: float) -> float:
        return LEFT + (instant - self.begin) * COLUMNS / (self.end - self.begin)


def draw(chart: Chart) -> str:
    """The chart as SVG."""
    parts: list[str] = []
    top = float(TOP)
    for lane in chart.lanes:
        top += lane.gap
        parts += _lane(chart, lane, top)
        top += lane.height
    parts += _ticks(chart, top)
    return "\n".join([_head(chart, top + FOOT), *parts, "</svg>"]) + "\n"


def _lane(chart: Chart, lane: Lane, top: float) -> list[str]:
    middle = top + lane.height / 2
    aside = f' <tspan fill="#667">{escape(lane.aside)}</tspan>' if lane.aside else ""
    out = [
        f'<rect x="{LEFT}" y="{top:g}" width="{COLUMNS}" height="{lane.height:g}" '
        f'fill="#f3f4f6"/><text x="{LEFT - 8}" y="{middle:.1f}" text-anchor="end">'
        f"{escape(lane.label)}{aside}</text>"
    ]
    out += [_area(area, top, lane.height) for area in lane.areas]
    for bar in lane.bars:
        out += _bar(chart, bar, top, lane.height)
    if lane.note:
        out.append(f'<text x="{LEFT + 4}" y="{top + 9:g}">{escape(lane.note)}</text>')
    return out


def _bar(chart: Chart, bar: Bar, top: float, height: float) -> list[str]:
    left, right = chart.x(max(bar.start, chart.begin)), chart.x(min(bar.end, chart.end))
    wide, y, tall = max(right - left, 0.3), top + bar.top * height, (bar.bottom - bar.top) * height
    out = [
        f'<rect class="job" x="{left:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}" '
        f'fill="{bar.fill}"><title>{escape(bar.title)}</title></rect>'
    ]
    if wide > 7 * len(bar.name) and tall > 10:
        x, middle = left + wide / 2, y + tall / 2
        out.append(f'<text class="in" x="{x:.1f}" y="{middle:.1f}">{escape(bar.name)}</text>')
    return out


def _area(area: Area, top: float, height: float) -> str:
    ys = (top + height * (1.0 - min(max(share, 0.0), 1.0)) for share in area.shares)
    steps = " ".join(f"V{y:.1f}H{LEFT + i + 1}" for i, y in enumerate(ys))
    bottom = top + height
    return f'<path fill="{area.fill}" d="M{LEFT} {bottom:g}{steps}V{bottom:g}Z"/>'


def _ticks(chart: Chart, bottom: float) -> list[str]:
    out = []
    for instant, label in ticks_of(chart.begin, chart.end, chart.zero):
        x = chart.x(instant)
        out.append(f'<path class="tick" d="M{x:.1f} {TOP}V{bottom + 5:g}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 17:g}" text-anchor="middle">{label}</text>')
    return out


def ticks_of(begin: float, end: float, zero: float) -> list[tuple[float, str]]:
    """Instants of an axis with their labels, lengths of time since `zero`."""
    span = end - begin
    step = next((float(s) for s in STEPS_S if span / s <= MOST_TICKS), span / MOST_TICKS)
    unit, name = next(pair for pair in UNITS_S if step >= pair[0] or pair[0] == 1)
    first, last = math.ceil((begin - zero) / step - 1e-9), math.floor((end - zero) / step)
    return [
        (zero + number * step, f"{number * step / unit:g} {name}")
        for number in range(first, last + 1)
    ]


def _head(chart: Chart, height: float) -> str:
    legend, x = "", LEFT
    for fill, text in chart.legend:
        legend += (
            f'<rect x="{x}" y="28" width="10" height="10" fill="{fill}"/>'
            f'<text x="{x + 15}" y="33">{escape(text)}</text>'
        )
        x += 30 + 6 * len(text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" font-size="11" '
        'dominant-baseline="middle" fill="#223">'
        "<style>.job{stroke:#fff;stroke-width:.4}"
        ".in{text-anchor:middle;font-size:10px}"
        ".tick{stroke:#9aa3ad;stroke-width:.5;stroke-dasharray:2 3;fill:none}</style>"
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
        f'<text x="{LEFT}" y="16" font-size="13">{escape(chart.title)}</text>{legend}'
    )
