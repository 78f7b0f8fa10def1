"""Report of a study: one page of Markdown, its picture, and the rows as CSV.

Notes
-----
Figures of pieces differ by orders of magnitude, so a policy is compared piece by piece: the ratio
of its figure to the base's, each plus a small constant (`FLOOR`) that keeps a piece without waiting
from deciding. The mean is the geometric one, its interval that of `resampled`.

Pieces on which the base's mean wait is below `SOME_WAIT_S` have nothing to be gained; they are left
out of all but responses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Estimate, Row, Rows, resampled, table, to_csv
from coalloc.simulation.reproduce.words import filled, paragraphs, shown
from coalloc.simulation.study.declared import BOTH, Scenario, StudyFile
from coalloc.simulation.study.measures import CLASSES, FIGURES, LONG_S, TEMPLATE, WIDE
from coalloc.simulation.study.rows import NAMED_BY

SOME_WAIT_S = 60.0
FEWEST = 5
"""Pairs below which an interval says little."""
FLOOR: Mapping[str, float] = {"wait": 1.0, "response": 0.0, "slowdown": 0.0}
"""Added to both figures of a ratio, by the first word of the column."""
WORSE = 1.1
"""A mean wait longer by more than this, and a second, is worse."""
SHOWN: Mapping[str, str] = {
    "wait_mean": "mean wait",
    "wait_p95": "95th percentile",
    "wait_max": "longest wait",
    "slowdown_mean": "mean slowdown",
    "response_mean": "mean response",
}
OF_WORKFLOWS: Mapping[str, str] = {
    "response_flows": "response of workflows",
    "wait_flows": "their wait",
    "response_others": "response of others",
    "wait_others": "their wait",
}
"""Columns that are compared, and their heads."""
NOTHING = "–"
SIZE = (plots.PAGE, 5.5)
"""Of the picture, inches."""

Pairs = Sequence[tuple[Row, Sequence[Row]]]
"""Rows, each with those that it is compared with."""


class Compared(NamedTuple):
    """A policy in a scenario beside what it is compared with."""

    scenario: Scenario
    by: str
    by_base: bool
    policy: str
    pairs: Pairs


def pairs_of(mine: Rows, bases: Sequence[Rows]) -> Pairs:
    """Rows beside those of the bases on the same jobs."""
    tables = [{(row["piece"], row["seed"]): row for row in rows} for rows in bases]
    found = ((row, (row["piece"], row["seed"])) for row in mine)
    return [(row, [t[at] for t in tables]) for row, at in found if all(at in t for t in tables)]


def waiting(pairs: Pairs) -> Pairs:
    """Those on which something can be gained."""
    return [
        (row, bases)
        for row, bases in pairs
        if min(base["wait_mean"] for base in bases) >= SOME_WAIT_S
    ]


def ratio(pairs: Pairs, column: str) -> Estimate | None:
    """A figure by the least of the bases; None where no piece has both."""
    sort = column.partition("_")[0]
    values = [
        np.log((row[column] + FLOOR[sort]) / (min(base[column] for base in bases) + FLOOR[sort]))
        for row, bases in (pairs if sort == "response" else waiting(pairs))
        if None not in (row[column], *(base[column] for base in bases))
    ]
    if not values:
        return None
    mean, low, high = np.exp([np.mean(values), *resampled(values)]).tolist()
    return Estimate(mean=mean, low=low, high=high)


def ratio_text(pairs: Pairs, column: str) -> str:
    """A ratio with its interval."""
    found = ratio(pairs, column)
    return NOTHING if found is None else shown(found, ".2f" if found.mean >= 0.1 else ".2g")


def comparisons(study: StudyFile, rows: Rows) -> Iterator[Compared]:
    """Every policy in each scenario: by the bases, and by itself where it is `against`."""
    base = " and ".join(f"`{name}`" for name in study.bases)
    by_base = f"the better of {base}" if len(study.bases) > 1 else base
    for scenario in study.scenarios.values():
        mine = rows.where(scenario=scenario.name)
        bases = [mine.where(policy=name) for name in study.bases]
        against = rows.where(scenario=scenario.against)
        for policy in study.policies:
            own = mine.where(policy=policy)
            if study.bases != (policy,):
                yield Compared(scenario, by_base, True, policy, pairs_of(own, bases))
        for policy in study.policies if against else ():
            own, other = mine.where(policy=policy), [against.where(policy=policy)]
            by = f"the same policy in `{scenario.against}`"
            yield Compared(scenario, by, False, policy, pairs_of(own, other))


def write_report(study: StudyFile, rows: Rows, folder: Path, name: str) -> str:
    """Write NAME.md, NAME.csv and the picture; returns why there is none, or nothing.

    Raises `OSError`.
    """
    columns = {**dict.fromkeys(NAMED_BY, ""), **FIGURES}
    whole = [{**dict.fromkeys(columns), **row} for row in rows]
    (folder / f"{name}.csv").write_text(to_csv(columns, whole), encoding="utf-8")
    (folder / f"{name}.md").write_text(to_markdown(study, rows, name), encoding="utf-8")
    return plots.write(folder, f"{name}-ratios", partial(_draw, study, done(rows)), SIZE)


def done(rows: Rows) -> Rows:
    """The rows of replays that did not fail."""
    return rows.only(lambda row: "failed" not in row)


def headline(study: StudyFile, rows: Rows) -> str:
    """Number of replays, and what came out of each scenario."""
    good = done(rows)
    said = f"{len(rows)} replays, {len(rows) - len(good)} failed"
    return "\n".join((said, *_outcome(list(comparisons(study, good)))))


def to_markdown(study: StudyFile, rows: Rows, name: str) -> str:
    """The page: its words are in the template, its tables are made here."""
    good = done(rows)
    compared = list(comparisons(study, good))
    failures = [
        f"- {row['piece']}, `{row['scenario']}`, `{row['policy']}`, seed {row['seed']}: "
        f"{row['failed']}"
        for row in rows
        if "failed" in row
    ]
    docs = (f"- `{one.name}`: {one.doc}" for one in study.scenarios.values())
    made = Counter(row["made_by"] for row in rows)
    facts = {
        "name": name,
        "pieces": len(rows.distinct("piece")),
        "policies": tuple(f"`{policy}`" for policy in study.policies),
        "scenarios": len(study.scenarios),
        "logs": "\n".join(_logs(study, rows)),
        "outcome": "\n".join(_outcome(compared)),
        "fewest": FEWEST,
        "seeds": study.seeds,
        "jobs": max(rows.column("jobs_at_most")),
        "half": "" if study.half == BOTH else study.half,
        "failures": "\n".join(failures),
        "about": "\n".join(docs),
        "some_wait": SOME_WAIT_S,
        "ratios": _ratios(compared),
        "by_log": _by_log(compared, good.distinct("log")),
        "wide": 1.0 / WIDE,
        "long": LONG_S,
        "classes": _classes(good),
        "speeds": _speeds(good),
        "made_by": "\n".join(f"- {count} rows: {which}" for which, count in made.items()),
    }
    return "\n\n".join(filled(paragraphs(TEMPLATE.read_text(encoding="utf-8")), facts)) + "\n"


def _logs(study: StudyFile, rows: Rows) -> Iterator[str]:
    """A line for each log: its files, its machine, its pieces."""
    for name, log in study.logs.items():
        files = " and ".join(f"`{Path(file).name}`" for file in log.files)
        machine = f"`{Path(log.platform).name}`" if log.platform else f"{log.nodes} x {log.slots}"
        yield f"- `{name}`, {len(rows.where(log=name).distinct('piece'))} of {files} on {machine}"


def _outcome(compared: Sequence[Compared]) -> Iterator[str]:
    """A line for each scenario: the policy with the least waits, and on how many pairs."""
    for name, group in groupby(compared, lambda one: one.scenario.name):
        found = [(ratio(one.pairs, "wait_mean"), one) for one in group if one.by_base]
        known = [(wait.mean, one) for wait, one in found if wait is not None]
        said = f"nothing to compare, as no mean wait reaches {SOME_WAIT_S:g} s"
        if known:
            _, one = min(known, key=lambda item: item[0])
            busy, wait = waiting(one.pairs), ratio_text(one.pairs, "wait_mean")
            said = f"least waits under `{one.policy}`: {wait} of the mean wait under {one.by}"
            said += f", worse in {_worse(busy)} of {len(busy)} pairs of piece and draw"
        yield f"- `{name}`: {said}"


def _ratios(compared: Sequence[Compared]) -> str:
    """A table for each scenario and what it is compared with."""
    parts = []
    for (scenario, by), group in groupby(compared, lambda one: one[:2]):
        columns = {**SHOWN, **(OF_WORKFLOWS if scenario.mix.flows else {})}
        lines = []
        for one in group:
            mine, busy = Rows(row for row, _ in one.pairs), waiting(one.pairs)
            more = _mean(mine, "utilisation", ".2f"), _mean(mine, "coallocated", ".1%")
            ratios = (ratio_text(one.pairs, column) for column in columns)
            lines.append((f"`{one.policy}`", *ratios, *more, f"{_worse(busy)} of {len(busy)}"))
        head = ("", *columns.values(), "utilisation", "split", "worse")
        parts += [f"### {scenario.name}, by {by}", table(head, lines)]
    return "\n\n".join(parts)


def _worse(pairs: Pairs) -> int:
    waits = ((row["wait_mean"], min(base["wait_mean"] for base in bases)) for row, bases in pairs)
    return sum(mine > WORSE * theirs + 1.0 for mine, theirs in waits)


def _mean(rows: Rows, column: str, look: str) -> str:
    return shown(rows.mean(column), look) if rows.column(column) else NOTHING


def _by_log(compared: Sequence[Compared], logs: Sequence[str]) -> str:
    lines = []
    for one in compared:
        sized = one.scenario.moldable or one.scenario.mix.flows
        column = "response_mean" if sized else "wait_mean"
        parts = ([pair for pair in one.pairs if pair[0]["log"] == log] for log in logs)
        cells = (ratio_text(part, column) for part in parts)
        lines.append((f"`{one.scenario.name}` by {one.by}", f"`{one.policy}`", *cells))
    return table(("", "", *logs), lines)


def _classes(rows: Rows) -> str:
    lines = []
    for (scenario, policy), mine in rows.grouped("scenario", "policy").items():
        cells = (
            f"{_mean(mine, f'slowdown_{one}', '.1f')}, {_mean(mine, f'wait_max_{one}', ',.0f')}"
            for one in CLASSES
        )
        means = _mean(mine, "wait_mean", ",.0f"), _mean(mine, "slowdown_mean", ".1f")
        lines.append((f"`{scenario}`", f"`{policy}`", *means, *cells))
    heads = (one.replace("_", ", ") for one in CLASSES)
    return table(("", "", "mean wait", "mean slowdown", *heads), lines)


def _speeds(rows: Rows) -> str:
    def speed(some: Sequence[Row]) -> float:
        return float(sum(r["jobs"] for r in some) / max(sum(r["elapsed_s"] for r in some), 1e-9))

    lines = []
    for (policy,), mine in rows.grouped("policy").items():
        slowest = min(mine, key=lambda row: speed([row]))
        where = f"{slowest['piece']}, {slowest['scenario']}"
        lines.append((f"`{policy}`", f"{speed(mine):,.0f}", f"{speed([slowest]):,.0f} ({where})"))
    return table(("", "jobs replayed in a second", "slowest replay"), lines)


COLOURS = (plots.BLUE, plots.VERMILION, plots.GREEN, plots.PURPLE, plots.ORANGE, plots.SKY)
MARKERS = "osD^vP"


def _draw(study: StudyFile, rows: Rows, figure: plots.Figure) -> None:
    """Mean wait and slowdown of each policy by the base's, with intervals, in each scenario."""
    known = {
        (one.scenario.name, one.policy): one.pairs
        for one in comparisons(study, rows)
        if one.by_base
    }
    policies = list(dict.fromkeys(policy for _, policy in known))
    looks = {
        name: plots.Look(COLOURS[n % len(COLOURS)], MARKERS[n % len(MARKERS)], name)
        for n, name in enumerate(study.scenarios)
    }
    base = " and ".join(study.bases)
    step, grid = 0.6 / len(looks), plots.panels(figure, 2, 1, sharex=True)
    for (axes,), column in zip(grid, ("wait_mean", "slowdown_mean"), strict=True):

        def point(name: str, policy: str, column: str = column) -> Estimate | None:
            return ratio(known[name, policy], column)

        def beside(policy: str, number: int) -> float:
            return policies.index(policy) + (number - (len(looks) - 1) / 2) * step

        plots.curves(axes, looks, policies, point, beside, joined=False)
        axes.set_xlim(-0.5, max(len(policies), 1) - 0.5)
        axes.grid(visible=False, axis="x")
        axes.axhline(1.0, color=plots.BLACK, linewidth=0.8)
        plots.log_scale(axes, vertical=True)
        axes.tick_params(which="minor", left=False)
        axes.set_ylabel(f"{SHOWN[column]} by that of {base}")
        for edge in range(1, len(policies)):
            axes.axvline(edge - 0.5, color="#DDDDDD", linewidth=0.8)
    grid[1][0].set_xticks(range(len(policies)), [one.replace(":", "\n") for one in policies])
    plots.legend_below(figure, grid[0][0], 4)
