"""`oas` and `oas-balanced`: order and allocation solved together.

``docs/policies/oas.md`` states the model in the papers' symbols and how the engine works.

References
----------
The OAS papers (conference and extended version); the deviations are listed in the document.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalloc.model.plan import Plan
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner
from coalloc.policies.kernel.search.lister import Lister, domains_of
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.oas.orders import BY_WEIGHT
from coalloc.policies.oas.search import OasSearch
from coalloc.policies.oas.seeds import balanced
from coalloc.policies.oas.window import ranked
from coalloc.policies.one_pass import on_planner
from coalloc.policies.orders.simple import START_ORDERS

FEW = 64
"""Items up to which the first incumbent is the best of all simple orders, not the first of them."""


def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan with the best of simple orders, annealing and exact search."""
    search = OasSearch(planner, "oas", budget, on_incumbent)
    orders = START_ORDERS
    if search.objective == WEIGHTED:
        orders = (*orders, *BY_WEIGHT)
    at_once = len(orders) if len(planner.items) <= FEW else 1
    search.run(orders[:at_once], orders[at_once:])
    return search.incumbent.plan()


def plan_balanced(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan in one pass: heavy processing on powerful nodes, light on weak ones."""
    booked = planner.decode([], "insert")
    lister = Lister(planner, sorted(ranked(planner, booked)), booked)
    genes = balanced(lister, domains_of(lister))
    lister.evaluate(genes, MAKESPAN)
    schedule = planner.measure(lister.outcome(), len(planner.items))
    return planner.plan(schedule, "oas-balanced", budget.seed)


SOLVERS: Mapping[str, SolveFunction] = {
    "oas": on_planner(plan),
    "oas-balanced": on_planner(plan_balanced),
}
