"""Gain and cost of scenarios: two real logs on line, with real run times against estimates.

The MBPC paper names run times that are not known as future work (section 5); nothing of it is
published, so there is no figure to compare with. `windows` has the rule by which they are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.oas.windows import LOAD, LOGS, replay_window, windows
from coalloc.simulation.reproduce.rows import Row, Rows, tabulate
from coalloc.simulation.reproduce.study import Facts, Run, alone
from coalloc.simulation.reproduce.words import shown

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

WINDOWS, JOBS, WORK = 3, 60, 20_000
QUICK_WINDOWS, QUICK_JOBS, QUICK_WORK = 1, 20, 4_000
SCENARIOS = 8
SEARCH: Mapping[str, Any] = {
    "objective": "weighted_completion",
    "patience": 200,
    "exact_work": 0,
    "guard_after": 10,
}
EASY, OAS, MEAN, P90 = "easy", "oas", "oas, mean", "oas, p90"
POLICIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    EASY: ("easy", {"guard_after": 10}),
    OAS: ("oas", SEARCH),
    MEAN: ("oas", {**SEARCH, "scenarios": SCENARIOS, "scenario_objective": "mean"}),
    P90: ("oas", {**SEARCH, "scenarios": SCENARIOS, "scenario_objective": "p90"}),
}
HOUR = 3600.0


def measure(run: Run) -> Iterable[Row]:
    """Replay every window under every policy."""
    count, jobs, work = (
        (QUICK_WINDOWS, QUICK_JOBS, QUICK_WORK) if run.quick else (WINDOWS, JOBS, WORK)
    )
    cut = [windows(log, count, jobs, run.seed) for log in LOGS]
    cases = [
        (n, window, name)
        for n in range(count)
        for found in cut
        for window in [found[n]]
        for name in POLICIES
    ]
    for number, window, name in run.steps("oas-stochastic", cases):
        policy, options = POLICIES[name]
        yield {
            "log": window.log.name,
            "window": number + 1,
            "first_job": window.first,
            "jobs": jobs,
            "policy": name,
            **replay_window(window, policy, options, work, run.seed),
        }


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    logs = rows.distinct("log")
    waits = {
        log: {
            name: f"{rows.where(log=log, policy=name).mean('mean_wait_s') / HOUR:.2f} h"
            for name in (OAS, MEAN)
        }
        for log in logs
    }
    return {
        "waits": "; ".join(f"{log} {shown(own)}" for log, own in waits.items()),
        "tables": "\n\n".join(_table(rows.where(log=log)) for log in logs),
        "jobs": rows[0]["jobs"],
        "load": LOAD,
        "windows": len(rows.distinct("window")),
        "scenarios": SCENARIOS,
        "against": {MEAN: _against(rows, MEAN), P90: _against(rows, P90)},
        "oas": rows.where(policy=OAS),
    }


def _table(rows: Rows) -> str:
    return tabulate(
        rows[0]["log"],
        rows.by_code("policy"),
        {
            "mean wait": lambda own: f"{own.mean('mean_wait_s') / HOUR:.2f} h",
            "its 95 %": lambda own: f"{own.mean('p95_wait_s') / HOUR:.1f} h",
            "bounded slowdown": lambda own: f"{own.mean('mean_bounded_slowdown'):.1f}",
            "makespan": lambda own: f"{own.mean('makespan_s') / HOUR:.1f} h",
            "CPU a round": lambda own: f"{1000.0 * own.mean('cpu_s'):.0f} ms",
            "most": lambda own: f"{1000.0 * max(own.column('most_cpu_s')):.0f} ms",
        },
    )


def compared(rows: Rows, name: str, other: str, measure: str) -> tuple[int, int, int]:
    """In how many windows a policy has less than another, the same (to .1 %), and more."""
    less = same = more = 0
    for group in rows.grouped("log", "window").values():
        a, b = (group.where(policy=policy)[0][measure] for policy in (name, other))
        if abs(a - b) <= 1e-3 * max(abs(a), abs(b)):
            same += 1
        elif a < b:
            less += 1
        else:
            more += 1
    return less, same, more


def _against(rows: Rows, name: str) -> Facts:
    """Scenarios against estimates, window by window."""
    mine = rows.where(policy=name)
    return {
        "windows": len(mine),
        **{
            measure: "{} in {}, the same in {}, longer in {}".format(
                better, *compared(rows, name, OAS, measure)
            )
            for measure, better in (
                ("mean_wait_s", "a shorter mean wait"),
                ("mean_bounded_slowdown", "a smaller bounded slowdown"),
                ("makespan_s", "a shorter makespan"),
            )
        },
        "promised": fmean(mine.column("promised") or [0.0]),
        "cost": mine.mean("cpu_s") / rows.where(policy=OAS).mean("cpu_s"),
    }


LOOKS = {
    EASY: (plots.GREY, ""),
    OAS: (plots.SKY, ""),
    MEAN: (plots.ORANGE, "///"),
    P90: (plots.VERMILION, "..."),
}


def draw(rows: Rows, figure: Figure) -> None:
    """Bars by window: wait, slowdown, makespan and cost, one row of panels for each log."""
    logs = rows.distinct("log")
    grid = plots.panels(figure, len(logs), 4)
    titles = []
    for log, axes in zip(logs, grid, strict=True):
        mine = rows.where(log=log)
        for place, (name, unit, label) in enumerate(_PANELS):
            _bars(axes[place], mine, name, unit)
            axes[place].set_ylabel(label)
            titles.append(log)
        axes[2].set_ylim(bottom=0.0)
    plots.letter(grid, titles)
    for axes_below in grid[-1]:
        axes_below.set_xlabel("window")
    plots.legend_below(figure, grid[0][0], len(POLICIES))


_PANELS = (
    ("mean_wait_s", HOUR, "mean wait, h"),
    ("mean_bounded_slowdown", 1.0, "mean bounded slowdown"),
    ("makespan_s", HOUR, "makespan, h"),
    ("cpu_s", 1e-3, "CPU time of a round, ms"),
)


def _bars(axes: Axes, rows: Rows, name: str, unit: float) -> None:
    numbers = rows.distinct("window")
    width = 0.8 / len(POLICIES)
    for place, policy in enumerate(POLICIES):
        mine = rows.where(policy=policy)
        axes.bar(
            [row["window"] + (place - 1.5) * width for row in mine],
            [row[name] / unit for row in mine],
            width=width,
            color=LOOKS[policy][0],
            edgecolor=plots.BLACK,
            linewidth=0.4,
            hatch=LOOKS[policy][1],
            label=policy,
        )
    axes.set_xticks(numbers)
    axes.grid(axis="x", visible=False)


EXPERIMENTS = alone("oas-stochastic", measure, facts, draw, (plots.PAGE, 4.0))
