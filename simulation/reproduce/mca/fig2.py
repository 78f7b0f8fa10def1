"""Fig. 2 of the MCA-HEFT paper: makespans of the three sets, and what the gains come from.

Notes
-----
The paper draws MCA-HEFT, M-HEFT and the critical path. Here stand every form of M-HEFT, HCPA, MCPA,
`workflow` and a lower bound beside them, since the sign of the comparison turns with the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.mca.study import (
    BEST_FIT,
    POLICIES,
    SEARCH,
    SET_NAMES,
    STUDY,
    by_set,
    over_draws,
    seen_by,
    steps,
)
from coalloc.simulation.reproduce.rows import Estimate, Rows, spread, table
from coalloc.simulation.reproduce.study import Experiment, Facts
from coalloc.simulation.reproduce.words import CLOSE, shown

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

PAPER_GAINS = {"few": 0.08, "various": 0.20, "many": 0.42}
BASELINES = ("m-heft", "m-heft-imp", "m-heft-eff", "m-heft-max")
COMPARED = tuple(
    (policy, baseline)
    for policy in ("mca-heft", BEST_FIT, "hcpa", "workflow")
    for baseline in (*BASELINES, "mca-heft")
    if policy != baseline
)
"""Policies, and what each is compared with."""
LOOKS = {
    "mca-heft": (plots.VERMILION, "o"),
    BEST_FIT: (plots.VERMILION, "."),
    "m-heft": (plots.BLUE, "s"),
    "m-heft-imp": (plots.SKY, "v"),
    "m-heft-eff": (plots.PURPLE, "^"),
    "m-heft-max": (plots.ORANGE, "D"),
    "hcpa": (plots.GREEN, "P"),
    "mcpa": (plots.GREY, "X"),
    "workflow": (plots.BLACK, "*"),
}


def gains(rows: Rows, policy: str, baseline: str) -> list[float]:
    """Share by which a policy is shorter than another, workflow by workflow."""
    out = []
    for group in rows.grouped("set", "number", "draw").values():
        spans = {row["policy"]: row["makespan_s"] for row in group}
        out.append(1.0 - spans[policy] / spans[baseline])
    return out


def gain(rows: Rows, policy: str, baseline: str) -> Estimate:
    """Its mean over the workflows, with an interval over the draws."""
    return over_draws(seen_by(rows, policy), lambda draw: fmean(gains(draw, policy, baseline)))


def _as_published(gained: Sequence[Estimate]) -> list[bool]:
    """Whether the interval of each set's gain lies close to what the text says."""
    return [
        max(abs(one.low - paper), abs(one.high - paper)) <= CLOSE
        for one, paper in zip(gained, PAPER_GAINS.values(), strict=False)
    ]


def above_bound(rows: Rows, policy: str) -> float:
    """Makespan by the bound, geometric mean."""
    mine = rows.where(policy=policy)
    return exp(fmean(log(row["makespan_s"] / row["bound_s"]) for row in mine))


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    of_set = {name: group for (name,), group in rows.grouped("set").items()}
    correlations = tuple(over_draws(group, correlation) for group in of_set.values())
    gained, with_best_fit, of_hcpa = (
        tuple(gain(group, policy, "m-heft") for group in of_set.values())
        for policy in ("mca-heft", BEST_FIT, "hcpa")
    )
    return {
        "gained": gained,
        "with_best_fit": with_best_fit,
        "of_hcpa": of_hcpa,
        "correlations": correlations,
        "draws": len(rows.distinct("draw")),
        "searched": len(seen_by(rows, SEARCH).distinct("draw")),
        "as_published": _as_published(gained),
        "best_fit_as_published": _as_published(with_best_fit),
        "widens": [
            step.low > 0.0
            for step in steps(rows, lambda part: fmean(gains(part, "mca-heft", "m-heft")))
        ],
        "grow": [value.low > 0.5 for value in correlations],
        "gains": _gains_table(of_set),
        "bounds": by_set(
            rows,
            lambda group, policy: shown(
                over_draws(seen_by(group, SEARCH), partial(above_bound, policy=policy)), ".3f"
            ),
        ),
        "worst": max(
            row["makespan_s"] / other["makespan_s"] - 1.0
            for group in rows.grouped("set", "number", "draw").values()
            for row in group.where(policy="workflow")
            for other in group
        ),
    }


def _gains_table(of_set: Mapping[str, Rows]) -> str:
    def cell(group: Rows, policy: str, baseline: str) -> str:
        return shown(gain(group, policy, baseline), "+.1%")

    return table(
        ("", *(SET_NAMES[name] for name in of_set)),
        [
            ["the paper's", *(shown(PAPER_GAINS[name], "+.1%") for name in of_set)],
            *(
                [
                    f"`{policy}` against `{baseline}`",
                    *(cell(group, policy, baseline) for group in of_set.values()),
                ]
                for policy, baseline in COMPARED
            ),
        ],
    )


def correlation(rows: Rows) -> float:
    """Of the gain with the critical path."""
    paths = [row["critical_path_s"] for row in rows.where(policy="mca-heft")]
    won = gains(rows, "mca-heft", "m-heft")
    a, b = fmean(paths), fmean(won)
    across = sum((x - a) * (y - b) for x, y in zip(paths, won, strict=True))
    own = sum((x - a) ** 2 for x in paths) * sum((y - b) ** 2 for y in won)
    return float(across / own**0.5) if own > 0.0 else 0.0


def _draw(rows: Rows, figure: Figure) -> None:
    sets = rows.distinct("set")
    grid = plots.panels(figure, 2, 2)
    flat = [axes for line in grid for axes in line]
    for axes, name in zip(flat, sets, strict=False):
        _spans(axes, rows.where(set=name))
    last = flat[len(sets)]
    for name, marker in zip(sets, "os^", strict=True):
        mine = rows.where(set=name)
        paths = [row["critical_path_s"] for row in mine.where(policy="mca-heft")]
        won = [100.0 * gain for gain in gains(mine, "mca-heft", "m-heft")]
        last.plot(paths, won, marker, markerfacecolor="white", label=SET_NAMES[name])
    last.axhline(0.0, color=plots.BLACK, linewidth=0.6)
    last.set_xlabel("critical path (s of work)")
    last.set_ylabel("MCA-HEFT shorter than M-HEFT (%)")
    last.margins(y=0.4)
    last.legend(ncols=2, loc="upper right")
    plots.letter(grid, [*(SET_NAMES[name] for name in sets), "gain and critical path"])
    plots.legend_below(figure, flat[0], 5)


def _spans(axes: Axes, rows: Rows) -> None:
    numbers = rows.distinct("number")
    at = list(range(1, len(numbers) + 1))
    for policy in POLICIES:
        colour, marker = LOOKS[policy]
        spans = [rows.where(policy=policy, number=n).mean("makespan_s") for n in numbers]
        axes.plot(at, spans, marker=marker, color=colour, markerfacecolor="white", label=policy)
    bounds = [rows.where(number=n).mean("bound_s") for n in numbers]
    axes.plot(at, bounds, linestyle="--", color=plots.BLACK, label="lower bound")
    names = []
    for n in numbers:
        mine = rows.where(number=n)
        path = mine.mean("critical_path_s")
        names.append(f"{spread(mine.column('tasks'), '{:g}'.format)}\n{path:.0f}")
    axes.set_xticks(at, names)
    axes.set_xlabel("tasks, and critical path (s of work)")
    axes.set_ylabel("makespan (s)")
    axes.set_ylim(bottom=0.0)


EXPERIMENTS = {"mca-fig2": Experiment(study=STUDY, facts=facts, draw=_draw, size=(plots.PAGE, 5.4))}
