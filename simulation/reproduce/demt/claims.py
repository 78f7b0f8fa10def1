"""Claims of the bi-criteria paper about its figures 3 to 6, and what rows say to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coalloc.simulation.reproduce.demt.ratios import (
    MAKESPAN,
    PRINTED,
    REPAIRED,
    means,
    single,
)
from coalloc.simulation.reproduce.demt.study import GANG, REACHED
from coalloc.simulation.reproduce.experiment import Row
from coalloc.simulation.reproduce.rows import distinct, spread, where

PAPERS = ("gang", "sequential", "list-shelf", "list-lptf", "list-saf")
"""The comparators that the paper draws."""
GRAHAM = PAPERS[2:]
two = "{:.2f}".format
Claim = tuple[str, Callable[[Sequence[Row]], str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One figure.

    Attributes
    ----------
    claims : tuple of (text, callable)
        What the paper says of it, and what the rows say to that.
    reasons : callable
        Why they differ where the other families do not.
    """

    name: str
    claims: tuple[Claim, ...]
    reasons: Callable[[Sequence[Row]], tuple[str, ...]]


def better_than(rows: Sequence[Row], names: tuple[str, str]) -> str:
    """Comparators of the paper that `demt` is ahead of on average, and where."""
    mine = means(rows, REACHED, names)
    out = []
    for other in PAPERS:
        theirs = means(rows, other, names)
        ahead = [jobs for jobs, value in mine.items() if value < theirs[jobs]]
        if len(ahead) == len(mine):
            out.append(f"`{other}`")
        elif ahead:
            out.append(f"`{other}` (at {', '.join(map(str, ahead))} jobs)")
    return "ahead of " + (", ".join(out) or "none")


def _ahead(rows: Sequence[Row]) -> str:
    return f"weighted completion: {better_than(rows, REPAIRED)}"


def _ahead_in_both(rows: Sequence[Row]) -> str:
    return f"makespan: {better_than(rows, MAKESPAN)}; {_ahead(rows)}"


def _others(rows: Sequence[Row]) -> str:
    parts = []
    for names, told in ((MAKESPAN, "makespan"), (REPAIRED, "weighted completion")):
        found = [
            value for name in PAPERS if name != GANG for value in means(rows, name, names).values()
        ]
        parts.append(f"{told} {spread(found, two)}")
    return "; ".join(parts)


def _trend(*algorithms: str) -> Callable[[Sequence[Row]], str]:
    """Trend of the weighted completion of some algorithms with the number of jobs."""

    def tell(rows: Sequence[Row]) -> str:
        parts = []
        for name in algorithms:
            found = means(rows, name, REPAIRED)
            told = ", ".join(f"{value:.2f}" for value in found.values())
            parts.append(f"`{name}` {told}")
        sizes = ", ".join(map(str, distinct(rows, "jobs")))
        return f"weighted completion at {sizes} jobs: " + "; ".join(parts)

    return tell


def _lists_makespan(rows: Sequence[Row]) -> str:
    each = [value for name in GRAHAM for value in single(where(rows, algorithm=name), MAKESPAN)]
    return f"at most {max(each):.2f}; below 2 in {_below(each, 2.0)}"


def _stability(rows: Sequence[Row]) -> str:
    """The largest average by the smallest, over the numbers of jobs."""
    parts = []
    for name in (REACHED, *PAPERS):
        found = means(rows, name, REPAIRED).values()
        parts.append(f"`{name}` {max(found) / min(found):.2f}")
    return "largest average by smallest, weighted completion: " + ", ".join(parts)


def _below(values: Sequence[float], limit: float) -> str:
    return f"{sum(value < limit for value in values)} of {len(values)} runs"


def _never_more(rows: Sequence[Row]) -> str:
    mine = where(rows, algorithm=REACHED)
    parts = []
    for names, told in ((PRINTED, "as printed"), (REPAIRED, "repaired")):
        each = single(mine, names)
        averages = means(rows, REACHED, names).values()
        parts.append(
            f"program {told}: at most {max(each):.2f}, up to 2.5 in {_up_to(each, 2.5)}, "
            f"{spread(list(averages), two)} on average"
        )
    return "; ".join(parts)


def _up_to(values: Sequence[float], limit: float) -> str:
    return f"{sum(value <= limit for value in values)} of {len(values)} runs"


def _makespan(rows: Sequence[Row]) -> str:
    each = single(where(rows, algorithm=REACHED), MAKESPAN)
    averages = list(means(rows, REACHED, MAKESPAN).values())
    return (
        f"below 2 in {_below(each, 2.0)}, at most {max(each):.2f}, "
        f"{spread(averages, two)} on average"
    )


COMMON: tuple[Claim, ...] = (
    (
        "Over all families, `demt`'s weighted completion is never more than 2.5 times the bound, "
        "about 2 on average.",
        _never_more,
    ),
    ("Its makespan is almost always below 2 times the bound, 1.9 on average.", _makespan),
)


REVERSED = (
    "The text has highly parallel jobs centred at X = 0.9 and weakly parallel ones at 0.1; in its "
    "own formula X = 1 is no speed-up and X = 0 a linear one. Here they are the other way round, "
    "which is what its words on this figure need."
)


def _only(*texts: str) -> Callable[[Sequence[Row]], tuple[str, ...]]:
    return lambda rows: texts


def _gang_ahead(rows: Sequence[Row]) -> tuple[str, ...]:
    mine, gang = means(rows, REACHED, REPAIRED), means(rows, GANG, REPAIRED)
    sizes = [str(jobs) for jobs in mine if gang[jobs] < mine[jobs]]
    if not sizes:
        return (REVERSED,)
    return (
        REVERSED,
        f"`gang` is ahead of `demt` at {', '.join(sizes)} jobs; the paper calls it good there.",
    )


FAMILIES: Mapping[str, Family] = {
    "demt-fig3": Family(
        name="weakly",
        claims=(
            (
                "Weakly parallel jobs: `demt` is worse on average than all others but `gang`.",
                _ahead_in_both,
            ),
            ("The others average about 1.5.", _others),
        ),
        reasons=_only(
            REVERSED,
            "`sequential` puts the longest jobs first, which matters only where there are more "
            "jobs than processors (200): hence its good weighted completion at 200 jobs.",
        ),
    ),
    "demt-fig4": Family(
        name="highly",
        claims=(
            (
                "Highly parallel jobs: `demt` is clearly the best on the weighted completion.",
                _ahead,
            ),
            (
                "`gang` is good for few jobs only, `sequential` for many only.",
                _trend(GANG, *PAPERS[1:2]),
            ),
            ("The lists are stable.", _trend(*GRAHAM)),
            ("The lists' makespan is always below 2 times the bound.", _lists_makespan),
        ),
        reasons=_gang_ahead,
    ),
    "demt-fig5": Family(
        name="mixed",
        claims=(
            ("Mixed jobs: SAF is better than `demt`.", _ahead_in_both),
            (
                "The ratio of the two other lists greatly increases with the number of jobs.",
                _trend(*GRAHAM),
            ),
        ),
        reasons=_only(REVERSED),
    ),
    "demt-fig6": Family(
        name="cirne",
        claims=(
            (
                "Cirne and Berman's model: `demt` clearly outperforms the others on the weighted "
                "completion.",
                _ahead,
            ),
            ("It is the only one with a stable ratio for any number of jobs.", _stability),
        ),
        reasons=_only(
            "The text does not say with which parameters jobs were drawn. Ours have Downey's "
            "speed-up with log2 A uniform in 0 to log2 m and σ uniform in 0 to 2 "
            "(`moldable_instances.py`)."
        ),
    ),
}
