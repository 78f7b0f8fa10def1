"""Tables 1 to 3 of the MCA-HEFT paper: the workflows, what they get, and their communication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_options
from coalloc.policies.published.mca_heft import SpreadAllotments
from coalloc.policies.registry import POLICIES as REGISTRY
from coalloc.policies.workflow.mapping import Mapper
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.mca.fig2 import LOOKS
from coalloc.simulation.reproduce.mca.study import (
    BEST_FIT,
    MOST_CLUSTERS,
    POLICIES,
    SET_NAMES,
    STUDY,
    by_set,
    over_draws,
    steps,
    workflow_of,
)
from coalloc.simulation.reproduce.rows import Row, Rows, table
from coalloc.simulation.reproduce.study import Experiment, Facts, Run, alone
from coalloc.simulation.reproduce.words import CLOSE, shown
from coalloc.simulation.reproduce.workflow_instances import TABLE_1, table_1

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Figure

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

PAPER_RESOURCES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "few": {"mca-heft": (24, 26, 26, 25, 25), "m-heft": (13, 10, 9, 8, 7)},
    "various": {"mca-heft": (22, 18, 21, 19, 20), "m-heft": (7, 5, 5, 5, 5)},
    "many": {"mca-heft": (7, 9, 9, 8, 11), "m-heft": (8, 7, 7, 5, 4)},
}
PAPER_SPREAD: Mapping[str, tuple[int, ...]] = {
    "few": (10, 10, 11, 13, 9),
    "various": (7, 11, 5, 7, 9),
    "many": (0, 2, 4, 1, 3),
}
"""Table 2: mean processes of a task, and % of the tasks on several clusters."""
PAPER_COMM: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "few": {"mca-heft": (770, 455), "m-heft": (0, 1)},
    "various": {"mca-heft": (14821, 12401), "m-heft": (1, 4)},
    "many": {"mca-heft": (205, 440), "m-heft": (0, 1)},
}
"""Table 3: communication of a task, mean and standard deviation, in a unit that is not named."""
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


def _draw_1(rows: Rows, figure: Figure) -> None:
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

    published = [
        [f"the paper's `{policy}`", *(f"{fmean(PAPER_RESOURCES[n][policy]):.1f}" for n in of_set)]
        for policy in ("mca-heft", "m-heft")
    ]
    several = [f"{fmean(PAPER_SPREAD[n]):.1f} % on several" for n in of_set]
    searched = ("mca-heft", BEST_FIT, "workflow")
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
        "resources": by_set(rows, wide, above=published),
        "clusters": by_set(
            rows,
            on_clusters,
            searched,
            [["the paper's `mca-heft`", *several]],
        ),
        "kept": "is kept" if falling == list(of_set) else "is not kept",
        "order": tuple(SET_NAMES[name] for name in falling),
        "draws": len(rows.distinct("draw")),
    }


def _draw_2(rows: Rows, figure: Figure) -> None:
    sets = rows.distinct("set")
    grid = plots.panels(figure, 1, 2)
    wide, many = grid[0]
    for policy in POLICIES:
        colour, marker = LOOKS[policy]
        means = [rows.where(set=name, policy=policy).mean("resources") for name in sets]
        wide.plot(range(len(sets)), means, marker=marker, color=colour, label=policy)
    wide.set_xticks(range(len(sets)), sets)
    wide.set_xlabel("tasks by level")
    wide.set_ylabel("mean processes of a task")
    several = range(2, MOST_CLUSTERS + 1)
    looks = ((plots.ORANGE, ""), (plots.SKY, "//"), (plots.GREEN, ".."))
    for s, (name, (colour, hatch)) in enumerate(zip(sets, looks, strict=True)):
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

    published = [
        [f"the paper's `{p}`", *(f"{one[p][0]}, {one[p][1]}" for one in PAPER_COMM.values())]
        for p in ("mca-heft", "m-heft")
    ]
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
        "table": by_set(rows, cell, above=published),
        "draws": len(rows.distinct("draw")),
    }


def _draw_3(rows: Rows, figure: Figure) -> None:
    sets = rows.distinct("set")
    grid = plots.panels(figure, 1, 1)
    (axes,) = grid[0]
    for n, policy in enumerate(POLICIES):
        colour, marker = LOOKS[policy]
        chosen = [rows.where(set=name, policy=policy) for name in sets]
        at = [s + 0.08 * (n - len(POLICIES) / 2) for s in range(len(sets))]
        axes.errorbar(
            at,
            [group.mean("comm_s") for group in chosen],
            yerr=[[0.0] * len(sets), [group.mean("comm_sd_s") for group in chosen]],
            color=colour,
            marker=marker,
            linestyle="none",
            capsize=2.0,
            label=policy,
        )
    axes.set_xticks(range(len(sets)), sets)
    axes.set_xlabel("tasks by level")
    axes.set_ylabel("communication of a task (s)")
    plots.legend_below(figure, axes, 3)


EXPERIMENTS = {
    **alone("mca-table1", _measure_1, _facts_1, _draw_1, (plots.COLUMN, 2.8)),
    "mca-table2": Experiment(study=STUDY, facts=_facts_2, draw=_draw_2, size=(plots.PAGE, 3.0)),
    "mca-table3": Experiment(study=STUDY, facts=_facts_3, draw=_draw_3, size=(plots.COLUMN, 2.8)),
}
