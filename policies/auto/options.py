"""Options of `auto`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from coalloc.policies.oas.options import ExactWork, Patience, Window
from coalloc.policies.options import CommonOptions, GuardAfter, Objective
from coalloc.policies.orders.options import WAIT_LIMIT_S, WaitLimit


class AutoOptions(CommonOptions, frozen=True, kw_only=True):
    """Options of `auto`."""

    objective: Objective = "weighted_completion"
    guard_after: GuardAfter = 0
    wait_limit: WaitLimit = WAIT_LIMIT_S
    wait_factor: Annotated[float, Meta(ge=0)] | None = 1.0
    """A job as wide as the largest cluster goes first once it has waited about so many times as
    long as EASY by arrival was expected to keep it when it came, and five minutes; narrower ones,
    and where EASY's wait is hours, later (docs/policies/auto.md): after ``wait_limit`` at most or,
    where that is longer, one and a half times EASY's wait; null: ``wait_limit`` alone."""
    order_tolerance: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the objective that another order must gain before it replaces the first."""
    window: Window = 100
    patience: Patience = 50
    exact_work: ExactWork = 200_000
