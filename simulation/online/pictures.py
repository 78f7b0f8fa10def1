"""The pictures of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coalloc.simulation.online.bench import Bench, Row
from coalloc.simulation.online.compare import by_piece, compare, mean_of, policies_of, waiting
from coalloc.simulation.online.measures import CLASSES
from coalloc.simulation.reproduce import plots

BASE = "easy"
Draw = Callable[[Bench, Sequence[Row], "plots.Figure"], None]
Size = Callable[[Bench], tuple[float, float]]
COLOURS = (plots.BLUE, plots.VERMILION, plots.GREEN, plots.PURPLE, plots.ORANGE, plots.SKY)
MARKERS = "osD^vP"
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++", "oo")


def _draw_ratios(bench: Bench, rows: Sequence[Row], figure: plots.Figure) -> None:
    """Mean wait and slowdown of each policy by EASY's, with intervals, in each scenario."""
    policies = [name for name in policies_of(rows) if name != BASE]
    (axes,) = plots.panels(figure, 1, 2, sharey=True)
    columns = ("wait_mean", "slowdown_mean")
    count = len(bench.scenarios)
    for one, column in zip(axes, columns, strict=True):
        for number, scenario in enumerate(bench.scenarios):
            found = waiting(by_piece(r for r in rows if r["scenario"] == scenario.name))
            shift = (number - (count - 1) / 2) * 0.8 / count
            for place, policy in enumerate(policies):
                ratio = compare(found, policy, BASE, column)
                if ratio is not None:
                    one.errorbar(
                        [ratio.mean],
                        [place + shift],
                        xerr=[[ratio.mean - ratio.low], [ratio.high - ratio.mean]],
                        color=COLOURS[number % len(COLOURS)],
                        marker=MARKERS[number % len(MARKERS)],
                        markersize=3,
                        elinewidth=0.8,
                        linestyle="none",
                        label=scenario.name if place == 0 else None,
                    )
        one.axvline(1.0, color=plots.BLACK, linewidth=0.8)
        plots.log_scale(one)
    axes[0].set_yticks(range(len(policies)), policies)
    axes[0].invert_yaxis()
    axes[0].set_xlabel("mean wait by EASY's")
    axes[1].set_xlabel("mean bounded slowdown by EASY's")
    plots.legend_below(figure, axes[0], min(count, 6))


def _draw_logs(bench: Bench, rows: Sequence[Row], figure: plots.Figure) -> None:
    """Mean waits by log, a panel for each scenario; logs without waiting stay empty."""
    policies = policies_of(rows)
    logs = list(dict.fromkeys(row["log"] for row in rows))
    grid = plots.panels(figure, len(bench.scenarios), 1, sharex=True)
    width = 0.8 / len(policies)
    for (one,), scenario in zip(grid, bench.scenarios, strict=True):
        mine = [row for row in rows if row["scenario"] == scenario.name]
        for number, policy in enumerate(policies):
            at, hours = [], []
            for place, log in enumerate(logs):
                found = waiting(by_piece(row for row in mine if row["log"] == log))
                value = mean_of(found, policy, "wait_mean")
                if value:
                    at.append(place + (number - (len(policies) - 1) / 2) * width)
                    hours.append(value / 3600.0)
            one.plot(
                at,
                hours,
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                fillstyle="full" if number < len(COLOURS) else "none",
                linestyle="none",
                label=policy,
            )
        plots.log_scale(one, vertical=True)
        one.set_ylabel("mean wait, h")
        one.set_xlim(-0.5, len(logs) - 0.5)
        one.grid(visible=False, axis="x")
        for place in range(1, len(logs)):
            one.axvline(place - 0.5, color=plots.GREY, linewidth=0.4)
    grid[-1][0].set_xticks(range(len(logs)), logs)
    plots.letter(grid, [scenario.name for scenario in bench.scenarios])
    plots.legend_below(figure, grid[0][0], 5)


def _draw_classes(bench: Bench, rows: Sequence[Row], figure: plots.Figure) -> None:
    """Mean slowdown by class of jobs, in the first scenario."""
    scenario = bench.scenarios[0]
    found = waiting(by_piece(row for row in rows if row["scenario"] == scenario.name))
    policies = policies_of(rows)
    ((axes,),) = plots.panels(figure, 1, 1)
    width = 0.85 / len(policies)
    for number, policy in enumerate(policies):
        values = [mean_of(found, policy, f"slowdown_{one}") or 0.0 for one in CLASSES]
        places = [k + (number - (len(policies) - 1) / 2) * width for k in range(len(CLASSES))]
        axes.bar(
            places,
            values,
            width,
            color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[(number // len(COLOURS)) % len(HATCHES)],
            label=policy,
        )
    if found:  # else there is nothing that a logarithm could show
        plots.log_scale(axes, vertical=True)
    axes.set_xticks(range(len(CLASSES)), [one.replace("_", ", ") for one in CLASSES])
    axes.set_ylabel(f"mean bounded slowdown, {scenario.name}")
    axes.grid(visible=False, axis="x")
    plots.legend_below(figure, axes, 5)


PICTURES: Mapping[str, tuple[Size, Draw]] = {
    "ratios": (
        lambda bench: (plots.PAGE, 1.2 + 0.38 * len(bench.contenders)),
        _draw_ratios,
    ),
    "logs": (lambda bench: (plots.PAGE, 1.0 + 1.5 * len(bench.scenarios)), _draw_logs),
    "classes": (lambda bench: (plots.PAGE, 3.2), _draw_classes),
}
"""Size and content by name."""
