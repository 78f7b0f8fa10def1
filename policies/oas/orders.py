"""Beginning of the searches over orders: their incumbent, simple orders, and a first bound."""

from __future__ import annotations

from typing import Any

from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Plan
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.bounds import lower_bound
from coalloc.policies.incumbent import Incumbent, Rank
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.oas.seeds import by_rule
from coalloc.policies.orders.simple import StartOrder

Orders = tuple[StartOrder, ...]
BY_WEIGHT: Orders = (("smith", "easy"), ("weighted-shortest", "easy"))
"""Orders that a weighted objective is tried with besides; the others know no weights."""
THEN = "makespan_then_weighted_completion"


def objective_of(planner: Planner) -> str:
    """The option `objective`."""
    return str(planner.options.get("objective", "makespan"))


def begin(
    planner: Planner, policy: str, budget: Budget, on_incumbent: OnIncumbent | None
) -> Incumbent[Schedule]:
    """An incumbent of schedules, compared by the planner's objective."""
    weighted = objective_of(planner) == WEIGHTED
    both = objective_of(planner) == THEN

    def rank(schedule: Schedule) -> Rank:
        unplaced, makespan, total = schedule.rank
        return (unplaced, total, makespan) if weighted else schedule.rank

    def write(found: Incumbent[Schedule]) -> Plan:
        assert found.best is not None
        stats: dict[str, Any] = {
            "work": found.work,
            "order": found.origin,
            "tried": found.tried,
            "trials": found.trials,
        }
        if found.unproved and not found.proved:
            stats["exact_search"] = found.unproved
        if both:
            stats["weighted_completion"] = found.best.weighted_completion
        if found.bound is not None:
            stats["bounds"] = {name: float(value) for name, value in found.bound.parts.items()}
        return planner.plan(
            found.best,
            found.policy,
            budget.seed,
            stats,
            bound=found.told_bound(),
            status=found.status,
        )

    return Incumbent(policy, budget, on_incumbent, rank=rank, write=write)


def try_orders(planner: Planner, incumbent: Incumbent[Schedule], orders: Orders) -> None:
    """Decode simple orders; where divisible jobs wait, tell each.

    With those around it, an order may be better than what is better without.
    """
    told = any(isinstance(job, DivisibleJob) and not job.held for job in planner.snapshot.queue)
    for name, decoder in orders:
        if incumbent.best is not None and incumbent.spent:
            return
        schedule = planner.decode(by_rule(planner, range(len(planner.items)), name), decoder)
        incumbent.work += len(planner.items)
        incumbent.tried += 1
        skips = decoder == "event" and name != "fpfs"
        incumbent.offer(schedule, f"{name}, skipping" if skips else name)
        if told and incumbent.on_incumbent is not None:
            plan = planner.plan(schedule, incumbent.policy, incumbent.budget.seed)
            incumbent.on_incumbent(plan)


def find_bound(planner: Planner, incumbent: Incumbent[Schedule], effort: str) -> None:
    """Bound the objective."""
    name = WEIGHTED if objective_of(planner) == WEIGHTED else "makespan"
    incumbent.raise_bound(lower_bound(planner, name, incumbent.budget.stop, effort))
