"""Fig. 6 of the MBPC paper: which clusters each job got, on the tightest links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.mbpc.study import COMPARED, TIGHT, place, platform
from coalloc.simulation.reproduce.rows import Row, Rows, tabulate
from coalloc.simulation.reproduce.study import Facts, Run, alone

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure


LOOKS = ((plots.BLUE, "///"), (plots.ORANGE, ""), (plots.GREEN, "..."))


def measure(run: Run) -> Iterable[Row]:
    """Place the three jobs of case 1 with each policy."""
    snapshot = platform(1, TIGHT, run.seed)
    for policy in run.steps("MBPC allocation map", COMPARED):
        placements = place(snapshot, policy, run.seed).plan.placements
        taken = {placement.job: placement.nodes for placement in placements}
        for cluster in snapshot.clusters:
            for job in snapshot.queue:
                yield {
                    "policy": policy,
                    "cluster": cluster.name,
                    "power": cluster.nodes[0].power,
                    "nodes": len(cluster.nodes),
                    "job": job.id,
                    "processes": sum(taken[job.id].get(node.name, 0) for node in cluster.nodes),
                }


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    mine = {(row["job"], row["cluster"]): row["processes"] for row in rows.where(policy="mbpc")}
    nodes = {row["cluster"]: row["nodes"] for row in rows}
    jobs = rows.distinct("job")
    taken = {job: {name: mine[job, name] for name in nodes if mine[job, name]} for job in jobs}
    ranked = {job: sorted(own, key=lambda name: -own[name]) for job, own in taken.items()}
    lines = {
        f"`{policy}`, {job}": group
        for (policy, job), group in rows.grouped("policy", "job").items()
    }
    return {
        "taken": {
            job: ", ".join(f"{n} on {name}" for name, n in own.items())
            for job, own in taken.items()
        },
        "first": taken["J1"].get("C1", 0),
        "last": taken["J3"].get("C4", 0),
        "is_whole": ranked["J1"][0] == "C1" and taken["J1"]["C1"] == nodes["C1"],
        "is_between": ranked["J2"][:2] == ["C2", "C3"],
        "is_mostly": ranked["J3"][:2] == ["C4", "C3"],
        "table": tabulate(
            "processes",
            lines,
            rows.by_value("cluster", lambda group: str(group[0]["processes"])),
        ),
    }


def draw(rows: Rows, figure: Figure) -> None:
    """A panel per policy, a bar per cluster, stacked by job."""
    policies = rows.distinct("policy")
    grid = plots.panels(figure, 1, len(policies), sharey=True)
    for axes, policy in zip(grid[0], policies, strict=True):
        _map(axes, rows.where(policy=policy))
    grid[0][0].set_ylabel("nodes")
    grid[0][len(policies) // 2].set_xlabel("cluster, and the power of its nodes")
    most = max(rows.column("nodes"))
    grid[0][0].set_yticks(range(0, most + 1, 4))
    grid[0][0].set_ylim(0, 1.03 * most)
    plots.letter(grid, [policy.upper() for policy in policies])
    plots.legend_below(figure, grid[0][0], 4)


def _map(axes: Axes, rows: Rows) -> None:
    clusters = rows.distinct("cluster")
    for x, cluster in enumerate(clusters):
        bottom = 0.0
        chosen = rows.where(cluster=cluster)
        for number, row in enumerate(chosen):
            colour, hatch = LOOKS[number % len(LOOKS)]
            label = row["job"] if x == 0 else None
            plots.bar(axes, x, row["processes"], bottom, colour, label, hatch)
            bottom += row["processes"]
        idle = chosen[0]["nodes"] - bottom
        plots.bar(axes, x, idle, bottom, "white", "idle" if x == 0 else None)
    powers = [rows.where(cluster=name)[0]["power"] for name in clusters]
    axes.set_xticks(
        range(len(clusters)),
        [f"{name}\n{power:g}" for name, power in zip(clusters, powers, strict=True)],
    )
    axes.grid(visible=False, axis="x")


EXPERIMENTS = alone("mbpc-fig6", measure, facts, draw, (plots.COLUMN, 2.3))
