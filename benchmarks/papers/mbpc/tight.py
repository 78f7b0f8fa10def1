"""Figs. 5, 6 and 9 of the MBPC paper: the tightest links, run times and who got which clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean

from benchmarks.papers.mbpc.study import (
    BEST,
    CHOSEN,
    COMPARED,
    NARROWEST,
    PRINTED,
    STUDIES,
    TIGHT,
    WIDEST,
    WORST,
    place,
    platform,
    plotted,
    proofs,
    total_times,
)
from benchmarks.papers.study import Experiment, Looks, Run, alone
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Row, Rows, tabulate
from coalloc.simulation.reproduce.words import Facts

NAMES = {CHOSEN: "as it chooses", BEST: "its best choice", WORST: "its worst choice"}
PARTS = (
    ("communication", plots.SKY, "communication, (1 − σ) SC"),
    ("processing", plots.VERMILION, "processing, σ SP"),
)


TITLES = {PRINTED: "MBPC\nprinted"}


def savings(rows: Rows, mine: str = "mbpc") -> dict[tuple[str, str | None], list[float]]:
    """Time that each comparator's jobs take beyond those of MBPC, in all, by seed."""
    ours = total_times(rows.where(policy=mine))
    return {
        (policy, ties): [1.0 - ours[seed] / time for seed, time in total_times(group).items()]
        for (policy, ties), group in rows.grouped("policy", "ties").items()
        if policy not in ("mbpc", PRINTED)
    }


def _facts(cut: float, rows: Rows) -> Facts:
    """Values of the placeholders; `cut` is how much lower the paper has the total of MBPC."""
    found = savings(rows)
    (cbs, jpn), (printed_cbs, printed_jpn) = _saved(found), _saved(savings(rows, PRINTED))
    parts = {
        policy: group.mean("communication")
        for (policy,), group in plotted(rows).grouped("policy").items()
    }
    ours = list(total_times(rows.where(policy="mbpc")).values())
    return {
        "cbs": cbs,
        "jpn": jpn,
        "table": _table(rows),
        "total": fmean(ours),
        "draws": len(ours),
        "by_draw": {
            policy + (f", {NAMES[ties]}" if ties else ""): values
            for (policy, ties), values in found.items()
        },
        "is_same": max(parts.values()) - min(parts.values()) < 1e-6,
        "communication": max(parts.values()),
        "faster": _faster(cut, cbs, jpn),
        "printed_cbs": printed_cbs,
        "printed_jpn": printed_jpn,
        "printed_faster": _faster(cut, printed_cbs, printed_jpn),
        **_by_job(plotted(rows)),
        "position": "is less than"
        if cut < min(jpn)
        else "is more than"
        if cut > max(jpn)
        else "lies within",
        **proofs(rows),
    }


def _saved(found: Mapping[tuple[str, str | None], list[float]]) -> tuple[float, list[float]]:
    """Means over the draws: against CBS, and against each choice of JPN."""
    jpn = [fmean(values) for (policy, _), values in found.items() if policy == "jpn"]
    return fmean(found["cbs", None]), jpn


def _faster(cut: float, cbs: float, jpn: Sequence[float]) -> list[bool]:
    return [abs(cbs - cut) <= 0.2 * cut, min(jpn) <= 1.2 * cut and 0.8 * cut <= max(jpn)]


def _by_job(rows: Rows) -> Facts:
    """Run times of each job, base times, and whether those of MBPC are the least."""
    times = {
        policy: [
            fmean(row["processing"] + row["communication"] for row in group)
            for group in rows.where(policy=policy).grouped("job").values()
        ]
        for policy in COMPARED
    }
    return {
        "by_job": {policy: " ".join(f"{one:.4f}" for one in own) for policy, own in times.items()},
        "all_lowest": [
            mine <= min(others) + 1e-9 for mine, *others in zip(*times.values(), strict=True)
        ],
    }


def _table(rows: Rows) -> str:
    def time(group: Rows) -> float:
        return fmean(row["processing"] + row["communication"] for row in group)

    def total(group: Rows) -> str:
        return f"{sum(map(time, group.grouped('job').values())):.4f}"

    lines = {}
    for (policy, ties), group in rows.grouped("policy", "ties").items():
        name = f"`{policy}`" + (f", {NAMES[ties]}" if ties else "")
        if stopped := len(group.where(status="time_limit").grouped("seed")):
            name += f" (work ended first in {stopped} of {len(group.grouped('seed'))})"
        lines[name] = group
    columns = rows.by_value("job", lambda group: f"{time(group):.4f}")
    return tabulate("run time in base times", lines, columns | {"sum": total})


def _draw(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    """A bar per job, stacked, in a group per policy; the sum above each group."""
    axes = plots.panels(figure, 1, 1)[0][0]
    groups = rows.grouped("policy", "ties")
    jobs = rows.distinct("job")
    ticks, names = [], []
    for number, ((policy, ties), group) in enumerate(groups.items()):
        highest = 0.0
        for beside, job in enumerate(jobs):
            x = number * (len(jobs) + 1.2) + beside
            mine = group.where(job=job)
            bottom = 0.0
            for name, colour, label in PARTS:
                height = fmean(row[name] for row in mine)
                first = number == beside == 0
                plots.bar(axes, x, height, bottom, colour, label if first else None)
                bottom += height
            highest = max(highest, bottom)
            ticks.append(x)
            names.append(job)
        middle = number * (len(jobs) + 1.2) + (len(jobs) - 1) / 2
        title = TITLES.get(policy, policy.upper()) + (f"\n{ties}" if ties else "")
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


def _experiment(case: int, cut: float) -> Experiment:
    return Experiment(
        study=STUDIES[case],
        keep=lambda row: row["abw_gbps"] == TIGHT and row["ties"] not in (NARROWEST, WIDEST),
        facts=partial(_facts, cut),
        draw=_draw,
        size=(plots.COLUMN, 2.6),
    )


JOB_LOOKS = ((plots.BLUE, "///"), (plots.ORANGE, ""), (plots.GREEN, "..."))


def _measure_6(run: Run) -> Iterable[Row]:
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


def _facts_6(rows: Rows) -> Facts:
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


def _draw_6(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
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


def _map(axes: plots.Axes, rows: Rows) -> None:
    clusters = rows.distinct("cluster")
    for x, cluster in enumerate(clusters):
        bottom = 0.0
        chosen = rows.where(cluster=cluster)
        for number, row in enumerate(chosen):
            colour, hatch = JOB_LOOKS[number % len(JOB_LOOKS)]
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


EXPERIMENTS = {
    "mbpc-fig5": _experiment(1, 0.05),
    **alone("mbpc-fig6", _measure_6, _facts_6, _draw_6, (plots.COLUMN, 2.3)),
    "mbpc-fig9": _experiment(2, 0.1),
}
