"""Moldable jobs that arrive over time: both on-line forms against EASY with rigid requests.

Notes
-----
Streams are those of `moldable_stream`. Means are over all jobs of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from statistics import geometric_mean
from typing import Any

import numpy as np

from benchmarks.papers.moldable_instances import (
    FAMILIES,
    moldable_stream,
    requested,
    shortest_times,
)
from benchmarks.papers.study import Looks, Run, alone
from coalloc.simulation.metrics import measure as measured
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Row, Rows, tabulate
from coalloc.simulation.reproduce.solving import NotAllowedError
from coalloc.simulation.reproduce.words import Facts
from coalloc.simulation.verify import verify

PROCS, LOADS, SEEDS, JOBS = 200, (0.4, 0.7, 0.9), (1, 2), 500
QUICK_PROCS, QUICK_LOADS, QUICK_JOBS = 32, (0.4, 0.9), 80
ROLLING, EFFICIENCY, BATCH = "bicriteria", "bicriteria, efficiency", "bicriteria-batch"
EASY_80, EASY_50, EASY_1 = "easy, 80 %", "easy, 50 %", "easy, sequential"


SERIES: Mapping[str, tuple[str, Mapping[str, Any], float | None]] = {
    ROLLING: ("bicriteria", {}, None),
    EFFICIENCY: ("bicriteria", {"allotment": "efficiency"}, None),
    BATCH: ("bicriteria-batch", {}, None),
    EASY_80: ("easy", {}, 0.8),
    EASY_50: ("easy", {}, 0.5),
    EASY_1: ("easy", {}, inf),
}
"""Policy, options, and the least efficiency of rigid requests; None leaves jobs moldable."""
OURS = (ROLLING, EFFICIENCY, BATCH)
REQUESTS = (EASY_80, EASY_50)
EASY = (*REQUESTS, EASY_1)


def measure(run: Run) -> Iterable[Row]:
    """Replay every stream under every policy."""
    procs, jobs = (QUICK_PROCS, QUICK_JOBS) if run.quick else (PROCS, JOBS)
    cells = [
        (family, load, seed + run.seed)
        for family in FAMILIES
        for load in (QUICK_LOADS if run.quick else LOADS)
        for seed in (SEEDS[:1] if run.quick else SEEDS)
    ]
    for family, load, seed in run.steps("demt-online", cells):
        workload, platform = moldable_stream(family, jobs, procs, load, seed)
        shortest = shortest_times(workload)
        for name, (policy, options, efficiency) in SERIES.items():
            asked = workload if efficiency is None else requested(workload, efficiency)
            trace = replay(asked, platform, policy, options)
            if (faults := verify(trace)) or not trace.ran.all():
                why = faults[0] if faults else "a job did not run"
                raise NotAllowedError(f"{policy} on {asked.name}: {why}")
            flow = trace.end - workload.submit
            stretch = flow / shortest
            yield {
                "family": family,
                "load": load,
                "seed": seed,
                "series": name,
                "mean_flow_s": float(flow.mean()),
                "p99_stretch": float(np.percentile(stretch, 99)),
                "max_stretch": float(stretch.max()),
                "mean_procs": float(trace.procs.mean()),
                "utilisation": measured(trace).utilisation,
                "rounds": trace.stats.get("rounds"),
            }


def ratios(rows: Rows, series: str) -> dict[str, list[float]]:
    """A series against EASY, stream by stream.

    *flow*: mean flow time by that of the better of both requests; *wrong*: that of the worse
    request by the series'; *stretch*: 99th percentile by that of the request of 80 %.
    """
    out: dict[str, list[float]] = {"flow": [], "wrong": [], "stretch": []}
    for group in rows.grouped("family", "load", "seed").values():
        by_name = {row["series"]: row for row in group}
        mine = by_name[series]
        asked = [by_name[name]["mean_flow_s"] for name in REQUESTS]
        out["flow"].append(mine["mean_flow_s"] / min(asked))
        out["wrong"].append(max(asked) / mine["mean_flow_s"])
        out["stretch"].append(mine["p99_stretch"] / by_name[EASY_80]["p99_stretch"])
    return out


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    easy = rows.only(lambda row: row["series"] in EASY).by_value(
        "series",
        lambda group: f"{group.mean('mean_flow_s'):.2f} s",
    )
    lines = {
        f"{family}, {load:g}": group
        for (family, load), group in rows.grouped("family", "load").items()
    }
    return {
        **ratios(rows, ROLLING),
        "batch": ratios(rows, BATCH)["flow"],
        "flows": tabulate("family, load", lines, _gains("flow") | easy),
        "stretches": tabulate("family, load", lines, _gains("stretch")),
    }


def _gains(measure: str) -> dict[str, Callable[[Rows], str]]:
    """Columns of a table: the ratio of each form of ours."""

    def of(series: str) -> Callable[[Rows], str]:
        return lambda rows: f"{geometric_mean(ratios(rows, series)[measure]):.2f}"

    return {f"`{series}`": of(series) for series in OURS}


def draw(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    """Mean flow time above the stretch, a column of panels for each family."""
    families, loads = rows.distinct("family"), rows.distinct("load")
    grid = plots.panels(figure, 2, len(families), sharex=True)
    for line, name in zip(grid, ("mean_flow_s", "p99_stretch"), strict=True):
        for axes, family in zip(line, families, strict=True):
            mine = rows.where(family=family)

            def point(series: str, load: float, mine: Rows = mine, name: str = name) -> float:
                return geometric_mean(mine.where(series=series, load=load).column(name))

            plots.curves(axes, looks, loads, point, lambda load, _: load)
            axes.set_yscale("log")
            axes.set_xticks(loads)
    for axes in grid[1]:
        axes.set_xlabel("offered load")
    grid[0][0].set_ylabel("mean flow time (s)")
    grid[1][0].set_ylabel("99th percentile of stretch")
    plots.letter(grid, families * 2)
    plots.legend_below(figure, grid[0][0], 6)


EXPERIMENTS = alone("demt-online", measure, facts, draw, (plots.PAGE, 4.2))
