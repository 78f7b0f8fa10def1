"""Costs of rules, as answers and publications have them."""

from __future__ import annotations

from msgspec import Struct


class RuleCostRow(Struct, frozen=True, kw_only=True):
    """Cost of one rule in a round; all figures are null where they were not computed."""

    with_rule: float | None = None
    """Weight times completion, in seconds from the round's begin, of the jobs that the plans with
    and without the rule both place."""
    without: float | None = None
    cost: float | None = None
    """The difference; below 0 where the rule helps the other jobs."""
    bound: float | None = None
    """No plan without the rule is below it; so the rule costs no more."""
    at_most: float | None = None
    jobs: int | None = None
    """That both plans place, and that only the one without the rule does."""
    held: int | None = None
    why: str = ""
    """Why nothing was computed."""


class RuleCostsRow(Struct, frozen=True, kw_only=True):
    """Costs of the rules in force in one round."""

    round: int
    time: float
    """When the round began."""
    policy: str
    spent_s: float
    """On the plans without the rules, after the round, seconds."""
    rules: dict[str, RuleCostRow]
    """Also of ``guard``, where the policy has that."""
