"""Costs of the site's rules in a round, in words."""

from __future__ import annotations

from collections.abc import Collection

from coalloc.cli.output import figure
from coalloc.wire.rule_rows import RuleCostRow, RuleCostsRow


def rule_lines(rules: Collection[str], found: RuleCostsRow | None) -> tuple[str, ...]:
    """A line for each rule in force; `found` is of the newest round that computed their costs."""
    if not rules:
        return ()
    if found is None:
        return ("cost of rules: not computed yet",)
    known = {**dict.fromkeys(rules, RuleCostRow(why="not computed")), **found.rules}
    return tuple(
        f"cost of {rule}: {_words(row)} (round {found.round})" for rule, row in known.items()
    )


def _words(row: RuleCostRow) -> str:
    if row.cost is None or row.with_rule is None:
        return row.why or "not computed"
    share = f" ({row.cost / row.with_rule:.1%})" if row.with_rule > 0.0 else ""
    most = "no bound" if row.at_most is None else f"at most {figure(row.at_most)}"
    held = f", {row.held} held" if row.held else ""
    return f"{figure(row.cost)} of {figure(row.with_rule)}{share}, {most}{held}"
