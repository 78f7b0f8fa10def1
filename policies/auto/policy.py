"""The one default: users wait as little as they can, and no job without bound.

*On line* (`Budget.live`: the daemon, and `simulate`), jobs go on arriving, and what counts is how
long each waits. Queues of rigid and moldable jobs and workflows are planned by `online`: nine
orders between shortest and smallest first, rolled forward by predicted run times, in which moldable
jobs and malleable tasks are no wider than what processors cost at the moment lets them be
(`widths`), and a workflow is one job (`workflow.ranking`).

*Off line*, where one workflow is all that is queued, or the caller asks for the makespan: EASY at
once, then, unless for the makespan, what a round on line would plan and Smith's order, then
conservative backfilling and other orders, then the search of `oas` (of `workflow` where tasks of
workflows are queued) over orders and allotments, until it proves its plan, finds nothing better for
a while (option ``patience``), or is told to stop. The best by (jobs without a start, the objective,
the other one of makespan and weighted completion) is the plan, so it is never worse than these in
this order. For a queue of moldable jobs alone, the engine of `bicriteria` offers its
front.

The objective is the weighted completion, which differs from the weighted wait by a constant where
run times do not depend on the place.

Jobs that have waited too long (`overdue`), or were passed over more than ``guard_after`` times, are
booked first in all of these; `online` states what that bounds. Equal jobs start in arrival order.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalloc.model.jobs import MoldableJob
from coalloc.model.plan import Plan
from coalloc.policies.auto.online import offer_round, solve_round
from coalloc.policies.auto.overdue import Waits, overdue
from coalloc.policies.auto.widths import narrowed
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.incumbent import Incumbent
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.moldable.bicriteria.engine import BicriteriaEngine
from coalloc.policies.moldable.bicriteria.front import lay_front
from coalloc.policies.moldable.bicriteria.policy import searched
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.oas.orders import BY_WEIGHT, try_orders
from coalloc.policies.one_pass import on_planner
from coalloc.policies.orders.simple import SKIPPING, traits
from coalloc.policies.workflow.ranking import is_one_workflow
from coalloc.policies.workflow.search.engine import make_search

MOST_WORK = 100_000
"""Jobs that the engine of `bicriteria` places or prices."""
FIRST, TRIALS = SKIPPING[:1], SKIPPING[1:]


def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan a round on line, or with the best of the simple policies and of the search."""
    if budget.live and planner.options["objective"] == WEIGHTED and planner.items:
        waits = Waits.read(planner, budget)
        planner.guarded = waits.overdue()
        if not is_one_workflow(planner):
            narrow, arrivals = narrowed(planner, budget)
            return solve_round(
                narrow, budget, on_incumbent, waits=waits, bound_of=planner, arrivals=arrivals
            )
    else:
        planner.guarded = overdue(planner, planner.options["wait_limit"])
    search = make_search(planner, budget, on_incumbent)
    incumbent = search.incumbent
    weighs = (
        planner.options["objective"] == WEIGHTED
        and bool(planner.items)
        and not is_one_workflow(planner)
    )
    if weighs or is_moldable(planner):
        try_orders(planner, incumbent, FIRST)
        incumbent.report()
    # What goes first of several overdue jobs, a round on line does not know.
    if weighs and planner.guarded.size <= 1 and not incumbent.spent:
        offer_round(narrowed(planner, budget)[0], incumbent, traits(planner))
        incumbent.report()
    if is_moldable(planner) and not incumbent.spent:
        _offer_front(planner, incumbent, budget)
    search.run(FIRST, (*BY_WEIGHT, *TRIALS) if weighs else TRIALS)
    return incumbent.plan()


def is_moldable(planner: Planner) -> bool:
    """Whether all there is to place are moldable jobs."""
    return bool(planner.items) and all(isinstance(i.job, MoldableJob) for i in planner.items)


def _offer_front(planner: Planner, incumbent: Incumbent[Schedule], budget: Budget) -> None:
    """Offer the schedules of the engine of `bicriteria`, which takes half of limited work."""
    queue = searched(planner)
    work = MOST_WORK if budget.work is None else min(MOST_WORK, int(budget.work) // 2)
    engine = BicriteriaEngine(queue, cmax_bound(queue), work, budget)
    engine.run()
    incumbent.work += engine.work
    for laid in lay_front(Layer(planner, queue), engine.archive, budget.stop).points:
        incumbent.offer(laid.schedule, "bicriteria")
    incumbent.report()


SOLVERS: Mapping[str, SolveFunction] = {"auto": on_planner(plan)}
