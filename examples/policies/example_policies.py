"""Two policies of one's own: an order, and a search over orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from coalloc.planning import (
    Budget,
    CommonOptions,
    Incumbent,
    OnIncumbent,
    Plan,
    Planner,
    Policy,
    Schedule,
    Snapshot,
)


def narrow_first(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Fewest processes first, then by area; whatever fits is backfilled."""
    planner = Planner(problem, options)

    def key(n: int) -> tuple[float, float]:
        procs, scaled, fixed, _ = planner.items[n].modes[0]
        return procs, procs * (scaled + fixed)

    order = sorted(range(len(planner.items)), key=key)
    return planner.plan(planner.decode(order, "easy"), "narrow-first", budget.seed)


def swaps(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Exchange two jobs of the order, and keep what is no worse."""
    planner = Planner(problem, options)
    count = len(planner.items)
    weighted = options["objective"] == "weighted_completion"

    def rank(schedule: Schedule) -> tuple[float, ...]:
        value = schedule.weighted_completion if weighted else schedule.makespan
        return schedule.unplaced, value

    def write(found: Incumbent[Schedule]) -> Plan:
        assert found.best is not None
        stats = {"work": found.work}
        return planner.plan(found.best, "swaps", budget.seed, stats, status=found.status)

    search = Incumbent("swaps", budget, on_incumbent, rank=rank, write=write)
    order = list(range(count))
    search.offer(planner.decode(order, "event"))
    search.report()
    random = np.random.Generator(np.random.PCG64(budget.seed))
    quiet = 0
    while count > 1 and quiet < options["patience"] * count and not search.spent:
        a, b = random.integers(count, size=2)
        order[a], order[b] = order[b], order[a]
        schedule = planner.decode(order, "event")
        search.work += count
        quiet += 1
        if search.offer(schedule):
            search.report()
            quiet = 0
        elif search.best is not None and rank(schedule) > rank(search.best):
            order[a], order[b] = order[b], order[a]
    return search.plan()


class SwapsOptions(CommonOptions, frozen=True, kw_only=True):
    patience: Annotated[int, Meta(ge=1)] = 20
    """Exchanges per job without an improvement that end the search."""


NARROW_FIRST = Policy(
    name="narrow-first",
    solve=narrow_first,
    doc="fewest processes first, with backfilling",
    options=CommonOptions,
)
SWAPS = Policy(
    name="swaps",
    solve=swaps,
    doc="a search that exchanges jobs of the order",
    options=SwapsOptions,
)
