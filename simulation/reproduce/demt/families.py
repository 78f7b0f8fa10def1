"""Figs. 3 to 6 of the bi-criteria paper: both criteria by their bounds, a family of jobs each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.demt.claims import COMMON, FAMILIES, Family, two
from coalloc.simulation.reproduce.demt.ratios import (
    MAKESPAN,
    PRICED,
    REPAIRED,
    between,
    bound_table,
    furthest,
    means,
    ratio,
    ratio_table,
)
from coalloc.simulation.reproduce.demt.study import (
    ACCEPTED,
    BALANCED,
    COLUMNS,
    GANG,
    REACHED,
    REDUCED,
    WORK,
    study,
)
from coalloc.simulation.reproduce.experiment import Experiment, Row, Story
from coalloc.simulation.reproduce.rows import distinct, grouped, spread, table, where

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

PANELS = (
    (MAKESPAN, "makespan / its bound"),
    (REPAIRED, "completion / the paper's program"),
    (PRICED, "completion / prices"),
)
LOOKS = {
    REACHED: (plots.VERMILION, "o"),
    ACCEPTED: (plots.VERMILION, "D"),
    GANG: (plots.GREY, "P"),
    "sequential": (plots.PURPLE, "X"),
    "list-shelf": (plots.SKY, "v"),
    "list-lptf": (plots.ORANGE, "^"),
    "list-saf": (plots.GREEN, "s"),
    "list-smith": (plots.BLACK, "<"),
    "two-shelf": (plots.YELLOW, "d"),
    BALANCED: (plots.BLUE, "*"),
}
AT_BOUND = 1e-6
"""Share by which a makespan that is called so may be above it."""
LOWEST, HIGHEST = 0.97, 5.0
TICKS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)


def wins(rows: Sequence[Row]) -> tuple[int, int]:
    """Runs on which `bicriteria` is better in both criteria than both readings, and all runs."""
    won = runs = 0
    for group in grouped(rows, "jobs", "run").values():
        by_name = {row["algorithm"]: row for row in group}
        if BALANCED not in by_name:
            continue
        runs += 1
        won += all(
            by_name[BALANCED][name] < by_name[reading][name]
            for reading in (REACHED, ACCEPTED)
            for name in ("makespan_s", "completion")
        )
    return won, runs


def _describe(rows: Sequence[Row], family: Family) -> Story:
    averages = {
        (name, names): spread(list(means(rows, name, names).values()), two)
        for name in (REACHED, BALANCED)
        for names in (MAKESPAN, REPAIRED, PRICED)
    }
    won, runs = wins(rows)
    claims = (*family.claims, *COMMON)
    return Story(
        headline=f"`demt`: makespan {averages[REACHED, MAKESPAN]}, weighted completion "
        f"{averages[REACHED, REPAIRED]} by the paper's bounds, {averages[REACHED, PRICED]} by "
        f"prices; `bicriteria`: {averages[BALANCED, MAKESPAN]} and {averages[BALANCED, PRICED]}",
        claims=tuple(text for text, _ in claims),
        measured=(
            f"`demt` averages {averages[REACHED, MAKESPAN]} of the bound on the makespan, and "
            f"{averages[REACHED, REPAIRED]} of the paper's (repaired) on the weighted completion. "
            "Claim by claim:",
            table(("The paper", "Here"), [(text, tell(rows)) for text, tell in claims]).replace(
                "---:", "---"
            ),
            "Averages are ratios of sums, in brackets the lowest and the highest of one run. "
            "Makespan by the dual approximation's bound:",
            ratio_table(rows, "makespan", MAKESPAN),
            "Weighted completion by the paper's program, repaired:",
            ratio_table(rows, "weighted completion", REPAIRED),
            f"Weighted completion by the bound from prices, {_counted(rows)}:",
            ratio_table(rows, "weighted completion", PRICED),
            f"`bicriteria` is the balanced point of its front, with {WORK:,} jobs placed or "
            f"priced. That point is better in both criteria than both readings of `demt` on {won} "
            f"of {runs} runs. Runs on which some point of the front is: {_dominated(rows)}.",
            f"The picture ends at a ratio of {HIGHEST:g}. The bounds on the weighted completion:",
            bound_table(rows),
        ),
        reasons=(*family.reasons(rows), *_reasons(rows)),
    )


def _dominated(rows: Sequence[Row]) -> str:
    """On how many runs the front has a point that is better in both criteria, and could have."""
    parts = []
    for name in distinct(rows, "algorithm"):
        found = [row for row in where(rows, algorithm=name) if row["dominated"] is not None]
        if name == BALANCED or not found:
            continue
        least = sum(
            not row["dominated"] and row["makespan_s"] <= row["makespan_bound_s"] * (1.0 + AT_BOUND)
            for row in found
        )
        told = f" (its makespan is at the bound on {least} more)" if least else ""
        parts.append(f"`{name}` {sum(row['dominated'] for row in found)} of {len(found)}{told}")
    return ", ".join(parts)


def _counted(rows: Sequence[Row]) -> str:
    """Number of runs that have it, where not all do."""
    parts = []
    for jobs in distinct(rows, "jobs"):
        mine = where(rows, jobs=jobs, algorithm=REACHED)
        known = [row for row in mine if row["priced"] is not None]
        parts.append(f"{len(known)} of {len(mine)} runs at {jobs} jobs")
    return ", ".join(parts)


def _reasons(rows: Sequence[Row]) -> tuple[str, ...]:
    mine = [row for row in where(rows, algorithm=REACHED) if row["priced"] is not None]
    by_program, by_prices = ratio(mine, REPAIRED), ratio(mine, PRICED)
    assert by_program is not None
    assert by_prices is not None
    accepted = list(means(rows, ACCEPTED, MAKESPAN).values())
    return (
        "Most of the ratio of the weighted completion is the bound's: prices prove "
        f"{between(rows, 'priced'):.2f} times what the paper's program does, so that `demt`'s "
        f"{by_program.mean:.2f} (over the runs that have both) is {by_prices.mean:.2f} of a sum "
        "that nobody can go below.",
        "The text gives neither its instances nor the reading of C*. Here `demt` takes for C* what "
        "the two-shelf allotments reach; with the smallest accepted guess it averages "
        f"{spread(accepted, two)} on the makespan.",
        "The program is missing from the text and was put together from the words around it. As "
        "printed it covers no completion before its first interval or behind its last, so it may "
        "prove too much: on these instances up to "
        f"{100.0 * (furthest(rows, 'lp_printed') - 1.0):.1f} % more than the repaired one.",
    )


def _draw(rows: Sequence[Row], figure: Figure) -> None:
    (grid,) = plots.panels(figure, 1, len(PANELS), sharex=True, sharey=True)
    for axes, (names, _) in zip(grid, PANELS, strict=True):
        _panel(axes, rows, names)
    grid[0].set_ylabel("ratio")
    plots.letter([grid], [title for _, title in PANELS])
    plots.legend_below(figure, grid[0], 5)


def _panel(axes: Axes, rows: Sequence[Row], names: tuple[str, str]) -> None:
    sizes = distinct(rows, "jobs")
    for place, (name, (colour, marker)) in enumerate(LOOKS.items()):
        found = {
            jobs: one
            for jobs in sizes
            if (one := ratio(where(rows, algorithm=name, jobs=jobs), names)) is not None
        }
        beside = 2.0 ** (0.07 * (place - 4.5))
        plots.ranges(
            axes,
            [jobs * beside for jobs in found],
            [one.low for one in found.values()],
            [one.mean for one in found.values()],
            [one.high for one in found.values()],
            colour=colour,
            marker=marker,
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(LOWEST, HIGHEST)
    for axis, ticks in ((axes.xaxis, sizes), (axes.yaxis, TICKS)):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("jobs")


def _experiment(family: Family) -> Experiment:
    return Experiment(
        columns=COLUMNS,
        reduced=REDUCED,
        size=(plots.PAGE, 3.8),
        measure=lambda run: study(run, family.name),
        describe=lambda rows: _describe(rows, family),
        draw=_draw,
    )


EXPERIMENTS = {name: _experiment(family) for name, family in FAMILIES.items()}
