"""Fig. 7 of the bi-criteria paper: the time that `demt` takes, and what else is timed beside it.

Notes
-----
Times are processor times of one thread. Reading a snapshot into arrays is timed apart, and each
policy on arrays that are ready. All of them run once before, so that nothing compiles in a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.published_lp import published_lp
from coalloc.policies.moldable.two_shelf import two_shelf
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.demt.study import PROCS, QUICK_WORK, WORK, Instance, demt
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.moldable_instances import FAMILIES, moldable_instance
from coalloc.simulation.reproduce.rows import distinct, spread, table, where

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Figure

SIZES, QUICK_SIZES = (25, 50, 100, 200, 400), (25, 50)
RUNS, QUICK_RUNS = 3, 2
DEMT, GREEDY, READING, PROGRAM, OURS = (
    *("demt", "demt, greedy", "reading", "linear program"),
    "bicriteria",
)
WHAT: Mapping[str, str] = {
    DEMT: "`demt`, 20 shuffles, shelves filled by the knapsack",
    GREEDY: "`demt`, 20 shuffles, shelves filled by weight / processors",
    READING: "the snapshot read into arrays",
    PROGRAM: "the paper's bound (HiGHS)",
    OURS: f"`bicriteria` with its bounds, {WORK:,} jobs placed or priced",
}
LOOKS = {
    DEMT: (plots.VERMILION, "o"),
    GREEDY: (plots.ORANGE, "^"),
    READING: (plots.GREY, "x"),
    PROGRAM: (plots.GREEN, "s"),
    OURS: (plots.BLUE, "*"),
}
PAPER_S = 2.0
COLUMNS: Mapping[str, str] = {
    "family": "of the paper",
    "jobs": "number of jobs of the instance",
    "run": "seed of the instance",
    "what": "what is timed: " + ", ".join(WHAT),
    "cpu_s": "processor time of one thread, s",
}


def _spent(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def timed(family: str, jobs: int, procs: int, number: int, work: int) -> dict[str, float]:
    """Processor seconds of each of `WHAT` on one instance, `bicriteria` with so much work."""
    snapshot = moldable_instance(family, jobs, procs, number)
    began = time.process_time()
    instance = Instance(snapshot)
    layer = Layer(instance.planner, instance.queue)
    reading = time.process_time() - began
    guess = two_shelf(instance.whole).guess
    return {
        DEMT: _spent(lambda: demt(layer, "reached")),
        GREEDY: _spent(lambda: demt(layer, "reached", "greedy")),
        READING: reading,
        PROGRAM: _spent(lambda: published_lp(instance.whole, guess)),
        OURS: _spent(lambda: instance.search(work)),
    }


def _measure(run: Run) -> Iterator[Row]:
    sizes, runs = (QUICK_SIZES, QUICK_RUNS) if run.quick else (SIZES, RUNS)
    work = QUICK_WORK if run.quick else WORK
    timed("weakly", 20, 10, 0, work=1000)
    first = run.seed * RUNS
    cases = [
        (family, jobs, number)
        for family in FAMILIES
        for jobs in sizes
        for number in range(first, first + runs)
    ]
    for family, jobs, number in run.steps("demt, time", cases):
        for what, spent in timed(family, jobs, PROCS, number, work).items():
            yield {"family": family, "jobs": jobs, "run": number, "what": what, "cpu_s": spent}


def seconds(rows: Iterable[Row], **wanted: object) -> list[float]:
    """The times of the rows with these values."""
    return [row["cpu_s"] for row in where(rows, **wanted)]


def milliseconds(values: Sequence[float]) -> str:
    """Mean (lowest to highest)."""
    low, mean, high = (_short(1e3 * f(values)) for f in (min, fmean, max))
    return f"{mean} ({low} to {high})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def _describe(rows: Sequence[Row]) -> Story:
    sizes = distinct(rows, "jobs")
    largest = seconds(rows, what=DEMT, jobs=max(sizes))
    reading = seconds(rows, what=READING, jobs=max(sizes))
    ours = seconds(rows, what=OURS, jobs=max(sizes))
    faster = spread([PAPER_S / value for value in largest], "{:,.0f}".format)
    return Story(
        headline=f"`demt` takes {spread([1e3 * value for value in largest])} ms for "
        f"{max(sizes)} jobs, `bicriteria` {spread(ours, '{:.2f}'.format)} s",
        claims=("`demt` takes less than 2 seconds for the largest instances (400 jobs).",),
        measured=(
            f"For {max(sizes)} jobs on {PROCS} processors `demt` takes "
            f"{spread([1e3 * value for value in largest])} ms, reading the snapshot into arrays "
            f"{spread([1e3 * value for value in reading], _short)} ms more. Milliseconds over all "
            "families, mean (lowest to highest):",
            table(
                ("", *(f"{jobs} jobs" for jobs in sizes)),
                [
                    [
                        told,
                        *(milliseconds(seconds(rows, what=what, jobs=jobs)) for jobs in sizes),
                    ]
                    for what, told in WHAT.items()
                ],
            ),
            f"`demt` at {max(sizes)} jobs, by family, ms: "
            + ", ".join(
                f"{family} "
                + milliseconds(seconds(rows, what=DEMT, jobs=max(sizes), family=family))
                for family in distinct(rows, "family")
            )
            + ".",
        ),
        reasons=(
            f"{faster} times less than the published 2 s, compiled and on a processor of today. "
            "The paper does not say what its time includes: to read the jobs takes "
            f"{fmean(reading) / fmean(largest):.0f} times as long as `demt` itself.",
            "Other programs ran on the same machine meanwhile; processor times count none of "
            "theirs, but share its caches and cores.",
        ),
    )


def _draw(rows: Sequence[Row], figure: Figure) -> None:
    ((axes,),) = plots.panels(figure, 1, 1)
    sizes = distinct(rows, "jobs")
    for what, (colour, marker) in LOOKS.items():
        found = [seconds(rows, what=what, jobs=jobs) for jobs in sizes]
        plots.ranges(
            axes,
            sizes,
            [min(values) for values in found],
            [fmean(values) for values in found],
            [max(values) for values in found],
            colour=colour,
            marker=marker,
            label=what,
        )
    axes.axhline(PAPER_S, color=plots.BLACK, linestyle="--", label="the paper, at most")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_ticks(sizes, [str(jobs) for jobs in sizes])
    axes.xaxis.set_ticks([], minor=True)
    axes.set_xlabel("jobs")
    axes.set_ylabel("processor time (s)")
    plots.legend_below(figure, axes, 3)


EXPERIMENTS = {
    "demt-fig7": Experiment(
        columns=COLUMNS,
        reduced=f"{QUICK_RUNS} instances each of {' and '.join(map(str, QUICK_SIZES))} jobs in "
        f"each family, instead of {RUNS} of up to {max(SIZES)}, and a tenth of the work for "
        "`bicriteria`.",
        size=(plots.PAGE * 0.6, 3.4),
        measure=_measure,
        describe=_describe,
        draw=_draw,
    )
}
