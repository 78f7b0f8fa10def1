"""Figs. 5 and 9 of the MBPC paper: run times on the tightest links, split in two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.mbpc.study import (
    BEST,
    CHOSEN,
    COMPARED,
    NARROWEST,
    PRINTED,
    STUDIES,
    TIGHT,
    WIDEST,
    WORST,
    plotted,
    proofs,
    total_times,
)
from coalloc.simulation.reproduce.rows import Rows, tabulate
from coalloc.simulation.reproduce.study import Experiment, Facts

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Figure


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


def _draw(rows: Rows, figure: Figure) -> None:
    """A bar per job, stacked, in a group per policy; the sum above each group."""
    axes = plots.panels(figure, 1, 1)[0][0]
    groups = rows.grouped("policy", "ties")
    jobs = rows.distinct("job")
    ticks, names = [], []
    for number, ((policy, ties), group) in enumerate(groups.items()):
        highest = 0.0
        for place, job in enumerate(jobs):
            x = number * (len(jobs) + 1.2) + place
            mine = group.where(job=job)
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


EXPERIMENTS = {"mbpc-fig5": _experiment(1, 0.05), "mbpc-fig9": _experiment(2, 0.1)}
