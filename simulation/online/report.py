"""The report of the bench: one page of Markdown, its pictures, and the rows as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from coalloc.simulation.online import pictures
from coalloc.simulation.online.bench import KNOWN_BY, Bench, Row
from coalloc.simulation.online.compare import (
    BETTER,
    RULES,
    SOME_WAIT_S,
    Table,
    by_piece,
    compare,
    mean_of,
    policies_in,
    policies_of,
    shown,
    waiting,
)
from coalloc.simulation.online.measures import CLASSES, FIGURES, LONG_S, TEMPLATE, WIDE
from coalloc.simulation.online.pieces import CHOOSE, REPORT, Scenario
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import table, to_csv
from coalloc.simulation.reproduce.words import filled, paragraphs

BASE = "easy"
SHOWN: Mapping[str, str] = {
    "wait_mean": "mean wait",
    "wait_p95": "95th percentile",
    "wait_p99": "99th",
    "wait_max": "longest",
    "slowdown_mean": "mean slowdown",
    "slowdown_p95": "95th percentile of slowdown",
}
OF_WORKFLOWS: Mapping[str, str] = {
    "response_flows": "response of workflows",
    "wait_flows": "their wait",
    "slowdown_flows": "their slowdown",
    "response_others": "response of others",
    "wait_others": "their wait",
    "slowdown_others": "their slowdown",
}
"""Columns that are compared, and their heads."""


def write_report(bench: Bench, rows: Sequence[Row], folder: Path) -> str:
    """Write online.md, online.csv and the pictures; returns why there are none, or nothing.

    Raises `OSError`.
    """
    columns = {**dict.fromkeys((*KNOWN_BY, "log", "half"), ""), **FIGURES}
    (folder / "online.csv").write_text(to_csv(columns, rows), encoding="utf-8")
    (folder / "online.md").write_text(to_markdown(bench, rows), encoding="utf-8")
    missing = ""
    for name, (size, draw) in pictures.PICTURES.items():
        fill = partial(draw, bench, rows)
        missing = missing or plots.write(folder, f"online-{name}", fill, size(bench))
    return missing


def headline(bench: Bench, rows: Sequence[Row]) -> str:
    """The best policy by mean waits in all scenarios."""
    best = None
    for policy in policies_of(rows):
        found = [
            compare(waiting(_of(rows, scenario.name)), policy, BASE, "wait_mean")
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
    """The page: its words are in the template, its tables are made here."""
    scenarios = {scenario: _of(rows, scenario.name) for scenario in bench.scenarios}
    names = {scenario.name for scenario in scenarios}
    halves = sorted({piece.half for piece in bench.pieces})
    compared = [one for one in scenarios if one.against in names]
    pairs = [(one.name, one.against) for one in compared if one.clusters]
    widths = [(one.name, one.against) for one in compared if one.moldable]
    both = set(RULES) < {one.text for one in bench.contenders}
    logs = _logs_of(rows)
    facts = {
        "pieces": len(bench.pieces),
        "policies": len(bench.contenders),
        "scenarios": len(scenarios),
        "jobs": bench.jobs,
        "halves": " and ".join(halves),
        "chosen": _HALVES[tuple(halves)],
        "about": "\n".join(f"- `{scenario.name}`: {scenario.doc}" for scenario in scenarios),
        "replayed": _pieces(bench, rows),
        "some_wait": SOME_WAIT_S,
        "against_easy": "\n\n".join(_against_easy(*one) for one in scenarios.items()),
        "better": _each(scenarios, BY_RULES, _by_rules) if both else "",
        "pairs": _coallocation(rows, pairs) if pairs else "",
        "pairs_by_log": _by_log(rows, pairs) if pairs else "",
        "users": widths[0][1] if widths else "",
        "widths": _moldable(rows, widths) if widths else "",
        "workflows": _workflows(rows, [one.name for one in scenarios if one.mix.flows]),
        "by_log": _each(scenarios, logs, lambda t, p: [_of_log(t, p, log) for log in logs]),
        "wide": 1.0 / WIDE,
        "long": LONG_S,
        "classes": _each(
            scenarios,
            [one.replace("_", ", ") for one in CLASSES],
            lambda found, policy: [_of_class(found, policy, one) for one in CLASSES],
        ),
        "speeds": _speeds(rows),
    }
    return "\n\n".join(filled(paragraphs(TEMPLATE.read_text(encoding="utf-8")), facts)) + "\n"


_HALVES = {
    (CHOOSE,): "**These pieces are for choosing: report nothing measured on them.**",
    (REPORT,): "Nothing was chosen by these pieces.",
    (CHOOSE, REPORT): "**Half of these pieces are for choosing; figures to report are those of "
    "`--half report`.**",
}


def _each(
    scenarios: Mapping[Scenario, Table],
    head: Sequence[str],
    cells: Callable[[Table, str], Sequence[str]],
) -> str:
    """A table under a heading for each scenario, with a line for each policy."""
    return "\n\n".join(
        f"### {scenario.name}\n\n{_by_policy(head, found, cells)}"
        for scenario, found in scenarios.items()
    )


def _of(rows: Sequence[Row], scenario: str) -> Table:
    return by_piece(row for row in rows if row["scenario"] == scenario)


def _by_policy(
    head: Sequence[str], found: Table, cells: Callable[[Table, str], Sequence[str]]
) -> str:
    return table(("", *head), [(f"`{name}`", *cells(found, name)) for name in policies_in(found)])


def _number(value: float | None, look: str) -> str:
    return "–" if value is None else format(value, look)


def _pieces(bench: Bench, rows: Sequence[Row]) -> str:
    texts = [one.text for one in bench.contenders]
    base = BASE if BASE in texts else texts[0]
    lines = []
    for log in dict.fromkeys(piece.log for piece in bench.pieces):
        mine = [piece for piece in bench.pieces if piece.log == log]
        of_log = [row for row in rows if row["log"] == log.name]
        cells = []
        for scenario in bench.scenarios:
            found = _of(of_log, scenario.name)
            some = sum(r[base]["wait_mean"] >= SOME_WAIT_S for r in found.values() if base in r)
            cells.append(f"{some}, {mean_of(found, base, 'utilisation') or 0:.2f}")
        kept = " (kept back)" if log.kept_back else ""
        lines.append((f"{log.name}{kept}", str(log.nodes * log.slots), str(len(mine)), *cells))
    return table(("Log", "slots", "pieces", *(one.name for one in bench.scenarios)), lines)


def _against_easy(scenario: Scenario, found: Table) -> str:
    busy = waiting(found)
    head = (*SHOWN.values(), "utilisation", "later")
    return (
        f"### {scenario.name}: {scenario.doc}\n\n{len(busy)} of {len(found)} pieces have waiting."
        f"\n\n{_by_policy(head, found, _by_easy)}"
    )


def _by_easy(found: Table, policy: str) -> list[str]:
    busy = waiting(found)
    base, used = (mean_of(found, one, "utilisation") for one in (BASE, policy))
    later = mean_of(busy, policy, "later_mean")
    return [
        *(shown(compare(busy, policy, BASE, column)) for column in SHOWN),
        _number(None if used is None or base is None else used - base, "+.3f"),
        "–" if later is None else f"{later:,.0f} s",
    ]


BY_RULES = (
    *("mean wait", "longer on", "worst piece"),
    *("mean slowdown", "more on", "worst piece"),
    *("95th percentile of waits", "longest wait"),
)


def _by_rules(found: Table, policy: str) -> list[str]:
    out = []
    for column in ("wait_mean", "slowdown_mean", "wait_p95", "wait_max"):
        ratio = compare(waiting(found), policy, BETTER, column)
        out.append(shown(ratio))
        if column.endswith("_mean"):
            out.append("–" if ratio is None else f"{ratio.above:.0%}")
            out.append("–" if ratio is None else f"{ratio.worst:.2f} ({ratio.where})")
    return out


def _coallocation(rows: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> str:
    """Gain of splitting jobs as a policy likes over splitting less, or none."""
    head = (
        *("", "", "mean wait", "95th percentile", "longest", "mean slowdown"),
        *("split", "worse", "pieces"),
    )
    lines = []
    for name, other in pairs:
        mine, busy = _of(rows, name), waiting(_of(rows, other))
        for policy in policies_in(mine):
            cells = [
                shown(compare(mine, policy, policy, column, busy))
                for column in ("wait_mean", "wait_p95", "wait_max", "slowdown_mean")
            ]
            grown = sum(
                mine[piece][policy]["wait_mean"] > 1.1 * found[policy]["wait_mean"] + 1.0
                for piece, found in busy.items()
                if policy in found and piece in mine
            )
            split = mean_of({piece: mine[piece] for piece in busy}, policy, "coallocated")
            which = (f"`{name}` by `{other}`", f"`{policy}`")
            lines.append((*which, *cells, _number(split, ".1%"), str(grown), str(len(busy))))
    return table(head, lines)


def _by_log(rows: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> str:
    """Mean waits with by those without, by log, under EASY."""
    logs = _logs_of(rows)
    lines = []
    for name, other in pairs:
        mine, busy = _of(rows, name), waiting(_of(rows, other))
        cells = [shown(compare(mine, BASE, BASE, "wait_mean", _in_log(busy, log))) for log in logs]
        lines.append((f"`{name}` by `{other}`", *cells))
    return table(("", *logs), lines)


def _moldable(rows: Sequence[Row], widths: Sequence[tuple[str, str]]) -> str:
    """Responses where policies choose widths, by those where users did."""
    logs = _logs_of(rows)
    lines = []
    for name, users in widths:
        mine, base = _of(rows, name), _of(rows, users)
        for policy in policies_in(mine):
            parts = [(base, "response_mean"), (base, "response_p95")]
            parts += [(_in_log(base, log), "response_mean") for log in logs]
            cells = [shown(compare(mine, policy, policy, column, part)) for part, column in parts]
            lines.append((f"`{name}`", f"`{policy}`", *cells))
    return table(("", "", "mean response", "95th percentile", *logs), lines)


def _workflows(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Responses of workflows and of the jobs beside them, where a scenario has some."""
    lines = []
    for name in names:
        found = _of(rows, name)
        busy = waiting(found)
        for policy in policies_in(found):
            cells = [shown(compare(busy, policy, BASE, column)) for column in OF_WORKFLOWS]
            lines.append((f"`{name}`", f"`{policy}`", *cells))
    return table(("", "", *OF_WORKFLOWS.values()), lines) if lines else ""


def _logs_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["log"] for row in rows))


def _in_log(found: Table, log: str) -> Table:
    return {piece: rows for piece, rows in found.items() if piece.partition("@")[0] == log}


def _of_log(found: Table, policy: str, log: str) -> str:
    part = _in_log(found, log)
    wait, slow = (mean_of(part, policy, name) for name in ("wait_mean", "slowdown_mean"))
    return "–" if wait is None or slow is None else f"{wait:,.0f}, {slow:.1f}"


def _of_class(found: Table, policy: str, one: str) -> str:
    slow, longest = (
        mean_of(waiting(found), policy, f"{n}_{one}") for n in ("slowdown", "wait_max")
    )
    return f"{_number(slow, '.1f')}, {_number(longest, ',.0f')}"


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
