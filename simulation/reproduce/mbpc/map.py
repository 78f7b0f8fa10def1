"""Fig. 6 of the MBPC paper: which clusters each job got, on the tightest links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.mbpc.study import POLICIES, TIGHT, Point, place, platform
from coalloc.simulation.reproduce.rows import column, distinct, grouped, table, where

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

COLUMNS = {
    "policy": "of the registry",
    "cluster": "C1 to C4",
    "power": "of its nodes",
    "nodes": "of the cluster",
    "job": "J1 to J3",
    "processes": "of the job on the cluster",
}
LOOKS = ((plots.BLUE, "///"), (plots.ORANGE, ""), (plots.GREEN, "..."))


def measure(run: Run) -> Iterable[Row]:
    """Place the three jobs of case 1 with each policy."""
    snapshot = platform(1, TIGHT, run.seed)
    for policy in run.steps("MBPC allocation map", POLICIES):
        point = Point(case=1, seed=run.seed, abw=TIGHT, policy=policy)
        placements = place(point, snapshot).plan.placements
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


def describe(rows: Sequence[Row]) -> Story:
    """Text about the rows."""
    weakest = min(rows, key=lambda row: float(row["power"]))["cluster"]
    strongest = max(rows, key=lambda row: float(row["power"]))["cluster"]
    jobs = distinct(rows, "job")
    mine = where(rows, policy="mbpc")
    full = where(mine, cluster=weakest, job=jobs[0])[0]
    last = where(mine, cluster=strongest, job=jobs[-1])[0]
    clusters = {
        policy: {job: _clusters_of(where(rows, policy=policy, job=job)) for job in jobs}
        for policy in POLICIES
    }
    return Story(
        headline=f"mbpc puts {full['processes']} of {jobs[0]} on {weakest}, "
        f"{last['processes']} of {jobs[-1]} on {strongest}",
        claims=(
            "MBPC assigns the whole of C1, the weakest cluster, to J1, which computes least; J3, "
            "which computes most, gets most of C4 and nodes of C3, and need not fill C4; J2 lies "
            "between C2 and C3. CBS and JPN group processes without regard to power.",
        ),
        measured=(
            table(
                ("processes", *distinct(rows, "cluster")),
                [
                    [f"`{policy}`, {job}", *(str(row["processes"]) for row in group)]
                    for (policy, job), group in grouped(rows, "policy", "job").items()
                ],
            ),
            f"Under `mbpc`, {jobs[0]} has {full['processes']} of the {full['nodes']} nodes of "
            f"{weakest}, and {jobs[-1]} {last['processes']} of {strongest}.",
            " ".join(
                f"`{policy}`: "
                + ", ".join(f"{job} on {' and '.join(clusters[policy][job])}" for job in jobs)
                + "."
                for policy in POLICIES
            ),
        ),
        reasons=(
            "The run time of a job follows from its weakest node and from whether its links are "
            "full, so many maps have the same cost. Of these `mbpc` takes one of least load on the "
            "links, and of those the one that gives the job which computes most the strongest "
            "clusters. The paper names no numbers in its text.",
        ),
    )


def _clusters_of(rows: Sequence[Row]) -> list[str]:
    return [row["cluster"] for row in rows if row["processes"]]


def draw(rows: Sequence[Row], figure: Figure) -> None:
    """A panel per policy, a bar per cluster, stacked by job."""
    policies = distinct(rows, "policy")
    grid = plots.panels(figure, 1, len(policies), sharey=True)
    for axes, policy in zip(grid[0], policies, strict=True):
        _map(axes, where(rows, policy=policy))
    grid[0][0].set_ylabel("nodes")
    grid[0][len(policies) // 2].set_xlabel("cluster, and the power of its nodes")
    most = max(column(rows, "nodes"))
    grid[0][0].set_yticks(range(0, most + 1, 4))
    grid[0][0].set_ylim(0, 1.03 * most)
    plots.letter(grid, [policy.upper() for policy in policies])
    plots.legend_below(figure, grid[0][0], 4)


def _map(axes: Axes, rows: Sequence[Row]) -> None:
    clusters = distinct(rows, "cluster")
    for x, cluster in enumerate(clusters):
        bottom = 0.0
        chosen = where(rows, cluster=cluster)
        for number, row in enumerate(chosen):
            colour, hatch = LOOKS[number % len(LOOKS)]
            label = row["job"] if x == 0 else None
            plots.bar(axes, x, row["processes"], bottom, colour, label, hatch)
            bottom += row["processes"]
        idle = chosen[0]["nodes"] - bottom
        plots.bar(axes, x, idle, bottom, "white", "idle" if x == 0 else None)
    powers = [where(rows, cluster=name)[0]["power"] for name in clusters]
    axes.set_xticks(
        range(len(clusters)),
        [f"{name}\n{power:g}" for name, power in zip(clusters, powers, strict=True)],
    )
    axes.grid(visible=False, axis="x")


EXPERIMENTS = {
    "mbpc-fig6": Experiment(
        columns=COLUMNS,
        reduced="nothing is left out.",
        size=(plots.COLUMN, 2.3),
        measure=measure,
        describe=describe,
        draw=draw,
    )
}
