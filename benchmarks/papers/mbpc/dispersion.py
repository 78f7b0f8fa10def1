"""Figs. 3, 4, 7 and 8 of the MBPC paper: how far jobs are from having the platform alone.

Notes
-----
For each policy and bandwidth the paper draws the largest, mean and smallest difference between a
job's slowdown in the joint allocation and in the standalone one. Of SP the differences are drawn
as they are, weighted by sigma_j, which is what they cost in run time, and against the best
standalone allocation, which is that of `mbpc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import NamedTuple

from benchmarks.papers.mbpc.study import (
    BEST,
    COMPARED,
    NARROWEST,
    POLICIES,
    PRINTED,
    STUDIES,
    WIDEST,
    WORST,
    plotted,
    proofs,
)
from benchmarks.papers.study import Experiment, Looks
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Estimate, Row, Rows, tabulate
from coalloc.simulation.reproduce.words import CLOSE, Facts

SAME = 1e-9
LOW = 0.1
"""Differences between slowdowns up to which they are low, or near each other."""


@dataclass(frozen=True, slots=True)
class View:
    """One panel and its table: a column less another, or by itself where there is none."""

    name: str
    against: str
    title: str
    """Of the panel."""
    axis: str
    """Label of the vertical axis."""
    weighted: bool = False


OWN = View("sp", "sp_alone", "to the same policy standing alone", "SP − SP alone")
WEIGHTED = View("sp", "sp_alone", "the same, weighted by σ", "σ (SP − SP alone)", weighted=True)
TO_BEST = View(
    "sp", "sp_best", "to MBPC standing alone, weighted by σ", "σ (SP − best SP)", weighted=True
)
RATIO = View("ratio", "ratio_alone", "to the same policy standing alone", "ratio − ratio alone")
ITSELF = View("ratio", "", "the ratio itself; links are full at 1", "max ΣBW / ABW")
PROCESSING, LINKS = (OWN, WEIGHTED, TO_BEST), (RATIO, ITSELF)
"""Panels of Figs. 3 and 7, and of Figs. 4 and 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispersion(Estimate):
    """Smallest, mean and largest difference of a run's jobs to standalone, means over the seeds."""

    width: float
    """Largest less smallest: mean and largest over the seeds."""
    widest: float


def seen(rows: Rows, view: View) -> Dispersion:
    """Points of a panel, from the rows of one policy and bandwidth."""

    def value(row: Row) -> float:
        apart = row[view.name] - (row[view.against] if view.against else 0.0)
        return float(apart * (row["sigma"] if view.weighted else 1.0))

    groups = [list(map(value, group)) for group in rows.grouped("seed").values()]
    widths = [max(values) - min(values) for values in groups]
    return Dispersion(
        high=fmean(map(max, groups)),
        mean=fmean(map(fmean, groups)),
        low=fmean(map(min, groups)),
        width=fmean(widths),
        widest=max(widths),
    )


class Width(NamedTuple):
    """The largest dispersion of a policy over the bandwidths: mean over the seeds, and most."""

    mean: float
    most: float


def dispersions(rows: Rows, view: View) -> dict[str, Width]:
    """The width of each policy."""
    out = {}
    for (policy,), own in rows.grouped("policy").items():
        found = [seen(group, view) for group in own.grouped("abw_gbps").values()]
        out[policy] = Width(max(p.width for p in found), max(p.widest for p in found))
    return out


def _processing(limit: float, others: float, every: Rows) -> Facts:
    """Values of the placeholders; the paper has limits on the dispersion of MBPC and the others."""
    rows = plotted(every)
    own, best = dispersions(rows, OWN), dispersions(rows, TO_BEST)
    parts = {policy: rows.where(policy=policy).mean("processing") for policy in COMPARED}
    sp = {policy: rows.where(policy=policy).mean("sp") for policy in COMPARED}
    ties = _free_widths(every)
    return {
        "tables": "\n\n".join(_table(rows, view) for view in PROCESSING),
        "draws": len(rows.grouped("seed")),
        "own": own,
        "weighted": dispersions(rows, WEIGHTED),
        "best": best,
        "widths": _means(best),
        "own_widths": _means(own),
        "ties": ties,
        "rise": _rise(best, others) + [most >= others for most in ties[1:]],
        "text_rise": _rise(own, others),
        "is_within": best["mbpc"].mean <= limit,
        "text_within": own["mbpc"].mean <= limit,
        "narrowest": _least(_means(best)),
        "text_narrowest": _least(_means(own)),
        "lowest": _least(parts),
        "text_lowest": _least(sp),
        "parts": parts,
        "sp": sp,
        **_bandwidths(rows, "mbpc", "near"),
        "printed_within": best[PRINTED].mean <= limit,
        "printed_narrowest": _least(_means(best) | {"mbpc": best[PRINTED].mean}),
        **_bandwidths(rows, PRINTED, "printed_near"),
        **proofs(rows),
    }


def _means(widths: Mapping[str, Width]) -> dict[str, float]:
    return {policy: widths[policy].mean for policy in COMPARED}


def _least(values: Mapping[str, float]) -> list[bool]:
    """Whether the first is below each of the others."""
    first, *others = values.values()
    return [first < other - SAME for other in others]


def _rise(widths: Mapping[str, Width], others: float) -> list[bool]:
    return [widths[other].most >= others * (1.0 - CLOSE) for other in COMPARED[1:]]


def _bandwidths(rows: Rows, policy: str, name: str) -> Facts:
    """Mean difference to the best SP alone at each bandwidth, and whether all are near."""
    groups = rows.where(policy=policy).grouped("abw_gbps").items()
    found = {f"{abw:g}": seen(group, TO_BEST).mean for (abw,), group in groups}
    return {name: found, f"is_{name}": max(found.values()) - min(found.values()) <= LOW}


def _table(rows: Rows, view: View) -> str:
    """Lowest, mean and highest difference, by policy and bandwidth."""

    def cell(group: Rows) -> str:
        point = seen(group, view)
        values = (point.low, point.mean, point.high)
        return ", ".join(f"{value if abs(value) >= 0.005 else 0.0:.2f}" for value in values)

    return tabulate(
        f"{view.axis}: lowest, mean, highest",
        rows.by_code("policy"),
        rows.by_value("abw_gbps", cell, "{:g} Gbit/s"),
    )


def _free_widths(rows: Rows) -> list[float]:
    """Dispersions that JPN's choice spans, largest over the bandwidths; none where not listed."""
    ends = []
    for ties in (NARROWEST, WIDEST):
        groups = rows.where(ties=ties).grouped("abw_gbps").values()
        ends += [max(seen(group, TO_BEST).width for group in groups)] if groups else []
    return ends


def _links(rows: Rows) -> Facts:
    """Values of the placeholders on the load of links."""
    loads = {policy: rows.where(policy=policy).mean("ratio") for policy in POLICIES}
    widths = _means(dispersions(rows, RATIO))
    saturated = rows.only(lambda row: row["sc"] > 1.0 + SAME)
    mbpc, printed, cbs, jpn = loads.values()
    return {
        "tables": "\n\n".join(_table(rows, view) for view in LINKS),
        "loads": loads,
        "rising": dict(sorted(loads.items(), key=lambda item: item[1])),
        "widths": widths,
        "rows": rows,
        "saturated": saturated,
        **proofs(rows),
        "is_low": [width <= LOW for width in widths.values()],
        "mbpc_is_below_cbs": mbpc < cbs,
        "printed_is_below_cbs": printed < cbs,
        "jpn_is_below_cbs": jpn < cbs,
        "cbs_is_highest": cbs >= max(loads.values()),
        "jpn_is_lowest": jpn <= min(loads.values()),
        "are_similar": abs(mbpc / cbs - 1.0) <= 2 * CLOSE,
        "printed_are_similar": abs(printed / cbs - 1.0) <= 2 * CLOSE,
        "is_unsaturated": not saturated,
    }


def _draw(views: Sequence[View], rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    """One panel below the other."""
    rows = plotted(rows)
    grid = plots.panels(figure, len(views), 1, sharex=True)
    for (axes,), view in zip(grid, views, strict=True):
        _ranges(axes, rows, view, looks)
        axes.set_ylabel(view.axis)
        if view is ITSELF:
            axes.axhline(1.0, color=plots.VERMILION, linewidth=0.8, linestyle="--")
    plots.letter(grid, [view.title for view in views])
    grid[-1][0].set_xlabel("bandwidth of the links ABW (Gbit/s), by policy")


def _ranges(axes: plots.Axes, rows: Rows, view: View, looks: Looks) -> None:
    widths = rows.distinct("abw_gbps")
    ticks: list[float] = []
    for number, (policy, look) in enumerate(looks.items()):
        at = [number * (len(widths) + 1.0) + place for place in range(len(widths))]
        points = [seen(rows.where(policy=policy, abw_gbps=abw), view) for abw in widths]
        plots.ranges(axes, at, points, look)
        ticks += at
        axes.annotate(
            look.label,
            ((at[0] + at[-1]) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontweight="bold",
            color=look.colour,
        )
    step = 3 if len(widths) > 4 else 1  # the labels of more would touch
    names = [f"{abw:g}" if n % step == 0 else "" for n, abw in enumerate(widths)]
    axes.set_xticks(ticks, names * len(looks))
    axes.axhline(0.0, color=plots.BLACK, linewidth=0.6)
    axes.grid(visible=False, axis="x")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.15 * (high - low))


def _experiment(
    case: int, views: Sequence[View], facts: Callable[[Rows], Facts], left_out: Sequence[str]
) -> Experiment:
    return Experiment(
        study=STUDIES[case],
        keep=lambda row: row["ties"] not in left_out,
        facts=facts,
        draw=partial(_draw, views),
        size=(plots.COLUMN * 1.33, 1.9 * len(views) + 0.4),
    )


ENDS = (BEST, WORST)
EXPERIMENTS = {
    "mbpc-fig3": _experiment(1, PROCESSING, partial(_processing, 0.05, 0.15), ENDS),
    "mbpc-fig4": _experiment(1, LINKS, _links, (*ENDS, NARROWEST, WIDEST)),
    "mbpc-fig7": _experiment(2, PROCESSING, partial(_processing, 0.2, 0.6), ENDS),
    "mbpc-fig8": _experiment(2, LINKS, _links, (*ENDS, NARROWEST, WIDEST)),
}
