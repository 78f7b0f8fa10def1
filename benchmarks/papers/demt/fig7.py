"""Fig. 7 of the bi-criteria paper: the time that `demt` takes, and what else is timed beside it.

Notes
-----
Times are processor times of one thread. Reading a snapshot into arrays is timed apart, and each
policy on arrays that are ready. All of them run once before, so that nothing compiles in a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import fmean

from benchmarks.papers.demt.study import PROCS, QUICK_WORK, WORK, Instance, demt
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from benchmarks.papers.study import Looks, Run, alone
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.two_shelf import two_shelf
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Estimate, Row, Rows, tabulate
from coalloc.simulation.reproduce.words import Facts

SIZES, QUICK_SIZES = (25, 50, 100, 200, 400), (25, 50)
RUNS, QUICK_RUNS = 3, 2
DEMT, GREEDY, READING, PROGRAM, OURS = (
    *("demt", "demt, greedy", "reading", "linear program"),
    "bicriteria",
)

TOLD = {
    DEMT: "`demt`, 20 shuffles, shelves filled by the knapsack",
    GREEDY: "`demt`, 20 shuffles, shelves filled by weight / processors",
    READING: "the snapshot read into arrays",
    PROGRAM: "the paper's bound (HiGHS)",
    OURS: f"`bicriteria` with its bounds, {WORK:,} jobs placed or priced",
}
PAPER_S = 2.0


def _spent(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def timed(family: str, jobs: int, procs: int, number: int, work: int) -> dict[str, float]:
    """Processor seconds of each part on one instance, `bicriteria` with so much work."""
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
        PROGRAM: _spent(lambda: instance.program(guess)),
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


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    largest = rows.where(jobs=max(rows.distinct("jobs")))
    mine, reading = largest.where(what=DEMT), largest.where(what=READING)
    return {
        "most": max(rows.distinct("jobs")),
        "ms": [1e3 * value for value in mine.column("cpu_s")],
        "reading_ms": [1e3 * value for value in reading.column("cpu_s")],
        "ours": largest.where(what=OURS),
        "times": tabulate(
            "",
            {TOLD[what]: group for (what,), group in rows.grouped("what").items()},
            rows.by_value("jobs", milliseconds, "{} jobs"),
        ),
        "families": {
            family: milliseconds(group) for (family,), group in mine.grouped("family").items()
        },
        "faster": [PAPER_S / value for value in mine.column("cpu_s")],
        "reading_longer": reading.mean("cpu_s") / mine.mean("cpu_s"),
        "is_below": [value < PAPER_S for value in mine.column("cpu_s")],
    }


def milliseconds(rows: Rows) -> str:
    """Mean (lowest to highest)."""
    low, middle, high = (_short(1e3 * f(rows.column("cpu_s"))) for f in (min, fmean, max))
    return f"{middle} ({low} to {high})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def _draw(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    ((axes,),) = plots.panels(figure, 1, 1)
    sizes = rows.distinct("jobs")

    def point(what: str, jobs: int) -> Estimate:
        values = rows.where(what=what, jobs=jobs).column("cpu_s")
        return Estimate(low=min(values), mean=fmean(values), high=max(values))

    plots.curves(axes, looks, sizes, point, lambda jobs, _: jobs)
    axes.axhline(PAPER_S, color=plots.BLACK, linestyle="--", label="the paper, at most")
    axes.set_yscale("log")
    plots.log_ticks(axes, sizes)
    axes.set_xlabel("jobs")
    axes.set_ylabel("processor time (s)")
    plots.legend_below(figure, axes, 3)


EXPERIMENTS = alone("demt-fig7", _measure, facts, _draw, (plots.PAGE * 0.6, 3.4))
