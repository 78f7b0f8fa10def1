"""Figs. 3 to 6 of the bi-criteria paper: both criteria by their bounds, a family of jobs each.

Notes
-----
Plans are averaged by their bounds as in the paper: a sum by a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from benchmarks.papers.demt.study import (
    ACCEPTED,
    BALANCED,
    GANG,
    PAPERS,
    REACHED,
    STUDIES,
    UNSHUFFLED,
)
from benchmarks.papers.moldable_instances import FAMILIES
from benchmarks.papers.study import Experiment, Looks
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Estimate, Rows, table, tabulate
from coalloc.simulation.reproduce.words import ALMOST, CLOSE, NOTHING, Facts

MAKESPAN = ("makespan_s", "makespan_bound_s")
PRINTED = ("completion", "lp_printed")
REPAIRED = ("completion", "lp_repaired")
PRICED = ("completion", "priced")


def single(rows: Rows, names: tuple[str, str]) -> list[float]:
    """The ratio of each run that has the bound."""
    value, bound = names
    return [row[value] / row[bound] for row in rows if row[bound] is not None]


def ratio(rows: Rows, names: tuple[str, str]) -> Estimate | None:
    """The ratio of the runs that have the bound; None where none has it."""
    value, bound = names
    known = rows.only(lambda row: row[bound] is not None)
    if not known:
        return None
    each = single(known, names)
    mean = sum(row[value] for row in known) / sum(row[bound] for row in known)
    return Estimate(low=min(each), mean=mean, high=max(each))


def means(rows: Rows, algorithm: str, names: tuple[str, str]) -> dict[int, float]:
    """The average ratio of an algorithm at each number of jobs."""
    groups = rows.where(algorithm=algorithm).grouped("jobs").items()
    return {jobs: found.mean for (jobs,), group in groups if (found := ratio(group, names))}


def ratio_table(rows: Rows, title: str, names: tuple[str, str]) -> str:
    """Algorithms by numbers of jobs: average (lowest to highest)."""
    return tabulate(
        title,
        rows.by_code("algorithm"),
        rows.by_value("jobs", lambda group: _shown(ratio(group, names)), "{} jobs"),
    )


def _shown(found: Estimate | None) -> str:
    return f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})" if found else ""


def bound_table(rows: Rows) -> str:
    """The bounds on the weighted completion by that of the repaired program, sums by sums."""
    sizes = rows.distinct("jobs")
    lines = [
        [told, *(f"{between(rows.where(jobs=jobs), name):.3f}" for jobs in sizes)]
        for told, name in (("program as printed", "lp_printed"), ("prices", "priced"))
    ]
    return table(("by the repaired program", *(f"{jobs} jobs" for jobs in sizes)), lines)


def between(rows: Rows, name: str) -> float:
    """One bound by the repaired program's, over the instances that have it."""
    known = _instances(rows, name)
    return float(sum(row[name] for row in known) / sum(row["lp_repaired"] for row in known))


def furthest(rows: Rows, name: str) -> float:
    """The largest such ratio of one instance."""
    return max(float(row[name] / row["lp_repaired"]) for row in _instances(rows, name))


def _instances(rows: Rows, name: str) -> Rows:
    """A row of each instance that has this bound."""
    first = Rows(group[0] for group in rows.grouped("jobs", "run").values())
    return first.only(lambda row: row[name] is not None)


PANELS = (
    (MAKESPAN, "makespan / its bound"),
    (REPAIRED, "completion / the paper's program"),
    (PRICED, "completion / prices"),
)
GRAHAM = PAPERS[2:]
"""The lists among the comparators."""
STABLE = 1.2
"""Largest average by smallest, up to which a ratio is stable over the numbers of jobs."""
Averages = Mapping[str, Mapping[int, float]]
"""Average ratio of each algorithm at each number of jobs."""
AT_BOUND = 1e-6
"""Share by which a makespan that is called so may be above it."""
LOWEST, HIGHEST = 0.97, 5.0
TICKS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)


def wins(rows: Rows) -> tuple[int, int]:
    """Runs on which `bicriteria` is better in both criteria than both readings, and all runs."""
    won = runs = 0
    for group in rows.grouped("jobs", "run").values():
        by_name = {row["algorithm"]: row for row in group}
        if BALANCED not in by_name:
            continue
        runs += 1
        won += all(
            by_name[BALANCED][name] < by_name[reading][name]
            for reading in (REACHED, ACCEPTED)
            for name in ("makespan_s", "completion")
        )
    return won, runs


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    makespan = {name: means(rows, name, MAKESPAN) for name in (REACHED, ACCEPTED, *PAPERS)}
    completion = {name: means(rows, name, REPAIRED) for name in (REACHED, *PAPERS)}
    averages = {"makespan": makespan[REACHED], "completion": completion[REACHED]}
    return {
        "makespan": list(makespan[REACHED].values()),
        "completion": list(completion[REACHED].values()),
        "printed": list(means(rows, REACHED, PRINTED).values()),
        "priced": list(means(rows, REACHED, PRICED).values()),
        "accepted_makespan": list(makespan[ACCEPTED].values()),
        "our_makespan": list(means(rows, BALANCED, MAKESPAN).values()),
        "our_priced": list(means(rows, BALANCED, PRICED).values()),
        **_each(rows),
        **_compared(makespan, completion),
        **_trends(completion),
        **_around(averages),
        **_shuffled(rows),
        "counted": _counted(rows),
        "won": wins(rows),
        "dominated": _dominated(rows),
        "makespans": ratio_table(rows, "makespan", MAKESPAN),
        "completions": ratio_table(rows, "weighted completion", REPAIRED),
        "by_prices": ratio_table(rows, "weighted completion", PRICED),
        "bounds": bound_table(rows),
        "proved": between(rows, "priced"),
        **_known(rows),
        "too_much": furthest(rows, "lp_printed") - 1.0,
    }


def _each(rows: Rows) -> Facts:
    """Ratios of the single runs, and what the paper says of them."""
    mine = rows.where(algorithm=REACHED)
    completion, makespan = single(mine, REPAIRED), single(mine, MAKESPAN)
    lists = [value for name in GRAHAM for value in single(rows.where(algorithm=name), MAKESPAN)]
    return {
        "each_completion": completion,
        "each_makespan": makespan,
        "each_printed": single(mine, PRINTED),
        "each_list": lists,
        "is_within": max(completion) <= 2.5,
        "is_at_most_2": [value <= 2.0 for value in makespan],
        "lists_at_most_2": [value <= 2.0 for value in lists],
        "is_short": sum(value <= 2.0 for value in makespan) >= ALMOST * len(makespan),
    }


def _around(averages: Mapping[str, Mapping[int, float]]) -> Facts:
    """The means over the numbers of jobs, by what the text says of them: 2, 2 and 1.9."""
    makespan, completion = (fmean(own.values()) for own in averages.values())
    return {
        "mean_makespan": makespan,
        "mean_completion": completion,
        "makespan_is_19": makespan <= 1.9 * (1.0 + CLOSE),
        "completion_is_2": abs(completion - 2.0) <= 2.0 * 2 * CLOSE,
        "are_2": [abs(value - 2.0) <= 2.0 * 2 * CLOSE for value in (makespan, completion)],
    }


def _shuffled(rows: Rows) -> Facts:
    """Share by which shuffles shorten both criteria, mean over the numbers of jobs."""
    if not rows.where(algorithm=UNSHUFFLED):
        return {"shuffled": [], "is_small": []}
    found: dict[str, list[float]] = {}
    for told, names in (("makespan", MAKESPAN), ("weighted completion", REPAIRED)):
        plain, mine = (means(rows, name, names).values() for name in (UNSHUFFLED, REACHED))
        found[told] = [1.0 - b / a for a, b in zip(plain, mine, strict=True)]
    return {
        "shuffled": {told: fmean(values) for told, values in found.items()},
        "is_small": [fmean(values) <= CLOSE for values in found.values()],
    }


def _compared(makespan: Averages, completion: Averages) -> Facts:
    """`demt` against the comparators of the paper, at every number of jobs."""
    mine, saf, gang = completion[REACHED], completion["list-saf"], completion[GANG]
    behind = [
        f"`{other}` at {jobs} jobs"
        for other in PAPERS
        for jobs, value in completion[other].items()
        if value <= mine[jobs]
    ]
    return {
        "ahead_on_makespan": _ahead(makespan),
        "ahead_on_completion": _ahead(completion),
        "others_makespan": _others(makespan),
        "others_completion": _others(completion),
        "others_mean": fmean(_others(makespan)),
        "others_are_15": abs(fmean(_others(makespan)) - 1.5) <= 1.5 * CLOSE,
        "worse": [
            makespan[REACHED][jobs] > value
            for other in PAPERS
            if other != GANG
            for jobs, value in makespan[other].items()
        ],
        "ahead": [value > mine[jobs] for o in PAPERS for jobs, value in completion[o].items()],
        "behind": f"behind {', '.join(behind)}" if behind else "ahead throughout",
        "saf_better": [saf[jobs] < value for jobs, value in mine.items()],
        **_opposite(completion),
        "gang_ahead": tuple(str(jobs) for jobs, value in mine.items() if gang[jobs] < value),
    }


def _opposite(averages: Averages) -> Facts:
    """Whether `gang` is good with few jobs only, `sequential` with many: near `demt` or ahead."""
    mine = averages[REACHED]
    few, *_, many = mine
    (gang_few, gang_many), (own_few, own_many) = ends = [
        [averages[name][jobs] / mine[jobs] for jobs in (few, many)] for name in (GANG, "sequential")
    ]
    return {
        "opposite": [
            *(gang_few <= STABLE, gang_many > STABLE),
            *(own_few > STABLE, own_many <= STABLE),
        ],
        "by_demt": {
            name: f"{a:.2f} at {few} jobs, {b:.2f} at {many}"
            for name, (a, b) in zip((GANG, "sequential"), ends, strict=True)
        },
    }


def _ahead(averages: Averages) -> str:
    """Comparators of the paper that `demt` is ahead of on average, and where."""
    mine = averages[REACHED]
    out = []
    for other in PAPERS:
        ahead = [jobs for jobs, value in mine.items() if value < averages[other][jobs]]
        if len(ahead) == len(mine):
            out.append(f"`{other}`")
        elif ahead:
            out.append(f"`{other}` (at {', '.join(map(str, ahead))} jobs)")
    return ", ".join(out) or "none"


def _others(averages: Averages) -> list[float]:
    return [value for name in PAPERS if name != GANG for value in averages[name].values()]


def _trends(completion: Averages) -> Facts:
    """Weighted completions over the numbers of jobs, and whether they are stable."""
    values = {name: tuple(found.values()) for name, found in completion.items()}
    spread = {name: max(found) / min(found) for name, found in values.items()}
    climbing = {name: values[name] for name in GRAHAM[:2]}
    return {
        "spread": spread,
        "lists_spread": {name: spread[name] for name in GRAHAM},
        "lists_stable": [spread[name] <= STABLE for name in GRAHAM],
        "only_stable": [spread[REACHED] <= STABLE] + [spread[name] > STABLE for name in PAPERS],
        "climb": [found[-1] > STABLE * found[0] for found in climbing.values()],
        "climbing": {
            name: f"{found[0]:.2f} to {found[-1]:.2f}" for name, found in climbing.items()
        },
    }


def _dominated(rows: Rows) -> str:
    """On how many runs the front has a point that is better in both criteria, and could have."""
    parts = []
    for name in rows.distinct("algorithm"):
        found = rows.where(algorithm=name).only(lambda row: row["dominated"] is not None)
        if name == BALANCED or not found:
            continue
        least = sum(
            not row["dominated"] and row["makespan_s"] <= row["makespan_bound_s"] * (1.0 + AT_BOUND)
            for row in found
        )
        told = f" (its makespan is at the bound on {least} more)" if least else ""
        parts.append(f"`{name}` {sum(row['dominated'] for row in found)} of {len(found)}{told}")
    return ", ".join(parts)


def _counted(rows: Rows) -> str:
    """Number of runs that have it, where not all do."""
    return ", ".join(
        f"{len(mine.column('priced'))} of {len(mine)} runs at {jobs} jobs"
        for (jobs,), mine in rows.where(algorithm=REACHED).grouped("jobs").items()
    )


def _known(rows: Rows) -> Facts:
    """Average ratios of `demt` over the runs that have both bounds on the completion."""
    mine = rows.where(algorithm=REACHED).only(lambda row: row["priced"] is not None)
    found = (ratio(mine, REPAIRED), ratio(mine, PRICED))
    return {
        name: one and one.mean for name, one in zip(("by_program", "by_price"), found, strict=True)
    }


def _parallel(rows: Rows, weaker: Rows) -> Facts:
    """Whether `demt` is better here than on the weakly parallel jobs; both criteria."""
    if not weaker:
        return {"is_better": [], "both": NOTHING}
    pairs = {
        told: [fmean(means(own, REACHED, names).values()) for own in (weaker, rows)]
        for told, names in (("makespan", MAKESPAN), ("weighted completion", REPAIRED))
    }
    return {
        "is_better": [here < there for there, here in pairs.values()],
        "both": {told: f"{here:.3f} after {there:.3f}" for told, (there, here) in pairs.items()},
    }


def _draw(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    (grid,) = plots.panels(figure, 1, len(PANELS), sharex=True, sharey=True)
    sizes = rows.distinct("jobs")
    for axes, (names, _) in zip(grid, PANELS, strict=True):

        def point(name: str, jobs: int, names: tuple[str, str] = names) -> Estimate | None:
            return ratio(rows.where(algorithm=name, jobs=jobs), names)

        plots.curves(
            axes, looks, sizes, point, lambda jobs, number: jobs * 2.0 ** (0.07 * (number - 4.5))
        )
        axes.set_yscale("log")
        axes.set_ylim(LOWEST, HIGHEST)
        plots.log_ticks(axes, sizes)
        plots.tick(axes.yaxis, TICKS)
        axes.set_xlabel("jobs")
    grid[0].set_ylabel("ratio")
    plots.letter([grid], [title for _, title in PANELS])
    plots.legend_below(figure, grid[0], 5)


BESIDE = {"highly": ("demt-fig3", _parallel)}
EXPERIMENTS = {
    f"demt-fig{number}": Experiment(
        study=STUDIES[family],
        facts=facts,
        draw=_draw,
        size=(plots.PAGE, 3.8),
        beside=BESIDE.get(family),
    )
    for number, family in enumerate(FAMILIES, 3)
}
