"""Fig. 2 and Tables 1 to 3 of the MCA-HEFT paper: what workflows get, and what gains come from.

Notes
-----
The paper draws MCA-HEFT, M-HEFT and the critical path. Here stand every form of M-HEFT, HCPA, MCPA,
`workflow` and a lower bound beside them, since the sign of the comparison turns with the baseline.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import exp, log
from statistics import fmean

import numpy as np

from benchmarks.papers.mca.study import (
    BEST_FIT,
    MOST_CLUSTERS,
    POLICIES,
    SEARCH,
    SET_NAMES,
    STUDY,
    by_set,
    over_draws,
    seen_by,
    steps,
    workflow_of,
)
from benchmarks.papers.study import Experiment, Looks, Run, alone
from benchmarks.papers.workflow_instances import TABLE_1, table_1
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_options
from coalloc.policies.published.mca_heft import SpreadAllotments
from coalloc.policies.registry import POLICIES as REGISTRY
from coalloc.policies.workflow.mapping import Mapper
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Estimate, Row, Rows, spread, table
from coalloc.simulation.reproduce.words import CLOSE, Facts, shown

PAPER_GAINS = {"few": 0.08, "various": 0.20, "many": 0.42}
BASELINES = ("m-heft", "m-heft-imp", "m-heft-eff", "m-heft-max")
COMPARED = tuple(
    (policy, baseline)
    for policy in ("mca-heft", BEST_FIT, "hcpa", "workflow")
    for baseline in (*BASELINES, "mca-heft")
    if policy != baseline
)
"""Policies, and what each is compared with."""


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
    return statistics.correlation(paths, won) if min(len(set(paths)), len(set(won))) > 1 else 0.0


def _draw(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    sets = rows.distinct("set")
    grid = plots.panels(figure, 2, 2)
    flat = [axes for line in grid for axes in line]
    for axes, name in zip(flat, sets, strict=False):
        _spans(axes, rows.where(set=name), looks)
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


def _spans(axes: plots.Axes, rows: Rows, looks: Looks) -> None:
    numbers = rows.distinct("number")
    at = list(range(1, len(numbers) + 1))

    def point(policy: str, number: int) -> float:
        return rows.where(policy=policy, number=number).mean("makespan_s")

    plots.curves(axes, looks, numbers, point, lambda number, _: at[numbers.index(number)])
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


PAPER_SHARES: Mapping[str, tuple[int, ...]] = {
    "few": (33, 34, 38, 41, 33),
    "various": (33, 43, 31, 45, 44),
    "many": (31, 30, 36, 40, 37),
}
PAPER_PATHS: Mapping[str, tuple[int, ...]] = {
    "few": (290, 383, 482, 573, 666),
    "various": (574, 760, 874, 957, 1053),
    "many": (189, 290, 294, 385, 676),
}

HIGH = 0.5
"""Standard deviation by the mean from which on it is high."""


def _measure_1(run: Run) -> Iterator[Row]:
    options = read_options({}, REGISTRY["mca-heft"].options)
    for name, shapes in TABLE_1.items():
        for n, snapshot in enumerate(table_1(name, run.seed)):
            mapper = Mapper(Planner(snapshot, options))
            allocation = SpreadAllotments(mapper, options)
            work = np.array([task.work for task in workflow_of(snapshot).tasks])
            yield {
                "set": name,
                "number": n + 1,
                "tasks": shapes[n][0],
                "levels": shapes[n][1],
                "paper_share": PAPER_SHARES[name][n],
                "share": 100.0 * float(allocation.spreads.mean()),
                "paper_path": PAPER_PATHS[name][n],
                "path_s": float(mapper.graph.bottom(work).max()),
            }


def _facts_1(rows: Rows) -> Facts:
    off = max(abs(row["path_s"] / row["paper_path"] - 1.0) for row in rows)
    lines = [
        (
            SET_NAMES[row["set"]],
            f"{row['tasks']}",
            f"{row['levels']}",
            f"{row['paper_share']} %",
            f"{row['share']:.0f} %",
            f"{row['paper_path']}",
            f"{row['path_s']:.0f}",
        )
        for row in rows
    ]
    head = ("set", "tasks", "levels", "above MCA", "here", "critical path", "here")
    return {"off": off, "is_near": off <= CLOSE, "table": table(head, lines)}


def _draw_1(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    grid = plots.panels(figure, 1, 1)
    (axes,) = grid[0]
    for name, marker in zip(rows.distinct("set"), "os^", strict=True):
        mine = rows.where(set=name)
        xs, ys = mine.column("paper_path"), mine.column("path_s")
        axes.plot(xs, ys, marker, markerfacecolor="white", label=SET_NAMES[name])
    top = max(rows.column("paper_path"))
    axes.plot([0, top], [0, top], color=plots.GREY, linewidth=0.8, label="equal")
    axes.set_xlabel("critical path, published")
    axes.set_ylabel("critical path, drawn here (s)")
    axes.legend()


def _shares(rows: Rows) -> list[float]:
    """Share of the tasks on one cluster, on two, and so on."""
    counts = [sum(rows.column(f"on_{k}")) for k in range(1, MOST_CLUSTERS + 1)]
    return [count / sum(counts) for count in counts]


def _ahead(rows: Rows, first: str, other: str, name: str) -> list[bool]:
    """Of each set, whether the interval of the first policy's mean less the other's is above 0."""

    def less(draw: Rows) -> float:
        return draw.where(policy=first).mean(name) - draw.where(policy=other).mean(name)

    return [over_draws(group, less).low > 0.0 for group in rows.grouped("set").values()]


def _facts_2(rows: Rows) -> Facts:
    mine = rows.where(policy="mca-heft")
    of_set = {name: group for (name,), group in mine.grouped("set").items()}
    spread = {n: over_draws(group, lambda draw: draw.mean("spread")) for n, group in of_set.items()}
    falling = sorted(spread, key=lambda name: -spread[name].mean)

    def wide(group: Rows, policy: str) -> str:
        known = group.where(policy=policy)
        return shown(over_draws(known, lambda draw: draw.mean("resources")), ".1f")

    def on_clusters(group: Rows, policy: str) -> str:
        shares = _shares(group.where(policy=policy))
        return ", ".join(f"{100.0 * share:.1f}" for share in shares) + " %"

    return {
        "spread": tuple(spread.values()),
        "falls": [step.high < 0.0 for step in steps(mine, lambda part: part.mean("spread"))],
        "more": _ahead(rows, "mca-heft", "m-heft", "resources"),
        "more_than_imp": _ahead(rows, "mca-heft", "m-heft-imp", "resources"),
        "wide": {
            policy: " ".join(
                f"{group.mean('resources'):.0f}"
                for group in rows.where(policy=policy).grouped("set").values()
            )
            for policy in ("mca-heft", "m-heft", "m-heft-imp")
        },
        "resources": by_set(rows, wide),
        "clusters": by_set(rows, on_clusters, ("mca-heft", BEST_FIT, "workflow")),
        "kept": "is kept" if falling == list(of_set) else "is not kept",
        "order": tuple(SET_NAMES[name] for name in falling),
        "draws": len(rows.distinct("draw")),
    }


def _draw_2(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    sets = rows.distinct("set")
    grid = plots.panels(figure, 1, 2)
    wide, many = grid[0]
    for policy, (colour, marker, label) in looks.items():
        means = [rows.where(set=name, policy=policy).mean("resources") for name in sets]
        wide.plot(range(len(sets)), means, marker=marker, color=colour, label=label)
    wide.set_xticks(range(len(sets)), sets)
    wide.set_xlabel("tasks by level")
    wide.set_ylabel("mean processes of a task")
    several = range(2, MOST_CLUSTERS + 1)
    bars = ((plots.ORANGE, ""), (plots.SKY, "//"), (plots.GREEN, ".."))
    for s, (name, (colour, hatch)) in enumerate(zip(sets, bars, strict=True)):
        found = _shares(rows.where(set=name, policy="mca-heft"))
        for k in several:
            x = k * (len(sets) + 1) + s
            share = 100.0 * found[k - 1]
            plots.bar(many, x, share, 0.0, colour, SET_NAMES[name] if k == 2 else None, hatch)
    many.set_xticks([k * (len(sets) + 1) + 1 for k in several], [str(k) for k in several])
    many.set_xlabel("clusters of a task")
    many.set_ylabel("share of MCA-HEFT's tasks (%)")
    many.legend()
    plots.letter(grid, ["processes", "tasks on several clusters"])
    plots.legend_below(figure, wide, 4)


def _facts_3(rows: Rows) -> Facts:
    mine = rows.where(policy="mca-heft").grouped("set").values()

    def longer(draw: Rows) -> float:
        ours, others = (draw.where(policy=policy) for policy in ("mca-heft", "m-heft"))
        return ours.mean("comm_s") / others.mean("comm_s")

    def cell(group: Rows, policy: str) -> str:
        chosen = group.where(policy=policy)
        found = over_draws(chosen, lambda draw: draw.mean("comm_s"))
        return f"{shown(found, '.3f')}, {chosen.mean('comm_sd_s'):.3f}"

    apart = tuple(
        over_draws(group, lambda draw: draw.mean("comm_sd_s") / draw.mean("comm_s"))
        for group in mine
    )
    return {
        "ours": tuple(over_draws(group, lambda draw: draw.mean("comm_s")) for group in mine),
        "ratios": tuple(over_draws(group, longer) for group in rows.grouped("set").values()),
        "longer": _ahead(rows, "mca-heft", "m-heft", "comm_s"),
        "apart": apart,
        "is_apart": [one.low >= HIGH for one in apart],
        "table": by_set(rows, cell),
        "draws": len(rows.distinct("draw")),
    }


def _draw_3(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    sets = rows.distinct("set")
    grid = plots.panels(figure, 1, 1)
    (axes,) = grid[0]

    def point(policy: str, name: str) -> Estimate:
        """The mean, with the standard deviation above it."""
        group = rows.where(set=name, policy=policy)
        mean = group.mean("comm_s")
        return Estimate(low=mean, mean=mean, high=mean + group.mean("comm_sd_s"))

    def beside(name: str, number: int) -> float:
        return sets.index(name) + 0.08 * (number - len(POLICIES) / 2)

    plots.curves(axes, looks, sets, point, beside, joined=False)
    axes.set_xticks(range(len(sets)), sets)
    axes.set_xlabel("tasks by level")
    axes.set_ylabel("communication of a task (s)")
    plots.legend_below(figure, axes, 3)


EXPERIMENTS = {
    **alone("mca-table1", _measure_1, _facts_1, _draw_1, (plots.COLUMN, 2.8)),
    "mca-fig2": Experiment(study=STUDY, facts=facts, draw=_draw, size=(plots.PAGE, 5.4)),
    "mca-table2": Experiment(study=STUDY, facts=_facts_2, draw=_draw_2, size=(plots.PAGE, 3.0)),
    "mca-table3": Experiment(study=STUDY, facts=_facts_3, draw=_draw_3, size=(plots.COLUMN, 2.8)),
}
