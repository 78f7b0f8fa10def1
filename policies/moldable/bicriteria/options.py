"""Options of `bicriteria`, and of its rolling form."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Literal

from msgspec import Meta

from coalloc.model.errors import InputError
from coalloc.policies.options import CommonOptions, GuardAfter, Objective

NAMES = ("cmax", "balanced", "minsum")
UNDER = "cmax<="


def cap_of(text: str) -> float | None:
    """Seconds of ``cmax<=SECONDS``; None for the other preferences."""
    return float(text.removeprefix(UNDER)) if text.startswith(UNDER) else None


def check_preference(text: str, where: str) -> None:
    """Raise InputError if this is no preference: ``options.prefer: 'cmin' is not …``."""
    if text in NAMES:
        return
    try:
        cap = cap_of(text)
    except ValueError:
        cap = None
    if cap is None or not (isfinite(cap) and cap > 0.0):
        forms = f"{', '.join(NAMES)} or {UNDER}SECONDS"
        raise InputError(where, f"{text!r} is not {forms}")


class BicriteriaOptions(CommonOptions, frozen=True, kw_only=True):
    """Moldable jobs, makespan and weighted completion: a front, with what is proved of it."""

    objective: Objective = "weighted_completion"
    guard_after: GuardAfter = 10
    prefer: Annotated[str, Meta(extra={"check": check_preference})] = "balanced"
    """Which point of the front is the plan: cmax, balanced, minsum, or the least weighted
    completion of a makespan of at most so many seconds: cmax<=SECONDS.
    """
    search: Annotated[int, Meta(ge=0)] = 500_000
    """Jobs that the search may place or price, about 3 s for 100 or 400 jobs."""
    points: Annotated[int, Meta(ge=3, le=100)] = 8
    """Points of the front, at most."""
    certify: bool = True
    """Seek more prices after the search, that prove a smaller Pareto gap."""
    form: Literal["auto", "plan", "rolling"] = "auto"
    """Plan the queue as if nothing more arrived, or in the rolling form; auto: rolling in the
    daemon and in simulate.
    """
    allotment: Literal["price", "efficiency"] = "price"
    """Width of a waiting job in the rolling form: the least weighted cost at the price of
    processors now, or the widest of an efficiency that load and queue set.
    """
    squeeze: Annotated[float, Meta(ge=0, le=1)] = 0.6
    """Share of the wanted processors on which a job may start in the rolling form."""
    stretch: Annotated[float, Meta(ge=1)] = 1.3
    """Times the wanted processors that a job may take where no other job waits."""
    reserve_after: Annotated[float, Meta(ge=0)] = 10.0
    """Times its run time that a job has waited when it may keep a reservation; the one that has
    waited longest so measured does.
    """
