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
from math import exp, inf, log
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from coalloc.simulation.metrics import measure as measured
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.moldable_instances import FAMILIES
from coalloc.simulation.reproduce.moldable_stream import (
    moldable_stream,
    requested,
    shortest_times,
)
from coalloc.simulation.reproduce.rows import distinct, grouped, spread, table, where
from coalloc.simulation.reproduce.solving import NotAllowedError
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

PROCS, LOADS, SEEDS, JOBS = 200, (0.4, 0.7, 0.9), (1, 2), 500
QUICK_PROCS, QUICK_LOADS, QUICK_JOBS = 32, (0.4, 0.9), 80
ROLLING, EFFICIENCY, BATCH = "bicriteria", "bicriteria, efficiency", "bicriteria-batch"
EASY_80, EASY_50, EASY_1 = "easy, 80 %", "easy, 50 %", "easy, sequential"
COLUMNS = {
    "family": "of the bi-criteria paper",
    "load": "work on one processor that arrives, by what the processors can do",
    "seed": "of the generator",
    "series": "the policy, and its rule or what users ask for",
    "mean_flow_s": "mean of end less submission, s",
    "p99_stretch": "99th percentile of the flow time by the time on the fastest allotment",
    "max_stretch": "the largest",
    "mean_procs": "mean number of processors of a job",
    "utilisation": "share of the machine that is busy until the last submission, 0..1",
    "rounds": "calls of the policy; empty where the event loop has none",
}


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


def ratios(rows: Sequence[Row], series: str) -> Ratios:
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


def describe(rows: Sequence[Row]) -> Story:
    """Text about the streams."""
    rolling, batch = ratios(rows, ROLLING), ratios(rows, BATCH)
    mean = geometric_mean(rolling.flow)
    return Story(
        headline=f"the rolling form has {mean:.2f} of the mean flow time of EASY with the better "
        f"of two rigid requests ({spread(rolling.flow, _two)}); batches have "
        f"{geometric_mean(batch.flow):.1f} times it",
        claims=(
            "The paper has no on-line experiment. It recalls (section 2.2) that an off-line "
            "algorithm within ρ of the least makespan, used batch by batch, stays within 2ρ on "
            "line.",
        ),
        measured=(
            "Mean flow time by that of EASY with the better of the requests for 80 % and 50 % "
            "efficiency:",
            _flow_table(rows),
            f"Over all streams the rolling form is at {mean:.3f} (geometric mean), at most "
            f"{max(rolling.flow):.3f}. Against the worse of the two requests it is "
            f"{spread(rolling.wrong, _two)} times better.",
            "99th percentile of the stretch by that of EASY with the request for 80 %:",
            _stretch_table(rows),
            f"For the rolling form it is at most {max(rolling.stretch):.3f}, and "
            f"{geometric_mean(rolling.stretch):.3f} in the geometric mean.",
        ),
        reasons=(
            "No rigid request suits all loads: half the efficiency halves the run times where the "
            "machine is idle, and overloads it at a load above one half. The rolling form pays "
            "for width by what it costs those who wait, so it is wide in the first case and "
            "narrow in the second. Serving small jobs first does the rest.",
            "A batch makes each arrival wait for the end of all that came before, and its last "
            "jobs leave most processors idle. What bounds the makespan says nothing of the flow "
            "time.",
        ),
    )


_two = "{:.2f}".format


def _flow_table(rows: Sequence[Row]) -> str:
    names = (ROLLING, EFFICIENCY, BATCH)
    lines = []
    for (family, load), group in grouped(rows, "family", "load").items():
        found = [ratios(group, name).flow for name in names]
        easy = [fmean(row["mean_flow_s"] for row in where(group, series=name)) for name in EASY]
        cells = [f"{family}, {load:g}", *(_two(geometric_mean(values)) for values in found)]
        lines.append([*cells, *map("{:.2f} s".format, easy)])
    return table(("family, load", *(f"`{name}`" for name in names), *EASY), lines)


def _stretch_table(rows: Sequence[Row]) -> str:
    names = (ROLLING, EFFICIENCY, BATCH)
    lines = [
        [
            f"{family}, {load:g}",
            *(_two(geometric_mean(ratios(group, name).stretch)) for name in names),
        ]
        for (family, load), group in grouped(rows, "family", "load").items()
    ]
    return table(("family, load", *(f"`{name}`" for name in names)), lines)


LOOKS = {
    ROLLING: (plots.BLUE, "o", "rolling"),
    EFFICIENCY: (plots.SKY, "D", "rolling, by efficiency"),
    BATCH: (plots.VERMILION, "s", "batches"),
    EASY_80: (plots.BLACK, "^", "EASY, 80 %"),
    EASY_50: (plots.GREY, "v", "EASY, 50 %"),
    EASY_1: (plots.ORANGE, "x", "EASY, sequential"),
}


def draw(rows: Sequence[Row], figure: Figure) -> None:
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


def _lines(axes: Axes, rows: Sequence[Row], name: str) -> None:
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
        columns=COLUMNS,
        reduced=f"one stream of {QUICK_JOBS} jobs on {QUICK_PROCS} processors for each family at "
        "loads of .4 and .9.",
        size=(plots.PAGE, 4.2),
        measure=measure,
        describe=describe,
        draw=draw,
    )
}
