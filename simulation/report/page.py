"""One HTML page with nothing outside it, in light and dark; charts as SVG in the page's colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import ceil, floor, log10
from pathlib import Path

from coalloc.model.errors import InputError

SHADES = 7
"""Colours and dashes that the style has for series; further series begin again."""


def check_report(path: Path | None) -> None:
    """Refuse a report that could not be written, at once. Raises `InputError`."""
    if path is not None and path.is_dir():
        raise InputError("--report", f"{path} is a folder")
    if path is not None and not path.parent.is_dir():
        raise InputError("--report", f"there is no folder {path.parent}")


def html_page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """The page of these parts, which are HTML; the titles are plain text."""
    style = (files(__package__) / "data" / "report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>\n"
        f'<h1>{escape(title)}</h1><p class="quiet">{escape(subtitle)}</p>\n'
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A part of a page under a heading; `parts` are HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[frozenset[int]] = ()
) -> str:
    """A table of plain texts; of each row, the columns in `best` are marked."""
    marks = best or [frozenset()] * len(rows)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="best">{escape(cell)}</td>' if i in mark else f"<td>{escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row, mark in zip(rows, marks, strict=True)
    )
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


WIDTH, HEIGHT = 600, 300
LEFT, RIGHT, TOP, FOOT = 58, 12, 30, 46
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MOST_TICKS = 5

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale, from data to shares of the plot."""

    name: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False
    """The scale is logarithmic; values are above 0."""

    def share(self, value: float) -> float:
        """The place of a value, 0..1."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = log10(low), log10(high), log10(max(value, self.low))
        return min(max((value - low) / (high - low), 0.0), 1.0)


def linear(name: str, high: float, text: Callable[[float], str]) -> Axis:
    """An axis from 0 on, that ends at or behind `high`, with a few round ticks."""
    span = max(high, 1e-9)
    power = 10.0 ** floor(log10(span / MOST_TICKS))
    step = next(s * power for s in STEPS if span / (s * power) <= MOST_TICKS)
    count = max(1, ceil(span / step - 1e-9))
    ticks = [(i * step, text(i * step)) for i in range(count + 1)]
    return Axis(name, 0.0, count * step, ticks)


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[tuple[str, Points]]) -> str:
    """Lines over a common axis, each with a colour and dashes of its own."""
    parts = _frame(x, y, [name for name, _ in series])
    for i, (_, points) in enumerate(series):
        path = " ".join(f"{_x(x.share(a)):.1f},{_y(y.share(b)):.1f}" for a, b in points)
        parts.append(f'<polyline class="l{i % SHADES}" points="{path}"/>')
    return _svg(title, parts)


def bar_chart(
    title: str,
    groups: Sequence[str],
    y: Axis,
    series: Sequence[tuple[str, Sequence[float | None]]],
    name: str,
) -> str:
    """Bars side by side in groups, whose axis has a name; None draws none."""
    size = 1.0 / max(len(groups), 1)
    middles = [((i + 0.5) * size, group) for i, group in enumerate(groups)]
    x = Axis(name, 0.0, 1.0, middles)
    parts = _frame(x, y, [label for label, _ in series] if len(series) > 1 else [])
    width = 0.8 * size / max(len(series), 1)
    for i, (label, values) in enumerate(series):
        for j, value in enumerate(values):
            if value is None:
                continue
            left = _x(j * size + 0.1 * size + i * width)
            right, top = _x(j * size + 0.1 * size + (i + 1) * width), _y(y.share(value))
            parts.append(
                f'<rect class="f{i % SHADES}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{max(right - left - 1, 0.5):.1f}" height="{_y(0.0) - top:.1f}">'
                f"<title>{escape(label)}, {escape(groups[j])}: {value:.4g}</title></rect>"
            )
    return _svg(title, parts)


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - FOOT - share * (HEIGHT - TOP - FOOT)


def _frame(x: Axis, y: Axis, names: Sequence[str]) -> list[str]:
    """Grid, ticks, names of the axes, and a legend."""
    base = HEIGHT - FOOT
    parts = []
    for value, text in y.ticks:
        at = _y(y.share(value))
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        )
    for value, text in x.ticks:
        at = _x(x.share(value))
        parts.append(
            f'<text x="{at:.1f}" y="{base + 16}" text-anchor="middle">{escape(text)}</text>'
        )
    parts.append(
        f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" '
        f'text-anchor="middle">{escape(x.name)}</text>'
        f'<text class="name" transform="translate(12 {(TOP + base) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y.name)}</text>'
    )
    left = LEFT
    for i, name in enumerate(names):
        parts.append(
            f'<path class="l{i % SHADES}" d="M{left} 12h22"/>'
            f'<text x="{left + 27}" y="16">{escape(name)}</text>'
        )
        left += 44 + 7 * len(name)
    return parts


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )
