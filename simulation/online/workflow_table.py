"""Waits and responses of workflows and of the jobs beside them, in the report of the bench."""

from __future__ import annotations

from collections.abc import Sequence

from coalloc.simulation.online.bench import Row
from coalloc.simulation.online.compare import by_piece, compare, policies_of, shown, waiting
from coalloc.simulation.online.scenarios import WORKFLOWS
from coalloc.simulation.reproduce.rows import table

SHOWN = {
    "response_flows": "response of workflows",
    "wait_flows": "their wait",
    "slowdown_flows": "their slowdown",
    "response_others": "response of others",
    "wait_others": "their wait",
    "slowdown_others": "their slowdown",
}
"""Columns that are compared, and their heads."""


def workflow_table(names: Sequence[str], rows: Sequence[Row], base: str) -> list[str]:
    """Parts of the page; none where no scenario has workflows.

    Parameters
    ----------
    names : sequence of str
        Of the scenarios.
    base : str
        The policy that others are compared with.
    """
    lines = []
    for name in (name for name in names if name in WORKFLOWS):
        found = by_piece(row for row in rows if row["scenario"] == name)
        busy = waiting(found)
        for policy in policies_of([row for mine in found.values() for row in mine.values()]):
            cells = [shown(compare(busy, policy, base, column)) for column in SHOWN]
            lines.append((f"`{name}`", f"`{policy}`", *cells))
    if not lines:
        return []
    return [
        "## Workflows and others",
        "Geometric means over pieces by EASY's figure. A user of a workflow waits for the end of "
        "the whole: its response is its end less its submission. Its wait is what of that passed "
        "beyond its critical path, by the run times that its tasks had; its slowdown is the "
        "response by the critical path. *Others* are all other jobs of the same piece.",
        table(("", "", *SHOWN.values()), lines),
    ]
