"""``coalloc plan --cost``: what each rule of the site costs the plan, in one measure.

The daemon's queue is planned as it is, and again without shares, limits, guarantees, and the guard
against starvation, by the same policy. Both plans of a rule pass the checker, and are compared as
`coalloc.policies.explain.rule_cost` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalloc.cli.command import CommandError, connect, print_json, until
from coalloc.cli.output import figure, show_table
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.explain.rule_cost import GUARD, NO_GUARD, RuleCost, plain_weights, rule_cost

HEADERS = ("RULE", "WITH", "WITHOUT", "COST", "BOUND", "AT MOST", "JOBS", "HELD")
NUMBERS = frozenset(HEADERS) - {"RULE"}
TIME_S = 10.0
"""For each plan, seconds."""


def show_costs(args: Any) -> int:
    """Ask for the queue, plan it with and without each rule, and print what they cost."""
    from coalloc.model.formats.snapshot_json import read_snapshot

    with connect(args) as client:
        answer, policy = client.rules(), client.status().policy
    given = read_snapshot(answer.snapshot)
    lifted = {rule: read_snapshot(body) for rule, body in answer.lifted.items()}
    rows = costs(given, lifted, policy)
    if args.json:
        print_json({"policy": policy, "costs": [_plain(row) for row in rows]})
        return 0
    show_table(HEADERS, map(_cells, rows), right=NUMBERS)
    return 0


def costs(given: Snapshot, lifted: Mapping[str, Snapshot], policy: str) -> list[RuleCost]:
    """The cost of each rule that is lifted, and of the guard; all plans must pass the checker."""
    plain = plain_weights(given, lifted)
    kept = _planned(given, policy, {})
    rows = [
        rule_cost(rule, kept, _planned(without, policy, {}), without, plain)
        for rule, without in lifted.items()
    ]
    rows.append(rule_cost(GUARD, kept, _planned(given, policy, NO_GUARD), given, plain))
    return rows


def _planned(snapshot: Snapshot, policy: str, options: Mapping[str, Any]) -> Plan:
    from coalloc.policies.base import Budget
    from coalloc.policies.checking.check import check
    from coalloc.policies.options import read_known
    from coalloc.policies.registry import lookup

    row = lookup(policy)
    budget = Budget(stop=until(TIME_S), live=True)
    plan = row.solve(snapshot, read_known(options, row.options), budget)
    violations = check(snapshot, plan).violations
    if violations:
        raise CommandError(f"the plan of {policy} does not pass the checker: {violations[0]}")
    return plan


def _plain(row: RuleCost) -> dict[str, Any]:
    return {
        "rule": row.rule,
        "with": row.with_rule,
        "without": row.without,
        "cost": row.cost,
        "bound": row.bound,
        "at_most": row.at_most,
        "jobs": row.jobs,
        "held": row.held,
    }


def _cells(row: RuleCost) -> tuple[str, ...]:
    values = (row.with_rule, row.without, row.cost, row.bound, row.at_most)
    return (row.rule, *(figure(value) for value in values), str(row.jobs), str(row.held))
