"""Tables 1 to 3 of the MCA-HEFT paper: the workflows, what they get, and their communication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_options
from coalloc.policies.published.mca_heft import SpreadAllotments
from coalloc.policies.registry import POLICIES as REGISTRY
from coalloc.policies.workflow.mapping import Mapper
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.mca_fig2 import LOOKS
from coalloc.simulation.reproduce.mca_study import (
    BEST_FIT,
    COLUMNS,
    MOST_CLUSTERS,
    POLICIES,
    REDUCED,
    SET_NAMES,
    study,
    workflow_of,
)
from coalloc.simulation.reproduce.rows import column, distinct, table, where
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
PAPER_RESOURCES = {"few": (25, 9), "various": (20, 5), "many": (9, 6)}
"""Means of Table 2's columns: MCA-HEFT, M-HEFT."""
PAPER_SPREAD = {"few": 11, "various": 8, "many": 2}
PAPER_COMM = {"few": (770, 455, 0, 1), "various": (14821, 12401, 1, 4), "many": (205, 440, 0, 1)}

TABLE_1_COLUMNS: Mapping[str, str] = {
    "set": "few, various or many tasks by level",
    "number": "which of the set's five workflows",
    "tasks": "tasks, as published",
    "levels": "levels, as published",
    "paper_share": "tasks with MCACCR > MCA, published, %",
    "share": "the same of the workflow drawn here, %",
    "paper_path": "critical path as published",
    "path_s": "longest path of work, drawn here, s at power 1",
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


def _describe_1(rows: Sequence[Row]) -> Story:
    off = max(abs(row["path_s"] / row["paper_path"] - 1.0) for row in rows)
    return Story(
        headline=f"critical paths within {100.0 * off:.1f} % of the published ones",
        claims=("Three sets of five workflows, with these tasks, levels and critical paths.",),
        measured=(
            table(
                ("set", "tasks", "levels", "above MCA", "here", "critical path", "here"),
                [
                    [
                        SET_NAMES[row["set"]],
                        f"{row['tasks']}",
                        f"{row['levels']}",
                        f"{row['paper_share']} %",
                        f"{row['share']:.0f} %",
                        f"{row['paper_path']}",
                        f"{row['path_s']:.0f}",
                    ]
                    for row in rows
                ],
            ),
        ),
        reasons=(
            "The published critical paths are about 96 a level, whatever the width: so weights "
            "are bounded near 100, with a heavy task on each level. MCA is set so that the mean "
            "share of the table, 37 %, lies above it.",
        ),
    )


def _draw_1(rows: Sequence[Row], figure: Figure) -> None:
    grid = plots.panels(figure, 1, 1)
    (axes,) = grid[0]
    for name, marker in zip(distinct(rows, "set"), "os^", strict=True):
        mine = where(rows, set=name)
        xs, ys = column(mine, "paper_path"), column(mine, "path_s")
        axes.plot(xs, ys, marker, markerfacecolor="white", label=SET_NAMES[name])
    top = max(column(rows, "paper_path"))
    axes.plot([0, top], [0, top], color=plots.GREY, linewidth=0.8, label="equal")
    axes.set_xlabel("critical path, published")
    axes.set_ylabel("critical path, drawn here (s)")
    axes.legend()


def _measure(run: Run) -> Iterable[Row]:
    return study(run)


def _means(rows: Sequence[Row], name: str, policy: str) -> dict[str, float]:
    """Means over the workflows of a set."""
    mine = where(rows, set=name, policy=policy)
    counts = [sum(column(mine, f"on_{k}")) for k in range(1, MOST_CLUSTERS + 1)]
    return {
        **{key: fmean(column(mine, key)) for key in ("resources", "spread", "comm_s", "comm_sd_s")},
        **{f"on_{k}": count / sum(counts) for k, count in enumerate(counts, 1)},
    }


def _describe_2(rows: Sequence[Row]) -> Story:
    sets = distinct(rows, "set")
    found = {(name, p): _means(rows, name, p) for name in sets for p in POLICIES}
    shares = [100.0 * found[name, "mca-heft"]["spread"] for name in sets]
    return Story(
        headline="tasks that MCA-HEFT spreads: " + ", ".join(f"{share:.1f} %" for share in shares),
        claims=(
            "MCA-HEFT gives a task more processes than M-HEFT does: "
            + "; ".join(f"{SET_NAMES[n]} {a} against {b}" for n, (a, b) in PAPER_RESOURCES.items())
            + ".",
            "It spreads "
            + ", ".join(f"{share} %" for share in PAPER_SPREAD.values())
            + " of the tasks over several clusters, fewer the more tasks there are by level.",
        ),
        measured=(
            "Mean processes of a task:",
            table(
                ("", *(SET_NAMES[name] for name in sets)),
                [
                    [f"`{p}`", *(f"{found[name, p]['resources']:.1f}" for name in sets)]
                    for p in POLICIES
                ],
            ),
            "Share of the tasks on one cluster, on two, and so on:",
            table(
                ("", *(SET_NAMES[name] for name in sets)),
                [
                    [
                        f"`{p}`",
                        *(
                            ", ".join(
                                f"{100.0 * found[name, p][f'on_{k}']:.1f}"
                                for k in range(1, MOST_CLUSTERS + 1)
                            )
                            + " %"
                            for name in sets
                        ),
                    ]
                    for p in ("mca-heft", BEST_FIT, "workflow")
                ],
            ),
        ),
        reasons=(
            _order(sets, shares),
            "Plain M-HEFT takes whole clusters here, where the paper's takes 4 to 13 nodes: it "
            "must have been one of the restrained forms, which the text does not name.",
            "A task may take a quarter of all nodes at most, 68, and the largest cluster has 85: "
            "a task is spread only where its level's earlier tasks have taken the room.",
        ),
    )


def _order(sets: Sequence[str], shares: Sequence[float]) -> str:
    """Whether the spread falls with the width of levels, as the paper has it."""
    order = [SET_NAMES[sets[n]] for n in sorted(range(len(sets)), key=lambda n: -shares[n])]
    paper = [SET_NAMES[name] for name in sorted(PAPER_SPREAD, key=lambda n: -PAPER_SPREAD[n])]
    kept = "The paper's order of the sets is kept" if order == paper else "It is not kept here"
    return (
        f"In the paper the share of spread tasks falls from {', to '.join(paper)}. {kept}: by "
        f"falling share they are {', '.join(order)}."
    )


def _draw_2(rows: Sequence[Row], figure: Figure) -> None:
    sets = distinct(rows, "set")
    grid = plots.panels(figure, 1, 2)
    wide, many = grid[0]
    for policy in POLICIES:
        colour, marker = LOOKS[policy]
        means = [_means(rows, name, policy)["resources"] for name in sets]
        wide.plot(range(len(sets)), means, marker=marker, color=colour, label=policy)
    wide.set_xticks(range(len(sets)), sets)
    wide.set_xlabel("tasks by level")
    wide.set_ylabel("mean processes of a task")
    several = range(2, MOST_CLUSTERS + 1)
    looks = ((plots.ORANGE, ""), (plots.SKY, "//"), (plots.GREEN, ".."))
    for s, (name, (colour, hatch)) in enumerate(zip(sets, looks, strict=True)):
        found = _means(rows, name, "mca-heft")
        for k in several:
            x = k * (len(sets) + 1) + s
            share = 100.0 * found[f"on_{k}"]
            plots.bar(many, x, share, 0.0, colour, SET_NAMES[name] if k == 2 else None, hatch)
    many.set_xticks([k * (len(sets) + 1) + 1 for k in several], [str(k) for k in several])
    many.set_xlabel("clusters of a task")
    many.set_ylabel("share of MCA-HEFT's tasks (%)")
    many.legend()
    plots.letter(grid, ["processes", "tasks on several clusters"])
    plots.legend_below(figure, wide, 4)


def _describe_3(rows: Sequence[Row]) -> Story:
    sets = distinct(rows, "set")
    found = {(name, p): _means(rows, name, p) for name in sets for p in POLICIES}
    mca = [f"{found[name, 'mca-heft']['comm_s']:.2f} s" for name in sets]
    return Story(
        headline="communication of a task under MCA-HEFT: " + ", ".join(mca),
        claims=(
            "Mean and standard deviation of the time spent communicating, MCA-HEFT and M-HEFT: "
            + "; ".join(
                f"{SET_NAMES[name]} {a} and {b}, {c} and {d}"
                for name, (a, b, c, d) in PAPER_COMM.items()
            )
            + ".",
        ),
        measured=(
            "Communication time of a task, mean and standard deviation over the tasks, mean over "
            "the workflows, seconds:",
            table(
                ("", *(SET_NAMES[name] for name in sets)),
                [
                    [
                        f"`{p}`",
                        *(
                            f"{found[name, p]['comm_s']:.3f}, {found[name, p]['comm_sd_s']:.3f}"
                            for name in sets
                        ),
                    ]
                    for p in POLICIES
                ],
            ),
        ),
        reasons=(
            "The published ratio of 14,821 to 1 does not follow from bandwidths of 1 GB/s inside "
            "and 100 MB/s between clusters, which differ by a factor of ten: the text names "
            "neither the unit nor the volumes.",
            "A task's processes share its communication: who takes whole clusters communicates "
            "least, and the forms with few processes longest. MCA-HEFT lies above plain M-HEFT for "
            "its smaller allotments, and for the tasks that it spreads.",
        ),
    )


def _draw_3(rows: Sequence[Row], figure: Figure) -> None:
    sets = distinct(rows, "set")
    grid = plots.panels(figure, 1, 1)
    (axes,) = grid[0]
    for n, policy in enumerate(POLICIES):
        colour, marker = LOOKS[policy]
        means = [_means(rows, name, policy) for name in sets]
        at = [s + 0.08 * (n - len(POLICIES) / 2) for s in range(len(sets))]
        axes.errorbar(
            at,
            [found["comm_s"] for found in means],
            yerr=[[0.0] * len(sets), [found["comm_sd_s"] for found in means]],
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
        columns=TABLE_1_COLUMNS,
        reduced="nothing: it is fast.",
        size=(plots.COLUMN, 2.8),
        measure=_measure_1,
        describe=_describe_1,
        draw=_draw_1,
    ),
    "mca-table2": Experiment(
        columns=COLUMNS,
        reduced=REDUCED,
        size=(plots.PAGE, 3.0),
        measure=_measure,
        describe=_describe_2,
        draw=_draw_2,
    ),
    "mca-table3": Experiment(
        columns=COLUMNS,
        reduced=REDUCED,
        size=(plots.COLUMN, 2.8),
        measure=_measure,
        describe=_describe_3,
        draw=_draw_3,
    ),
}
