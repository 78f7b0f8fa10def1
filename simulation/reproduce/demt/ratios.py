"""Ratios of plans to bounds, as the bi-criteria paper averages them: a sum by a sum."""

from __future__ import annotations

from dataclasses import dataclass

from coalloc.simulation.reproduce.rows import Rows, table, tabulate

MAKESPAN = ("makespan_s", "makespan_bound_s")
PRINTED = ("completion", "lp_printed")
REPAIRED = ("completion", "lp_repaired")
PRICED = ("completion", "priced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A value by its bound: of one run the lowest and highest, and of the sums over all runs."""

    low: float
    mean: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"


def single(rows: Rows, names: tuple[str, str]) -> list[float]:
    """The ratio of each run that has the bound."""
    value, bound = names
    return [row[value] / row[bound] for row in rows if row[bound] is not None]


def ratio(rows: Rows, names: tuple[str, str]) -> Ratio | None:
    """The ratio of the runs that have the bound; None where none has it."""
    value, bound = names
    known = rows.only(lambda row: row[bound] is not None)
    if not known:
        return None
    each = single(known, names)
    mean = sum(row[value] for row in known) / sum(row[bound] for row in known)
    return Ratio(low=min(each), mean=mean, high=max(each))


def means(rows: Rows, algorithm: str, names: tuple[str, str]) -> dict[int, float]:
    """The average ratio of an algorithm at each number of jobs."""
    out = {}
    mine = rows.where(algorithm=algorithm)
    for jobs in mine.distinct("jobs"):
        found = ratio(mine.where(jobs=jobs), names)
        if found is not None:
            out[jobs] = found.mean
    return out


def ratio_table(rows: Rows, title: str, names: tuple[str, str]) -> str:
    """Algorithms by numbers of jobs: average (lowest to highest)."""
    return tabulate(
        title,
        rows.by_code("algorithm"),
        rows.by_value("jobs", lambda group: str(ratio(group, names) or ""), "{} jobs"),
    )


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
