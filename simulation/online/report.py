"""The report of the bench: one page of Markdown, its pictures, and the rows as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coalloc.simulation.online import pictures
from coalloc.simulation.online.bench import KNOWN_BY, Bench, Row
from coalloc.simulation.online.compare import (
    BETTER,
    RULES,
    SOME_WAIT_S,
    Table,
    by_piece,
    compare,
    compare_tables,
    mean_of,
    policies_of,
    shown,
    waiting,
)
from coalloc.simulation.online.measures import CLASSES, FIGURES, LONG_S, WIDE
from coalloc.simulation.online.pieces import CHOOSE, REPORT
from coalloc.simulation.online.scenarios import MOLDABLE, PAIRS, Scenario
from coalloc.simulation.online.workflow_table import workflow_table
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import table, to_csv

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Figure

BASE = "easy"
SHOWN: Mapping[str, str] = {
    "wait_mean": "mean wait",
    "wait_p95": "95th percentile",
    "wait_p99": "99th",
    "wait_max": "longest",
    "slowdown_mean": "mean slowdown",
    "slowdown_p95": "95th percentile of slowdown",
}
"""Columns that are compared, and their heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files on disk now; `missing` says why there are no pictures, where there are none."""

    headline: str
    missing: str


def write_report(bench: Bench, rows: Sequence[Row], folder: Path) -> Written:
    """Write online.md, online.csv and the pictures.

    Raises
    ------
    OSError
    """
    columns = {**dict.fromkeys((*KNOWN_BY, "log", "half"), ""), **FIGURES}
    (folder / "online.csv").write_text(to_csv(columns, rows), encoding="utf-8")
    page = to_markdown(bench, rows)
    (folder / "online.md").write_text(page, encoding="utf-8")
    return Written(headline=headline(bench, rows), missing=_draw(bench, rows, folder))


def _draw(bench: Bench, rows: Sequence[Row], folder: Path) -> str:
    for name, (size, draw) in pictures.PICTURES.items():

        def fill(figure: Figure, draw: pictures.Draw = draw) -> None:
            draw(figure, bench, rows)

        try:
            made = plots.render(fill, size(bench))
        except plots.NoPlotsError as error:
            return str(error)
        for ending, content in made.items():
            (folder / f"online-{name}.{ending}").write_bytes(content)
    return ""


def headline(bench: Bench, rows: Sequence[Row]) -> str:
    """The best policy by mean waits in all scenarios."""
    best = None
    for policy in policies_of(rows):
        found = [
            compare(waiting(_of(rows, scenario)), policy, BASE, "wait_mean")
            for scenario in bench.scenarios
        ]
        means = [ratio.mean for ratio in found if ratio is not None]
        if means and (best is None or sum(means) / len(means) < best[1]):
            best = policy, sum(means) / len(means)
    if best is not None:
        return f"least waits: {best[0]}, {best[1]:.2f} of EASY"
    if BASE not in policies_of(rows):
        return f"waits by EASY's are not known: {BASE} is not among the policies"
    return "no piece with waiting"


def to_markdown(bench: Bench, rows: Sequence[Row]) -> str:
    """The page."""
    halves = sorted({piece.half for piece in bench.pieces})
    parts = [
        "# How long users wait under each policy",
        f"{len(bench.pieces)} pieces of {len(bench.contenders)} policies in "
        f"{len(bench.scenarios)} scenarios; pieces have at most {bench.jobs} jobs and belong to "
        f"the {' and '.join(halves)} half. " + _HALVES[tuple(halves)],
        "Every figure below is computed from `online.csv`. All replays passed the checker. A "
        "policy that predicts run times knows what had ended in the log before the piece begins, "
        "as a site's daemon would, unless the scenario says otherwise.",
        "## What was replayed",
        _pieces(bench, rows),
        "## Against EASY",
        "Geometric means over pieces of a figure by EASY's figure on the same piece, with "
        "intervals of 95 % from resampling the pieces. Below 1 is better than EASY. Pieces on "
        f"which EASY's mean wait is below {SOME_WAIT_S:g} s are left out. *Utilisation* is the "
        "mean difference; *later* is how much later than under conservative backfilling a job "
        "starts, mean over all jobs and pieces.",
        *(_scenario(scenario, _of(rows, scenario)) for scenario in bench.scenarios),
        "![waits and slowdowns by EASY's](online-ratios.png)",
    ]
    contenders = [one.text for one in bench.contenders]
    if set(RULES) < set(contenders):
        parts += [
            "## Against the better of easy-spf and easy-saf",
            "The base of each piece is the better of the two rules, figure by figure. *Longer on* "
            "and *more on* are shares of pieces, *worst piece* is the largest ratio.",
            *(_better(scenario, _of(rows, scenario)) for scenario in bench.scenarios),
        ]
    parts += [
        *_coallocation(bench, rows),
        *_moldable(bench, rows),
        *workflow_table([scenario.name for scenario in bench.scenarios], rows, BASE),
        "## By log",
        "Mean wait in seconds and mean bounded slowdown, means over all pieces of a log.",
        *(_logs(scenario, _of(rows, scenario)) for scenario in bench.scenarios),
        "![mean waits by log](online-logs.png)",
        "## Who waits",
        "Mean bounded slowdown of four classes of jobs, means over pieces. *Wide* jobs run on "
        f"more than 1/{1 / WIDE:.0f} of all slots, *long* ones for more than {LONG_S:g} s.",
        *(_classes(scenario, _of(rows, scenario)) for scenario in bench.scenarios),
        "![slowdown by class of jobs](online-classes.png)",
        "## Speed",
        _speeds(rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_HALVES = {
    (CHOOSE,): "**These pieces are for choosing: report nothing measured on them.**",
    (REPORT,): "Nothing was chosen by these pieces.",
    (CHOOSE, REPORT): "**Half of these pieces are for choosing; figures to report are those of "
    "`--half report`.**",
}


def _of(rows: Sequence[Row], scenario: Scenario) -> Table:
    return _of_name(rows, scenario.name)


def _of_name(rows: Sequence[Row], scenario: str) -> Table:
    return by_piece(row for row in rows if row["scenario"] == scenario)


def _pieces(bench: Bench, rows: Sequence[Row]) -> str:
    lines = []
    for log in dict.fromkeys(piece.log for piece in bench.pieces):
        mine = [piece for piece in bench.pieces if piece.log == log]
        table_of = {
            scenario: by_piece(
                row for row in rows if row["log"] == log.name and row["scenario"] == scenario.name
            )
            for scenario in bench.scenarios
        }
        first = bench.contenders[0].text
        base = BASE if any(one.text == BASE for one in bench.contenders) else first
        cells = []
        for found in table_of.values():
            some = sum(r[base]["wait_mean"] >= SOME_WAIT_S for r in found.values() if base in r)
            cells.append(f"{some}, {mean_of(found, base, 'utilisation') or 0:.2f}")
        kept = " (kept back)" if log.kept_back else ""
        lines.append((f"{log.name}{kept}", str(log.nodes * log.slots), str(len(mine)), *cells))
    head = ("Log", "slots", "pieces", *(f"{scenario.name}" for scenario in bench.scenarios))
    about = "\n".join(f"- `{scenario.name}`: {scenario.doc}" for scenario in bench.scenarios)
    what = "Of each scenario: pieces with waiting, mean utilisation under EASY."
    return f"{about}\n\n{what}\n\n{table(head, lines)}"


def _scenario(scenario: Scenario, found: Table) -> str:
    busy = waiting(found)
    policies = policies_of([row for rows in found.values() for row in rows.values()])
    lines = []
    for policy in policies:
        cells = [shown(compare(busy, policy, BASE, column)) for column in SHOWN]
        used = _number(mean_of(found, policy, "utilisation"), mean_of(found, BASE, "utilisation"))
        later = mean_of(busy, policy, "later_mean")
        lines.append((f"`{policy}`", *cells, used, "–" if later is None else f"{later:,.0f} s"))
    head = ("", *SHOWN.values(), "utilisation", "later")
    return (
        f"### {scenario.name}: {scenario.doc}\n\n{len(busy)} of {len(found)} pieces have waiting."
        f"\n\n{table(head, lines)}"
    )


def _better(scenario: Scenario, found: Table) -> str:
    busy = waiting(found)
    policies = policies_of([row for rows in found.values() for row in rows.values()])
    lines = []
    for policy in policies:
        cells = []
        for column in ("wait_mean", "slowdown_mean", "wait_p95", "wait_max"):
            ratio = compare(busy, policy, BETTER, column)
            cells.append(shown(ratio))
            if column in ("wait_mean", "slowdown_mean"):
                cells.append("–" if ratio is None else f"{ratio.above:.0%}")
                cells.append("–" if ratio is None else f"{ratio.worst:.2f} ({ratio.where})")
        lines.append((f"`{policy}`", *cells))
    head = (
        *("", "mean wait", "longer on", "worst piece"),
        *("mean slowdown", "more on", "worst piece"),
        *("95th percentile of waits", "longest wait"),
    )
    return f"### {scenario.name}\n\n{table(head, lines)}"


def _coallocation(bench: Bench, rows: Sequence[Row]) -> list[str]:
    """Gain of splitting jobs as a policy likes over splitting less, or none."""
    names = {scenario.name for scenario in bench.scenarios}
    pairs = [pair for pair in PAIRS if names.issuperset(pair)]
    if not pairs:
        return []
    parts = [
        "## What co-allocation gains",
        "Figures where jobs are split when they end sooner so, by the same policy's figures on the "
        "same jobs where they are split only when no cluster could hold them (*needed*), or never "
        "(*forbidden*, *apart*). Below 1, co-allocation gains. *Split* is the share of jobs on "
        "several clusters; *worse* are pieces on which the mean wait grows by more than a tenth.",
    ]
    head = (
        *("", "", "mean wait", "95th percentile", "longest", "mean slowdown"),
        *("split", "worse", "pieces"),
    )
    lines = []
    for name, other in pairs:
        mine, base = _of_name(rows, name), _of_name(rows, other)
        busy = waiting(base)
        for policy in policies_of([row for found in mine.values() for row in found.values()]):
            cells = [
                shown(compare_tables(mine, busy, policy, column))
                for column in ("wait_mean", "wait_p95", "wait_max", "slowdown_mean")
            ]
            grown = sum(
                mine[piece][policy]["wait_mean"] > 1.1 * found[policy]["wait_mean"] + 1.0
                for piece, found in busy.items()
                if policy in found and piece in mine
            )
            split = mean_of({piece: mine[piece] for piece in busy}, policy, "coallocated")
            share = "–" if split is None else f"{split:.1%}"
            which = f"`{name}` by `{other}`"
            lines.append((which, f"`{policy}`", *cells, share, str(grown), str(len(busy))))
    return [*parts, table(head, lines), _by_log(rows, pairs)]


def _moldable(bench: Bench, rows: Sequence[Row]) -> list[str]:
    """Responses where policies choose widths, by those where users did."""
    users, *chosen = MOLDABLE
    names = {scenario.name for scenario in bench.scenarios}
    present = [name for name in chosen if {users, name} <= names]
    if not present:
        return []
    logs = list(dict.fromkeys(row["log"] for row in rows))
    base = _of_name(rows, users)
    lines = []
    for name in present:
        mine = _of_name(rows, name)
        for policy in policies_of([row for found in mine.values() for row in found.values()]):
            cells = [
                shown(compare_tables(mine, base, policy, column))
                for column in ("response_mean", "response_p95")
            ]
            for log in logs:
                part = {piece: each for piece, each in base.items() if piece.startswith(f"{log}@")}
                cells.append(shown(compare_tables(mine, part, policy, "response_mean")))
            lines.append((f"`{name}`", f"`{policy}`", *cells))
    return [
        "## What widths gain",
        "Responses (wait and run time) by the same policy's on the widths that users asked for "
        f"(`{users}`): of all pieces, then the mean by log. Below 1, to leave the width to the "
        "policy gains.",
        table(("", "", "mean response", "95th percentile", *logs), lines),
    ]


def _by_log(rows: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> str:
    """Mean waits with by those without, by log, under EASY."""
    logs = list(dict.fromkeys(row["log"] for row in rows))
    lines = []
    for name, other in pairs:
        mine, busy = _of_name(rows, name), waiting(_of_name(rows, other))
        cells = []
        for log in logs:
            part = {piece: found for piece, found in busy.items() if piece.startswith(f"{log}@")}
            cells.append(shown(compare_tables(mine, part, BASE, "wait_mean")))
        lines.append((f"`{name}` by `{other}`", *cells))
    return f"Mean waits under EASY by log:\n\n{table(('', *logs), lines)}"


def _logs(scenario: Scenario, found: Table) -> str:
    def cell(part: Table, policy: str) -> str:
        wait = mean_of(part, policy, "wait_mean")
        slow = mean_of(part, policy, "slowdown_mean")
        return "–" if wait is None or slow is None else f"{wait:,.0f}, {slow:.1f}"

    return _grid(scenario, found, lambda part, policy: cell(part, policy))


def _grid(scenario: Scenario, found: Table, cell: Callable[[Table, str], str]) -> str:
    every = [row for rows in found.values() for row in rows.values()]
    policies, logs = policies_of(every), list(dict.fromkeys(row["log"] for row in every))
    lines = []
    for policy in policies:
        parts = (
            {piece: rows for piece, rows in found.items() if piece.partition("@")[0] == log}
            for log in logs
        )
        lines.append((f"`{policy}`", *(cell(part, policy) for part in parts)))
    return f"### {scenario.name}\n\n{table(('', *logs), lines)}"


def _classes(scenario: Scenario, found: Table) -> str:
    busy = waiting(found)
    policies = policies_of([row for rows in found.values() for row in rows.values()])
    lines = []
    for policy in policies:
        values = [mean_of(busy, policy, f"slowdown_{one}") for one in CLASSES]
        cells = ("–" if value is None else f"{value:.1f}" for value in values)
        lines.append((f"`{policy}`", *cells))
    head = ("", *(one.replace("_", ", ") for one in CLASSES))
    return f"### {scenario.name}\n\n{table(head, lines)}"


def _speeds(rows: Sequence[Row]) -> str:
    lines = []
    for policy in policies_of(rows):
        mine = [row for row in rows if row["policy"] == policy]
        jobs, seconds = sum(r["jobs"] for r in mine), sum(r["elapsed_s"] for r in mine)
        slowest = min(mine, key=lambda row: row["jobs"] / max(row["elapsed_s"], 1e-9))
        speed = slowest["jobs"] / max(slowest["elapsed_s"], 1e-9)
        where = f"{slowest['piece']}, {slowest['scenario']}"
        lines.append(
            (f"`{policy}`", f"{jobs / max(seconds, 1e-9):,.0f}", f"{speed:,.0f} ({where})")
        )
    return table(("", "jobs replayed in a second", "slowest replay"), lines)


def _number(value: float | None, base: float | None) -> str:
    return "–" if value is None or base is None else f"{value - base:+.3f}"
