"""Costs of rules, as answers and publications have them."""

from __future__ import annotations

from msgspec import Struct


class RuleCostRow(Struct, frozen=True, kw_only=True):
    """Cost of one rule in a round; all figures are null where they were not computed."""

    with_rule: float | None = None
    """Sum of weight times completion, in seconds from the round's begin, of the jobs that the
    plans with and without the rule both place; null in these fields: not computed."""
    without: float | None = None
    """The same in the plan without the rule."""
    cost: float | None = None
    """The difference; below 0 where the rule helps the other jobs."""
    bound: float | None = None
    """No plan without the rule is below it; null also where the plans place different jobs."""
    at_most: float | None = None
    """So the rule costs no more."""
    jobs: int | None = None
    """That both plans place, and that only the one without the rule does."""
    held: int | None = None
    """That only the plan without the rule places."""
    why: str = ""
    """Why nothing was computed."""


class RuleCostsRow(Struct, frozen=True, kw_only=True):
    """Costs of the rules in force in one round."""

    round: int
    time: float
    """When the round began."""
    policy: str
    """That made all plans."""
    spent_s: float
    """On the plans without the rules, after the round, seconds."""
    rules: dict[str, RuleCostRow]
    """Of each rule, and of ``guard`` where the policy has that, its cost."""
