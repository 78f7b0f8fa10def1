"""Gain and cost of scenarios: two real logs on line, with real run times against estimates.

The MBPC paper names run times that are not known as future work (section 5); nothing of it is
published, so there is no figure to compare with. `windows` states the rule for windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.oas.windows import LOAD, LOGS, replay_window, windows
from coalloc.simulation.reproduce.rows import column, distinct, grouped, spread, table, where

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
COLUMNS = {
    "log": "of the Parallel Workloads Archive",
    "window": "number of the window",
    "first_job": "its first job, counted among the usable ones of the log",
    "jobs": "jobs in the window",
    "policy": "easy; oas on the estimates; oas over scenarios, by their mean or 90th percentile",
    "mean_wait_s": "start minus submission, mean over the jobs, s",
    "p95_wait_s": "its 95th percentile, s",
    "mean_bounded_slowdown": "mean of response time by run time (at least 10 s)",
    "makespan_s": "first submission to last end, s",
    "rounds": "calls of the policy",
    "queued": "jobs that wait, mean over the rounds",
    "cpu_s": "processor time of a round, mean, s",
    "most_cpu_s": "of the longest round, s; the very first one loads what is compiled",
    "promised": "judged over the scenarios, by how much the order is better than that of oas on "
    "the estimates, mean over the rounds",
}


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
        result = replay_window(window, policy, options, work, run.seed)
        yield {
            "log": window.log.name,
            "window": number + 1,
            "first_job": window.first,
            "jobs": jobs,
            "policy": name,
            **asdict(result),
        }


def describe(rows: Sequence[Row]) -> Story:
    """Text about the rows."""
    means = {
        (log, name): fmean(column(where(rows, log=log, policy=name), "mean_wait_s"))
        for log in distinct(rows, "log")
        for name in POLICIES
    }
    waits = "; ".join(
        f"{log} " + ", ".join(f"{name} {means[log, name] / HOUR:.2f} h" for name in (OAS, MEAN))
        for log in distinct(rows, "log")
    )
    return Story(
        headline=f"mean wait: {waits}",
        claims=(
            "Nothing is measured in the paper. It names scheduling where run times are not known "
            "for certain as future work (MBPC, section 5).",
        ),
        measured=(
            *(_table(rows, log) for log in distinct(rows, "log")),
            f"Windows of {rows[0]['jobs']} jobs, whose work arrives {LOAD:g} times as fast as the "
            f"machine can do it, {len(distinct(rows, 'window'))} of each log. `oas` minimises the "
            f"sum of completion times; over scenarios with {SCENARIOS} samples of the ratios of "
            "each user.",
            *_against(rows),
        ),
        reasons=_reasons(rows),
    )


def _table(rows: Sequence[Row], log: str) -> str:
    lines = []
    for name in POLICIES:
        mine = where(rows, log=log, policy=name)
        lines.append(
            (
                f"`{name}`",
                f"{fmean(column(mine, 'mean_wait_s')) / HOUR:.2f} h",
                f"{fmean(column(mine, 'p95_wait_s')) / HOUR:.1f} h",
                f"{fmean(column(mine, 'mean_bounded_slowdown')):.1f}",
                f"{fmean(column(mine, 'makespan_s')) / HOUR:.1f} h",
                f"{1000.0 * fmean(column(mine, 'cpu_s')):.0f} ms",
                f"{1000.0 * max(column(mine, 'most_cpu_s')):.0f} ms",
            )
        )
    head = ("mean wait", "its 95 %", "bounded slowdown", "makespan", "CPU a round", "most")
    return table((log, *head), lines)


def compared(rows: Sequence[Row], name: str, other: str, measure: str) -> tuple[int, int, int]:
    """In how many windows a policy has less than another, the same (to .1 %), and more."""
    less = same = more = 0
    for group in grouped(rows, "log", "window").values():
        a, b = (where(group, policy=policy)[0][measure] for policy in (name, other))
        if abs(a - b) <= 1e-3 * max(abs(a), abs(b)):
            same += 1
        elif a < b:
            less += 1
        else:
            more += 1
    return less, same, more


def _against(rows: Sequence[Row]) -> list[str]:
    """Scenarios against estimates, window by window."""
    out = []
    cost = fmean(column(where(rows, policy=OAS), "cpu_s"))
    for name in (MEAN, P90):
        mine = where(rows, policy=name)
        promised = 100.0 * fmean(column(mine, "promised") or [0.0])
        counts = "; ".join(
            f"{label} in {less}, the same in {same}, longer in {more}"
            for label, column_name in (
                ("a shorter mean wait", "mean_wait_s"),
                ("a smaller bounded slowdown", "mean_bounded_slowdown"),
                ("a shorter makespan", "makespan_s"),
            )
            for less, same, more in [compared(rows, name, OAS, column_name)]
        )
        out.append(
            f"`{name}` against `oas`, of {len(mine)} windows: {counts}. Judged over the scenarios "
            f"its orders are {promised:.1f} % better (mean of rounds). A round takes "
            f"{fmean(column(mine, 'cpu_s')) / cost:.1f} times the processor time."
        )
    return out


def _reasons(rows: Sequence[Row]) -> tuple[str, ...]:
    queued = column(where(rows, policy=OAS), "queued")
    return (
        "On line every round plans anew when a job ends early, so much of what an order could "
        "lose by a wrong estimate is mended anyway: of each plan only the starts of now are "
        "carried out. What scenarios add is to know which jobs are likely to be much shorter than "
        "they say, by their users' past.",
        f"An order is chosen by {SCENARIOS} samples and judged by the same, so that a part of what "
        "it promises is chance. On the "
        f"mean {spread(queued, '{:.0f}'.format)} jobs wait, and single long jobs decide a "
        "window; few windows tell little of small differences.",
    )


_COLOURS = {
    EASY: plots.GREY,
    OAS: plots.SKY,
    MEAN: plots.ORANGE,
    P90: plots.VERMILION,
}
_HATCHES = {EASY: "", OAS: "", MEAN: "///", P90: "..."}


def draw(rows: Sequence[Row], figure: Figure) -> None:
    """Bars by window: wait, slowdown, makespan and cost, one row of panels for each log."""
    logs = distinct(rows, "log")
    grid = plots.panels(figure, len(logs), 4)
    titles = []
    for log, axes in zip(logs, grid, strict=True):
        mine = where(rows, log=log)
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


def _bars(axes: Axes, rows: Sequence[Row], name: str, unit: float) -> None:
    numbers = distinct(rows, "window")
    width = 0.8 / len(POLICIES)
    for place, policy in enumerate(POLICIES):
        mine = where(rows, policy=policy)
        axes.bar(
            [row["window"] + (place - 1.5) * width for row in mine],
            [row[name] / unit for row in mine],
            width=width,
            color=_COLOURS[policy],
            edgecolor=plots.BLACK,
            linewidth=0.4,
            hatch=_HATCHES[policy],
            label=policy,
        )
    axes.set_xticks(numbers)
    axes.grid(axis="x", visible=False)


EXPERIMENTS: Mapping[str, Experiment] = {
    "oas-stochastic": Experiment(
        columns=COLUMNS,
        reduced=f"{QUICK_WINDOWS} window of {QUICK_JOBS} jobs of each log instead of {WINDOWS} of "
        f"{JOBS}, and less work in each round.",
        size=(plots.PAGE, 4.0),
        measure=measure,
        describe=describe,
        draw=draw,
    )
}
