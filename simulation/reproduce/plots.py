"""One style for all pictures; the only home of matplotlib, which is loaded when it draws.

Colours are those of Okabe and Ito, which readers with any form of colour blindness can tell
apart; each series has a marker or a hatch of its own besides, so that print in grey is enough.

References
----------
M. Okabe, K. Ito, "Color universal design", 2008.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from coalloc.simulation.reproduce.rows import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

T = TypeVar("T")
COLOURS = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "grey": "#7F7F7F",
}
"""By the names that templates have for them."""
BLACK, ORANGE, SKY, GREEN, _, BLUE, VERMILION, PURPLE, GREY = COLOURS.values()
COLUMN, PAGE = 3.5, 7.2
"""Widths of a picture in one and in two columns, inches."""

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
}
FORMATS = ("png", "pdf")
MISSING = (
    "matplotlib is not installed, so there are no pictures: "
    "pip install '.[plot]' in a checkout of coalloc"
)


class NoPlotsError(Exception):
    """The library that draws is absent; the message says how to install it."""


def render(draw: Callable[[Figure], None], size: tuple[float, float]) -> dict[str, bytes]:
    """Draw a picture once, of so many inches, in every format. Raises `NoPlotsError`."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPlotsError(MISSING) from error
    out = {}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        for name in FORMATS:
            file = io.BytesIO()
            # Without a date, the same rows give the same file.
            metadata = {"CreationDate": None} if name == "pdf" else {}
            figure.savefig(file, format=name, metadata=metadata)
            out[name] = file.getvalue()
    return out


def write(
    folder: Path, name: str, draw: Callable[[Figure], None], size: tuple[float, float]
) -> str:
    """Write a picture's files into a folder; returns why there are none, or nothing."""
    try:
        pictures = render(draw, size)
    except NoPlotsError as error:
        return str(error)
    for ending, content in pictures.items():
        (folder / f"{name}.{ending}").write_bytes(content)
    return ""


def panels(figure: Figure, down: int, across: int, **options: Any) -> list[list[Axes]]:
    """Make a grid of axes, lettered (a), (b), … where there are several."""
    grid = figure.subplots(down, across, squeeze=False, **options)
    rows: list[list[Axes]] = [list(row) for row in grid]
    return rows


def letter(rows: Sequence[Sequence[Axes]], titles: Sequence[str]) -> None:
    """Give each panel its letter and title, at the left above it."""
    flat = [axes for row in rows for axes in row]
    for axes, title, sign in zip(flat, titles, "abcdefghij", strict=False):
        axes.set_title(f"({sign}) {title}", loc="left")


def log_scale(axes: Axes, *, vertical: bool = False) -> None:
    """Make an axis logarithmic, with ticks at 1, 2, 5, 10, … as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    if vertical:
        axes.set_yscale("log")
    else:
        axes.set_xscale("log")
    axis = axes.yaxis if vertical else axes.xaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def tick(axis: Any, values: Sequence[float]) -> None:
    """Ticks at these values alone, as plain numbers."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic horizontal axis with ticks at these values."""
    axes.set_xscale("log")
    tick(axes.xaxis, values)


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend for all panels, under them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


class Look(NamedTuple):
    """Colour, marker and label of a series."""

    colour: str
    marker: str
    label: str


def ranges(
    axes: Axes, at: Sequence[float], points: Sequence[Estimate], look: Look, *, joined: bool = True
) -> None:
    """Bars from lowest to highest, the means joined as the MBPC paper draws dispersions."""
    bars = [[max(0.0, p.mean - p.low) for p in points], [max(0.0, p.high - p.mean) for p in points]]
    axes.errorbar(
        at,
        [p.mean for p in points],
        yerr=bars if any(map(any, bars)) else None,
        color=look.colour,
        marker=look.marker,
        markerfacecolor="white",
        linestyle="-" if joined else "none",
        capsize=2.5,
        elinewidth=0.9,
        label=look.label,
    )


def curves(
    axes: Axes,
    looks: Mapping[str, Look],
    across: Sequence[T],
    point: Callable[[str, T], Estimate | float | None],
    beside: Callable[[T, int], float],
    *,
    joined: bool = True,
) -> None:
    """Each series over the places of an axis; it has no point where `point` is None.

    `beside` is where the point of a place lies, by the number of the series.
    """
    for number, (name, look) in enumerate(looks.items()):
        found = [(place, one) for place in across if (one := point(name, place)) is not None]
        points = [
            Estimate(mean=one, low=one, high=one) if isinstance(one, float) else one
            for _, one in found
        ]
        ranges(axes, [beside(place, number) for place, _ in found], points, look, joined=joined)


def bar(
    axes: Axes,
    x: float,
    height: float,
    bottom: float,
    colour: str,
    label: str | None,
    hatch: str = "",
) -> None:
    """One piece of a stacked bar."""
    axes.bar(
        [x],
        [height],
        bottom=[bottom],
        width=0.8,
        color=colour,
        edgecolor=BLACK,
        linewidth=0.5,
        hatch=hatch,
        label=label or "_",
    )
