"""Gantt charts as SVG: lanes over time, with bars, shares and ties between lanes.

What a lane is, a node's slots or a whole cluster, is the caller's choice; so is what its bars are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, RIGHT, TOP, FOOT = 1200, 20, 46, 34
"""Of the whole, and of the margins, pixels."""
STEPS_S = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 4 * 3600, 8 * 3600, 86400),
    *(2 * 86400, 5 * 86400, 10 * 86400, 20 * 86400, 50 * 86400, 100 * 86400),
)
UNITS_S = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
MOST_TICKS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A rectangle in a lane.

    Attributes
    ----------
    start, end : float
        Seconds on the chart's axis.
    top, bottom : float
        Shares of the lane's height, from above.
    title : str
        Shown by pointing at it.
    name : str
        Written into it where there is room.
    is_framed : bool
        Marked as important.
    """

    start: float
    end: float
    fill: str
    title: str
    name: str
    top: float = 0.0
    bottom: float = 1.0
    is_framed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A share of a lane over time.

    Attributes
    ----------
    shares : sequence of float
        One for each pixel of the plot, 0..1.
    """

    shares: Sequence[float]
    fill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row of a chart.

    Attributes
    ----------
    aside : str
        Behind the label, less prominent.
    height, gap : float
        Its own, and the space above it, pixels.
    note : str
        Written into its upper left corner.
    """

    label: str
    height: float
    aside: str = ""
    gap: float = 0.0
    bars: Sequence[Bar] = ()
    areas: Sequence[Area] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A line between lanes, at the start of what belongs together.

    Attributes
    ----------
    lanes : tuple of int
        By index.
    """

    time: float
    lanes: tuple[int, ...]
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A whole chart.

    Attributes
    ----------
    begin, end : float
        What is shown, seconds.
    now : float or None
        Where the line for now is.
    zero : float
        From where the axis counts, where it is no wall clock.
    is_clock : bool
        Times are wall-clock time.
    left : int
        Room for labels, pixels.
    legend : sequence of (fill, text)
    """

    title: str
    lanes: Sequence[Lane]
    begin: float
    end: float
    zero: float
    is_clock: bool = False
    now: float | None = None
    left: int = 150
    legend: Sequence[tuple[str, str]] = ()
    ties: Sequence[Tie] = ()

    @property
    def columns(self) -> int:
        """Pixels from the plot's left edge to its right."""
        return WIDTH - self.left - RIGHT

    def x(self, instant: float) -> float:
        """The pixel of an instant."""
        return self.left + (instant - self.begin) * self.columns / (self.end - self.begin)


def draw(chart: Chart) -> str:
    """The chart as SVG."""
    parts: list[str] = []
    middles: list[float] = []
    top = float(TOP)
    for lane in chart.lanes:
        top += lane.gap
        middles.append(top + lane.height / 2)
        parts += _lane(chart, lane, top)
        top += lane.height
    parts += _ticks(chart, top)
    parts += [_tie(chart, tie, middles) for tie in chart.ties]
    if chart.now is not None:
        parts.append(_now(chart.x(chart.now), top))
    return "\n".join([_head(chart, top + FOOT), *parts, "</svg>"]) + "\n"


def _lane(chart: Chart, lane: Lane, top: float) -> list[str]:
    middle = top + lane.height / 2
    aside = f' <tspan fill="#667">{escape(lane.aside)}</tspan>' if lane.aside else ""
    out = [
        f'<rect x="{chart.left}" y="{top:g}" width="{chart.columns}" height="{lane.height:g}" '
        f'fill="#f3f4f6"/><text x="{chart.left - 8}" y="{middle:.1f}" text-anchor="end">'
        f"{escape(lane.label)}{aside}</text>"
    ]
    out += [_area(chart, area, top, lane.height) for area in lane.areas]
    for bar in lane.bars:
        out += _bar(chart, bar, top, lane.height)
    if lane.note:
        out.append(f'<text x="{chart.left + 4}" y="{top + 9:g}">{escape(lane.note)}</text>')
    return out


def _bar(chart: Chart, bar: Bar, top: float, height: float) -> list[str]:
    left, right = chart.x(max(bar.start, chart.begin)), chart.x(min(bar.end, chart.end))
    wide, y, tall = max(right - left, 0.3), top + bar.top * height, (bar.bottom - bar.top) * height
    kind = "job key" if bar.is_framed else "job"
    out = [
        f'<rect class="{kind}" x="{left:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}" '
        f'fill="{bar.fill}"><title>{escape(bar.title)}</title></rect>'
    ]
    if wide > 7 * len(bar.name) and tall > 10:
        x, middle = left + wide / 2, y + tall / 2
        out.append(f'<text class="in" x="{x:.1f}" y="{middle:.1f}">{escape(bar.name)}</text>')
    return out


def _area(chart: Chart, area: Area, top: float, height: float) -> str:
    ys = (top + height * (1.0 - min(max(share, 0.0), 1.0)) for share in area.shares)
    steps = " ".join(f"V{y:.1f}H{chart.left + i + 1}" for i, y in enumerate(ys))
    bottom = top + height
    return f'<path fill="{area.fill}" d="M{chart.left} {bottom:g}{steps}V{bottom:g}Z"/>'


def _tie(chart: Chart, tie: Tie, middles: Sequence[float]) -> str:
    """A line through the lanes, with a dot on each of them."""
    x, ys = chart.x(max(tie.time, chart.begin)) + 3.0, [middles[lane] for lane in tie.lanes]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for y in ys)
    return (
        f'<g class="tie"><title>{escape(tie.title)}</title>'
        f'<path d="M{x:.1f} {min(ys):.1f}V{max(ys):.1f}"/>{dots}</g>'
    )


def _now(x: float, bottom: float) -> str:
    return (
        f'<path d="M{x:.1f} {TOP}V{bottom + 4:g}" stroke="#c00" stroke-width="1.5">'
        f"<title>now</title></path>"
        f'<text x="{x:.1f}" y="{TOP - 5}" fill="#c00" text-anchor="middle">now</text>'
    )


def _ticks(chart: Chart, bottom: float) -> list[str]:
    out = []
    for instant, label in ticks_of(chart.begin, chart.end, chart.zero, is_clock=chart.is_clock):
        x = chart.x(instant)
        out.append(f'<path class="tick" d="M{x:.1f} {TOP}V{bottom + 5:g}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 17:g}" text-anchor="middle">{label}</text>')
    return out


def ticks_of(
    begin: float, end: float, zero: float, *, is_clock: bool = False
) -> list[tuple[float, str]]:
    """Instants of an axis with their labels: times of day, or lengths of time since `zero`."""
    span = end - begin
    step = next((float(s) for s in STEPS_S if span / s <= MOST_TICKS), span / MOST_TICKS)
    if is_clock:
        zero = -float(time.localtime(begin).tm_gmtoff)
    unit, name = next(pair for pair in UNITS_S if step >= pair[0] or pair[0] == 1)
    out = []
    first, last = math.ceil((begin - zero) / step - 1e-9), math.floor((end - zero) / step)
    for number in range(first, last + 1):
        at = zero + number * step
        label = _time_of_day(at, step) if is_clock else f"{number * step / unit:g} {name}"
        out.append((at, label))
    return out


def _time_of_day(at: float, step: float) -> str:
    """The hour; at midnight, and where days are counted, the date."""
    there = time.localtime(at)
    if step >= 86400 or (there.tm_hour, there.tm_min, there.tm_sec) == (0, 0, 0):
        return time.strftime("%Y-%m-%d", there)
    return time.strftime("%H:%M" if step >= 60 else "%H:%M:%S", there)


def _head(chart: Chart, height: float) -> str:
    legend, x = "", chart.left
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
        "<style>.job{stroke:#fff;stroke-width:.4}.key{stroke:#b00;stroke-width:1.6}"
        ".in{text-anchor:middle;font-size:10px}.tie{fill:#223}"
        ".tie path{stroke:#223;stroke-width:1;stroke-dasharray:3 2;fill:none}"
        ".tick{stroke:#9aa3ad;stroke-width:.5;stroke-dasharray:2 3;fill:none}</style>"
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
        f'<text x="{chart.left}" y="16" font-size="13">{escape(chart.title)}</text>{legend}'
    )
