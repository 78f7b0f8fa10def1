"""The rules of a site that are in force, and the snapshots without each of them."""

from __future__ import annotations

from coalloc.core.base.state import State
from coalloc.core.rounds import snapshots
from coalloc.core.rounds.snapshots import GUARANTEES, LIMITS, RULES, SHARES
from coalloc.core.sharing import limits
from coalloc.model.snapshot import Snapshot


def rules_of(state: State) -> list[str]:
    """The rules that are in force."""
    tree = state.sharing.tree
    is_on = {
        SHARES: bool(state.settings.priority.shares),
        LIMITS: tree.has_limits,
        GUARANTEES: bool(tree.guaranteed),
    }
    return [rule for rule in RULES if is_on[rule]]


def without_rules(state: State, now: float, *lifted: str) -> Snapshot:
    """The snapshot of a round that began now, were these rules not in force.

    Jobs that rounds set aside (`core.rounds.isolation`) are left out, and those that limits hold,
    see `core.sharing.limits.hold_back`.
    """
    held = state.findings.limited
    if LIMITS in lifted:  # The throttle of an array is its user's, not the site's.
        held = limits.held_back(state, now, of_site=False)
    out = {*state.findings.aside, *held}
    return snapshots.snapshot(state, now, held=False, without=out, lifted=lifted)


def without_each_rule(state: State, now: float) -> dict[str, Snapshot]:
    """For each rule in force, the snapshot without it."""
    return {rule: without_rules(state, now, rule) for rule in rules_of(state)}
