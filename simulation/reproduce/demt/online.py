"""Moldable jobs that arrive over time: both on-line forms against EASY with rigid requests.

Notes
-----
Streams are those of `moldable_stream`. With EASY, whose jobs are rigid, every user asks for the
widest allotment of at least 80 % efficiency, of at least 50 %, or for one processor. Run times are
known. A flow time is the end less the submission; a stretch is the flow time by the job's time on
its fastest allotment. Means are over all jobs of a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, inf, log
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from coalloc.simulation.metrics import measure as measured
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.moldable_instances import FAMILIES
from coalloc.simulation.reproduce.moldable_stream import (
    moldable_stream,
    requested,
    shortest_times,
)
from coalloc.simulation.reproduce.rows import by_value, distinct, grouped, mean, tabulate, where
from coalloc.simulation.reproduce.solving import NotAllowedError
from coalloc.simulation.reproduce.study import Experiment, Facts, Row, Rows, Run, Study
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

PROCS, LOADS, SEEDS, JOBS = 200, (0.4, 0.7, 0.9), (1, 2), 500
QUICK_PROCS, QUICK_LOADS, QUICK_JOBS = 32, (0.4, 0.9), 80
ROLLING, EFFICIENCY, BATCH = "bicriteria", "bicriteria, efficiency", "bicriteria-batch"
EASY_80, EASY_50, EASY_1 = "easy, 80 %", "easy, 50 %", "easy, sequential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One policy of the comparison.

    Attributes
    ----------
    efficiency : float or None
        Of the rigid request, at least; None leaves jobs moldable.
    """

    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    efficiency: float | None = None


SERIES = {
    ROLLING: Series(policy="bicriteria"),
    EFFICIENCY: Series(policy="bicriteria", options={"allotment": "efficiency"}),
    BATCH: Series(policy="bicriteria-batch"),
    EASY_80: Series(policy="easy", efficiency=0.8),
    EASY_50: Series(policy="easy", efficiency=0.5),
    EASY_1: Series(policy="easy", efficiency=inf),
}
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
        for name, series in SERIES.items():
            asked = (
                workload if series.efficiency is None else requested(workload, series.efficiency)
            )
            trace = replay(asked, platform, series.policy, series.options)
            _refuse_faults(trace)
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


def _refuse_faults(trace: Trace) -> None:
    faults = verify(trace)
    if faults or not trace.ran.all():
        why = faults[0] if faults else "a job did not run"
        raise NotAllowedError(f"{trace.policy} on {trace.workload.name}: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """A series against EASY, a ratio for each stream.

    Attributes
    ----------
    flow : list of float
        Mean flow time by that of the better of both requests.
    wrong : list of float
        That of the worse request by the series'.
    stretch : list of float
        99th percentile by that of the request of 80 %.
    """

    flow: list[float]
    wrong: list[float]
    stretch: list[float]


def ratios(rows: Rows, series: str) -> Ratios:
    """Compare a series stream by stream."""
    flow, wrong, stretch = [], [], []
    for group in grouped(rows, "family", "load", "seed").values():
        by_name = {row["series"]: row for row in group}
        mine = by_name[series]
        asked = [by_name[name]["mean_flow_s"] for name in REQUESTS]
        flow.append(mine["mean_flow_s"] / min(asked))
        wrong.append(max(asked) / mine["mean_flow_s"])
        stretch.append(mine["p99_stretch"] / by_name[EASY_80]["p99_stretch"])
    return Ratios(flow=flow, wrong=wrong, stretch=stretch)


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return exp(fmean(map(log, values)))


def facts(rows: Rows) -> Facts:
    """What the rows say."""
    rolling, batch = ratios(rows, ROLLING), ratios(rows, BATCH)
    flows = {f"`{name}`": partial(_gain, name, "flow") for name in OURS}
    stretches = {f"`{name}`": partial(_gain, name, "stretch") for name in OURS}
    easy = by_value(
        [row for row in rows if row["series"] in EASY],
        "series",
        lambda group: f"{mean(group, 'mean_flow_s'):.2f} s",
    )
    cells = {
        f"{family}, {load:g}": group
        for (family, load), group in grouped(rows, "family", "load").items()
    }
    return {
        "flow": rolling.flow,
        "flow_mean": geometric_mean(rolling.flow),
        "batch_mean": geometric_mean(batch.flow),
        "wrong": rolling.wrong,
        "stretch": rolling.stretch,
        "stretch_mean": geometric_mean(rolling.stretch),
        "flows": tabulate("family, load", cells, flows | easy),
        "stretches": tabulate("family, load", cells, stretches),
    }


def _gain(series: str, measure: str, rows: Rows) -> str:
    return f"{geometric_mean(getattr(ratios(rows, series), measure)):.2f}"


LOOKS = {
    ROLLING: (plots.BLUE, "o", "rolling"),
    EFFICIENCY: (plots.SKY, "D", "rolling, by efficiency"),
    BATCH: (plots.VERMILION, "s", "batches"),
    EASY_80: (plots.BLACK, "^", "EASY, 80 %"),
    EASY_50: (plots.GREY, "v", "EASY, 50 %"),
    EASY_1: (plots.ORANGE, "x", "EASY, sequential"),
}


def draw(rows: Rows, figure: Figure) -> None:
    """Mean flow time above the stretch, a column of panels for each family."""
    families = distinct(rows, "family")
    grid = plots.panels(figure, 2, len(families), sharex=True)
    for across, family in enumerate(families):
        chosen = where(rows, family=family)
        _lines(grid[0][across], chosen, "mean_flow_s")
        _lines(grid[1][across], chosen, "p99_stretch")
        grid[1][across].set_xlabel("offered load")
    grid[0][0].set_ylabel("mean flow time (s)")
    grid[1][0].set_ylabel("99th percentile of stretch")
    plots.letter(grid, families * 2)
    plots.legend_below(figure, grid[0][0], 6)


def _lines(axes: Axes, rows: Rows, name: str) -> None:
    loads = distinct(rows, "load")
    for series, (colour, marker, label) in LOOKS.items():
        values = [
            geometric_mean([row[name] for row in where(rows, series=series, load=load)])
            for load in loads
        ]
        axes.plot(loads, values, color=colour, marker=marker, markerfacecolor="white", label=label)
    axes.set_yscale("log")
    axes.set_xticks(loads)


EXPERIMENTS = {
    "demt-online": Experiment(
        study=Study(name="demt-online", measure=measure),
        facts=facts,
        draw=draw,
        size=(plots.PAGE, 4.2),
    )
}
