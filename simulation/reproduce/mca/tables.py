"""Tables 1 to 3 of the MCA-HEFT paper: the workflows, what they get, and their communication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    workflow_of,
)
from coalloc.simulation.reproduce.rows import (
    Row,
    Rows,
    table,
)
from coalloc.simulation.reproduce.study import Experiment, Facts, Run, Study
from coalloc.simulation.reproduce.words import CLOSE
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


def _facts_2(rows: Rows) -> Facts:
    mine = rows.where(policy="mca-heft")
    spread = {name: mine.where(set=name).mean("spread") for name in mine.distinct("set")}
    falling = sorted(spread, key=lambda name: -spread[name])
    ordered = list(TABLE_1)

    def on_clusters(group: Rows, policy: str) -> str:
        shares = _shares(group.where(policy=policy))
        return ", ".join(f"{100.0 * share:.1f}" for share in shares) + " %"

    return {
        "spread": tuple(spread.values()),
        "falls": [spread[name] for name in ordered] == sorted(spread.values(), reverse=True),
        "resources": by_set(
            rows, lambda group, p: f"{group.where(policy=p).mean('resources'):.1f}"
        ),
        "clusters": by_set(rows, on_clusters, ("mca-heft", BEST_FIT, "workflow")),
        "kept": "is kept" if falling == ordered else "is not kept",
        "order": tuple(SET_NAMES[name] for name in falling),
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
    ours, others = (
        [group.mean("comm_s") for group in rows.where(policy=policy).grouped("set").values()]
        for policy in ("mca-heft", "m-heft")
    )
    ratios = tuple(a / b for a, b in zip(ours, others, strict=True))

    def cell(group: Rows, policy: str) -> str:
        chosen = group.where(policy=policy)
        return f"{chosen.mean('comm_s'):.3f}, {chosen.mean('comm_sd_s'):.3f}"

    return {
        "ours": tuple(ours),
        "ratios": ratios,
        "longer": [ratio > 1.0 for ratio in ratios],
        "table": by_set(rows, cell),
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
    "mca-table1": Experiment(
        study=Study(name="mca-table1", measure=_measure_1),
        facts=_facts_1,
        draw=_draw_1,
        size=(plots.COLUMN, 2.8),
    ),
    "mca-table2": Experiment(study=STUDY, facts=_facts_2, draw=_draw_2, size=(plots.PAGE, 3.0)),
    "mca-table3": Experiment(study=STUDY, facts=_facts_3, draw=_draw_3, size=(plots.COLUMN, 2.8)),
}
