"""Figs. 5 and 9 of the MBPC paper: run times on the tightest links, split in two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.mbpc.study import (
    BEST,
    CHOSEN,
    COLUMNS,
    NARROWEST,
    POLICIES,
    TIGHT,
    WIDEST,
    WORST,
    plotted,
    proofs,
    study,
    total_times,
)
from coalloc.simulation.reproduce.rows import distinct, grouped, spread, table, where

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Figure

CLAIMS = {
    1: "With ABW = 0.4 Gbit/s the communication time is the same for all three models, since no "
    "link is saturated; MBPC's processing times are shorter, so that its execution time over all "
    "jobs is 5 % lower than that of the other models.",
    2: "With ABW = 0.4 Gbit/s and every node's power drawn at random, MBPC's execution time over "
    "all jobs is 10 % lower than that of the other models.",
}
PAPER_CUT = {1: 0.05, 2: 0.1}
"""How much lower the paper's text has MBPC's time."""
NAMES = {CHOSEN: "as it chooses", BEST: "its best choice", WORST: "its worst choice"}
PARTS = (
    ("communication", plots.SKY, "communication, (1 − σ) SC"),
    ("processing", plots.VERMILION, "processing, σ SP"),
)


def _measure(case: int, run: Run) -> Iterable[Row]:
    ends = (NARROWEST, WIDEST)
    return [row for row in where(study(run, case), abw_gbps=TIGHT) if row["ties"] not in ends]


def savings(rows: Sequence[Row]) -> dict[tuple[str, str | None], list[float]]:
    """Time that each comparator's jobs take beyond those of MBPC, in all, by seed.

    Returns
    -------
    mapping of (policy, ties) to shares
    """
    ours = total_times(where(rows, policy="mbpc"))
    return {
        (policy, ties): [1.0 - ours[seed] / time for seed, time in total_times(group).items()]
        for (policy, ties), group in grouped(rows, "policy", "ties").items()
        if policy != "mbpc"
    }


def _describe(case: int, rows: Sequence[Row]) -> Story:
    found = savings(rows)
    cut = {
        policy: [fmean(values) for (who, _), values in found.items() if who == policy]
        for policy in POLICIES[1:]
    }
    communication = grouped(plotted(rows), "policy")
    parts = {
        policy: fmean(row["communication"] for row in group)
        for (policy,), group in communication.items()
    }
    same = max(parts.values()) - min(parts.values()) < 1e-6
    ours = list(total_times(where(rows, policy="mbpc")).values())
    seeds = len(ours)
    draws = f", mean over {seeds} draws of the powers" if case == 2 else ""
    return Story(
        headline="mbpc's total time is lower by "
        + ", ".join(f"{spread(cut[policy], _percent)} than {policy}" for policy in cut),
        claims=(CLAIMS[case],),
        measured=(
            _table(rows, draws),
            f"The sum of the run times under `mbpc` is {fmean(ours):.6f} base times{draws}, lower "
            f"by {spread(cut['cbs'], _percent)} than under `cbs` and by "
            f"{spread(cut['jpn'], _percent)} than under `jpn`, according to which allocation of "
            "least traffic it takes.",
            *_by_draw(case, found),
            f"The communication times of the policies are {'the same' if same else 'different'}.",
            proofs(rows),
        ),
        reasons=(
            "JPN's objective does not see power: every allocation of least traffic is as good to "
            "it as any other, and the total time follows from which of them the solver happens "
            "to return. All of them are listed, so the best and the worst are exact. The paper's "
            f"{_percent(PAPER_CUT[case])} {_place(PAPER_CUT[case], cut['jpn'])} what the choice "
            "alone spans here; than CBS, whose rules leave no such choice, MBPC is faster by "
            f"{spread(cut['cbs'], _percent)}.",
            "The paper gives no base times; here all jobs have the same one, so that times are in "
            "base times, and each job counts alike.",
        ),
    )


def _place(value: float, others: Sequence[float]) -> str:
    if value < min(others):
        return "is less than"
    return "is more than" if value > max(others) else "lies within"


def _percent(value: float) -> str:
    return f"{value if abs(value) >= 0.0005 else 0.0:.1%}".replace("%", " %")


def _table(rows: Sequence[Row], draws: str) -> str:
    jobs = distinct(rows, "job")
    lines = []
    for (policy, ties), group in grouped(rows, "policy", "ties").items():
        stopped = len(grouped(where(group, status="time_limit"), "seed"))
        name = f"`{policy}`" + (f", {NAMES[ties]}" if ties else "")
        name += f" (work ended first in {stopped} of {len(grouped(group, 'seed'))})" * bool(stopped)
        cells = [
            fmean(row["processing"] + row["communication"] for row in where(group, job=job))
            for job in jobs
        ]
        lines.append([name, *(f"{cell:.4f}" for cell in cells), f"{sum(cells):.4f}"])
    return table((f"run time in base times{draws}", *jobs, "sum"), lines)


def _by_draw(case: int, found: dict[tuple[str, str | None], list[float]]) -> Iterable[str]:
    if case == 2:
        names = (
            f"{spread(values, _percent)} than `{policy}`" + (f" ({NAMES[ties]})" if ties else "")
            for (policy, ties), values in found.items()
        )
        yield f"In single draws it is lower (negative: higher) by {'; '.join(names)}."


def _draw(rows: Sequence[Row], figure: Figure) -> None:
    """A bar per job, stacked, in a group per policy; the sum above each group."""
    axes = plots.panels(figure, 1, 1)[0][0]
    groups = grouped(rows, "policy", "ties")
    jobs = distinct(rows, "job")
    ticks, names = [], []
    for number, ((policy, ties), group) in enumerate(groups.items()):
        highest = 0.0
        for place, job in enumerate(jobs):
            x = number * (len(jobs) + 1.2) + place
            mine = where(group, job=job)
            bottom = 0.0
            for name, colour, label in PARTS:
                height = fmean(row[name] for row in mine)
                first = number == place == 0
                plots.bar(axes, x, height, bottom, colour, label if first else None)
                bottom += height
            highest = max(highest, bottom)
            ticks.append(x)
            names.append(job)
        middle = number * (len(jobs) + 1.2) + (len(jobs) - 1) / 2
        title = policy.upper() + (f"\n{ties}" if ties else "")
        total = fmean(total_times(group).values())
        axes.annotate(f"Σ {total:.3f}", (middle, highest + 0.02), ha="center", va="bottom")
        axes.annotate(
            title,
            (middle, -0.1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
        )
    axes.set_xticks(ticks, names)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("policies (below JPN: which choice) and jobs", labelpad=24)
    axes.set_ylabel("run time (base times)")
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.1)
    figure.legend(loc="outside upper center", ncols=2)


def _experiment(case: int) -> Experiment:
    return Experiment(
        columns=COLUMNS,
        reduced="all of it in case 1." if case == 1 else "two draws of the powers.",
        size=(plots.COLUMN, 2.6),
        measure=partial(_measure, case),
        describe=partial(_describe, case),
        draw=_draw,
    )


EXPERIMENTS = {"mbpc-fig5": _experiment(1), "mbpc-fig9": _experiment(2)}
