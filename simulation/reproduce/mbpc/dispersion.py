"""Figs. 3, 4, 7 and 8 of the MBPC paper: how far jobs are from having the platform alone.

Notes
-----
For each policy and bandwidth the paper draws the largest, mean and smallest difference between a
job's slowdown in the joint allocation and in the standalone one. Of SP the differences are drawn
as they are, weighted by sigma_j, which is what they cost in run time, and against the best
standalone allocation, which is that of `mbpc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.mbpc.study import (
    BEST,
    COLUMNS,
    NARROWEST,
    POLICIES,
    WIDEST,
    WORST,
    Dispersion,
    dispersion,
    plotted,
    proofs,
    study,
)
from coalloc.simulation.reproduce.rows import column, distinct, grouped, table, where

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

LOOKS = {
    "mbpc": (plots.BLUE, "o"),
    "cbs": (plots.ORANGE, "s"),
    "jpn": (plots.GREEN, "^"),
}
PROCESSING_CLAIMS = {
    1: "MBPC has the smallest dispersion and the lowest processing slowdown: its dispersion is no "
    "greater than 5 %, while that of CBS and JPN rises to 15 %.",
    2: "With every node's power drawn at random, MBPC stays near the standalone slowdown whatever "
    "the bandwidth: its dispersion is no greater than 20 %, while that of CBS and JPN rises to "
    "60 %.",
}
SAME = 1e-9
PAPER_WIDTHS = {1: (0.05, 0.15), 2: (0.2, 0.6)}
"""Dispersion of MBPC and of the others, as the paper's text has them."""
LINK_CLAIMS = {
    1: "All have a low dispersion; MBPC and JPN have the lowest communication slowdown, CBS the "
    "highest. A value below 1 only means that no link is saturated.",
    2: "JPN is better, since it minimises nothing but the occupation of the network; MBPC and CBS "
    "are alike, and no link is saturated.",
}


def _measure(case: int, name: str, run: Run) -> Iterable[Row]:
    rows = study(run, case)
    if name == "ratio":
        return plotted(rows)
    return [row for row in rows if row["ties"] not in (BEST, WORST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One panel: a column less another, or by itself where there is none.

    Attributes
    ----------
    title : str
        Of the panel and of its table.
    axis : str
        Label of the vertical axis.
    """

    name: str
    against: str
    weighted: bool
    title: str
    axis: str


OWN = View(
    name="sp",
    against="sp_alone",
    weighted=False,
    title="to the same policy standing alone",
    axis="SP − SP alone",
)
WEIGHTED = View(
    name="sp",
    against="sp_alone",
    weighted=True,
    title="the same, weighted by σ",
    axis="σ (SP − SP alone)",
)
TO_BEST = View(
    name="sp",
    against="sp_best",
    weighted=True,
    title="to MBPC standing alone, weighted by σ",
    axis="σ (SP − best SP)",
)
RATIO = View(
    name="ratio",
    against="ratio_alone",
    weighted=False,
    title="to the same policy standing alone",
    axis="ratio − ratio alone",
)
ITSELF = View(
    name="ratio",
    against="",
    weighted=False,
    title="the ratio itself; links are full at 1",
    axis="max ΣBW / ABW",
)
VIEWS = {"sp": (OWN, WEIGHTED, TO_BEST), "ratio": (RATIO, ITSELF)}


def seen(rows: Sequence[Row], view: View) -> Dispersion:
    """Points of a panel, from the rows of one policy and bandwidth."""
    if not view.against:
        rows = [{**row, "": 0.0} for row in rows]
    return dispersion(rows, view.name, view.against, weighted=view.weighted)


def dispersions(rows: Sequence[Row], view: View) -> dict[str, tuple[float, float]]:
    """Of each policy the largest width over the bandwidths: mean over the seeds, and any seed's."""
    out = {}
    for policy in POLICIES:
        groups = grouped(where(rows, policy=policy), "abw_gbps").values()
        found = [seen(group, view) for group in groups]
        out[policy] = (max(p.width for p in found), max(p.widest for p in found))
    return out


def _table(rows: Sequence[Row], view: View) -> str:
    """Lowest, mean and highest difference, by policy and bandwidth."""
    lines = [
        [
            f"`{policy}`",
            *(_shown(seen(group, view)) for group in grouped(mine, "abw_gbps").values()),
        ]
        for policy in POLICIES
        if (mine := where(rows, policy=policy))
    ]
    head = [f"{abw:g} Gbit/s" for abw in distinct(rows, "abw_gbps")]
    return table((f"{view.axis}: lowest, mean, highest", *head), lines)


def _shown(point: Dispersion) -> str:
    values = (point.low, point.mean, point.high)
    return ", ".join(f"{value if abs(value) >= 0.005 else 0.0:.2f}" for value in values)


def _describe_processing(case: int, every: Sequence[Row]) -> Story:
    rows = plotted(every)
    own, weighted, best = (dispersions(rows, view) for view in VIEWS["sp"])
    seeds = len(grouped(rows, "seed"))
    among = f", mean over {seeds} draws of the powers (largest of any in brackets)"
    reached = ", ".join(f"`{policy}` {best[policy][0]:.3f}" for policy in POLICIES)
    return Story(
        headline="dispersion of SP to the best alone, weighted: "
        + ", ".join(f"{policy} {best[policy][0]:.3f}" for policy in POLICIES)
        + "".join(f" ({low:.3f} to {high:.3f} by its ties)" for low, high in free_widths(every)),
        claims=(PROCESSING_CLAIMS[case],),
        measured=(
            *(_table(rows, view) for view in VIEWS["sp"]),
            f"Largest dispersion over the bandwidths{among if case == 2 else ''}:",
            table(
                ("SP less", *(f"`{policy}`" for policy in POLICIES)),
                [
                    [name, *(_width(widths[policy], case) for policy in POLICIES)]
                    for name, widths in (
                        ("the same policy's alone", own),
                        ("the same, weighted by σ", weighted),
                        ("`mbpc`'s alone, weighted by σ", best),
                    )
                ],
            ),
            *(
                f"By the last reading, the allocations of least traffic, of which `jpn` takes one, "
                f"have dispersions of {low:.3f} to {high:.3f} (largest over the bandwidths of the "
                "least and of the greatest; all of them are listed)."
                for low, high in free_widths(every)
            ),
            proofs(rows),
        ),
        reasons=(
            "The paper does not say whether the differences are weighted by σ_j, the share of a "
            "job's time that its processing slowdown acts on, nor whose standalone allocation is "
            f"the reference. Weighted and against the best standalone value they are {reached}; "
            f"the paper says {PAPER_WIDTHS[case][0]:.2f} for MBPC and up to "
            f"{PAPER_WIDTHS[case][1]:.2f} for the others. {_agreement(case, best, every)}",
            "Against their own standalone allocations CBS and JPN can even gain from company: "
            "blind to power, they give a job that is alone whatever clusters come first, and in "
            "company other ones. Which of several allocations of equal traffic they take is a "
            "matter of how they break ties, which the paper does not publish.",
            *(
                ("The paper shows one draw of the powers; here are the means over several.",)
                if case == 2
                else ()
            ),
        ),
    )


def free_widths(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Dispersions that JPN's choice spans, largest over the bandwidths; none where not listed."""
    ends = []
    for ties in (NARROWEST, WIDEST):
        groups = grouped(where(rows, ties=ties), "abw_gbps").values()
        ends += [max(seen(group, TO_BEST).width for group in groups)] if groups else []
    return [(ends[0], ends[1])] if ends else []


def _agreement(case: int, widths: Mapping[str, tuple[float, float]], rows: Sequence[Row]) -> str:
    """Agreement with the paper's sentence by the last reading."""
    ours = widths["mbpc"][0]
    said = "MBPC's is" if ours <= PAPER_WIDTHS[case][0] else "MBPC's is not"
    others = [
        f"{policy.upper()}'s is {'larger' if widths[policy][0] > ours + SAME else 'no larger'}"
        for policy in POLICIES[1:]
    ]
    out = f"{said} within the paper's limit; {', '.join(others)} than it."
    for low, high in free_widths(rows):
        out += (
            f" JPN's lies between {low:.3f} and {high:.3f} by a choice that the paper leaves open."
        )
    return out


def _width(pair: tuple[float, float], case: int) -> str:
    return f"{pair[0]:.3f}" + (f" ({pair[1]:.3f})" if case == 2 else "")


def _describe_links(case: int, every: Sequence[Row]) -> Story:
    rows = plotted(every)
    widths = dispersions(rows, RATIO)
    means = mean_ratios(rows)
    order = sorted(POLICIES, key=lambda policy: means[policy])
    saturated = sum(row["sc"] > 1.0 + 1e-9 for row in rows)
    return Story(
        headline="mean load by capacity: "
        + ", ".join(f"{policy} {means[policy]:.3f}" for policy in order),
        claims=(LINK_CLAIMS[case],),
        measured=(
            *(_table(rows, view) for view in VIEWS["ratio"]),
            "The ratio itself, mean over jobs and bandwidths: "
            + ", ".join(f"`{policy}` {means[policy]:.3f}" for policy in order)
            + ". Largest dispersion of the differences: "
            + ", ".join(f"`{policy}` {widths[policy][0]:.3f}" for policy in POLICIES)
            + ".",
            f"SC itself, which is at least 1, is above 1 in {saturated} of {len(rows)} rows.",
            proofs(rows),
        ),
        reasons=(
            "Equation (7) as printed rewards a link that is hardly used with an SC below 1; the "
            "paper's own text says that communication gets no faster by it, and our cost model "
            "clamps SC at 1. Among allocations that run equally long `mbpc` takes one of least "
            "load by the printed equation. "
            + (
                "With one power a cluster there are many of them, so its links are emptier than "
                "the others' at no loss of time."
                if case == 1
                else "Where every node has its own power hardly any two allocations run equally "
                "long, so `mbpc` pays for strong nodes with traffic up to the limit."
            ),
            "JPN minimises the sum of the loads, not the load of the fullest link that a job "
            "uses, which is what SC is. So it need not have the lowest SC, and here CBS, which "
            "minimises neither, has a lower one.",
        ),
    )


def mean_ratios(rows: Sequence[Row]) -> dict[str, float]:
    """The ratio itself by policy, mean over jobs, bandwidths and draws."""
    return {policy: fmean(column(where(rows, policy=policy), "ratio")) for policy in POLICIES}


def _draw(name: str, rows: Sequence[Row], figure: Figure) -> None:
    """One panel below the other."""
    rows = plotted(rows)
    views = VIEWS[name]
    grid = plots.panels(figure, len(views), 1, sharex=True)
    for (axes,), view in zip(grid, views, strict=True):
        _ranges(axes, rows, view)
        axes.set_ylabel(view.axis)
        if view is ITSELF:
            axes.axhline(1.0, color=plots.VERMILION, linewidth=0.8, linestyle="--")
    plots.letter(grid, [view.title for view in views])
    grid[-1][0].set_xlabel("bandwidth of the links ABW (Gbit/s), by policy")


def _ranges(axes: Axes, rows: Sequence[Row], view: View) -> None:
    widths = distinct(rows, "abw_gbps")
    ticks: list[float] = []
    for number, policy in enumerate(POLICIES):
        at = [number * (len(widths) + 1.0) + place for place in range(len(widths))]
        points = [seen(where(rows, policy=policy, abw_gbps=abw), view) for abw in widths]
        plots.ranges(
            axes,
            at,
            [p.low for p in points],
            [p.mean for p in points],
            [p.high for p in points],
            colour=LOOKS[policy][0],
            marker=LOOKS[policy][1],
            label=policy.upper(),
        )
        ticks += at
        axes.annotate(
            policy.upper(),
            ((at[0] + at[-1]) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontweight="bold",
            color=LOOKS[policy][0],
        )
    step = 2 if len(widths) > 4 else 1  # the labels of more would touch
    names = [f"{abw:g}" if n % step == 0 else "" for n, abw in enumerate(widths)]
    axes.set_xticks(ticks, names * len(POLICIES))
    axes.axhline(0.0, color=plots.BLACK, linewidth=0.6)
    axes.grid(visible=False, axis="x")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.15 * (high - low))


def _experiment(case: int, name: str) -> Experiment:
    describe = _describe_processing if name == "sp" else _describe_links
    return Experiment(
        columns=COLUMNS,
        reduced="three bandwidths" + (" and two draws of the powers." if case == 2 else "."),
        size=(plots.COLUMN, 1.9 * len(VIEWS[name]) + 0.4),
        measure=partial(_measure, case, name),
        describe=partial(describe, case),
        draw=partial(_draw, name),
    )


EXPERIMENTS = {
    "mbpc-fig3": _experiment(1, "sp"),
    "mbpc-fig4": _experiment(1, "ratio"),
    "mbpc-fig7": _experiment(2, "sp"),
    "mbpc-fig8": _experiment(2, "ratio"),
}
