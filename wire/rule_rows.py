"""Costs of rules, as answers and publications have them."""

from __future__ import annotations

from msgspec import Struct


class RuleCostRow(Struct, frozen=True, kw_only=True):
    """Cost of one rule in a round; all figures are null where they were not computed.

    Attributes
    ----------
    with_rule, without : float or None
        Weight times completion, in seconds from the round's begin, of the jobs that the plans with
        and without the rule both place.
    cost : float or None
        The difference; below 0 where the rule helps the other jobs.
    bound, at_most : float or None
        No plan without the rule is below it; so the rule costs no more.
    jobs, held : int or None
        That both plans place, and that only the one without the rule does.
    why : str
        Why nothing was computed.
    """

    with_rule: float | None = None
    without: float | None = None
    cost: float | None = None
    bound: float | None = None
    at_most: float | None = None
    jobs: int | None = None
    held: int | None = None
    why: str = ""


class RuleCostsRow(Struct, frozen=True, kw_only=True):
    """Costs of the rules in force in one round.

    Attributes
    ----------
    time : float
        When the round began.
    spent_s : float
        On the plans without the rules, after the round, seconds.
    rules : mapping of rule to its cost
        Also of ``guard``, where the policy has that.
    """

    round: int
    time: float
    policy: str
    spent_s: float
    rules: dict[str, RuleCostRow]
