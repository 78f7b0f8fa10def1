"""The one default: users wait as little as they can, and no job without bound.

*On line* (`Budget.live`: the daemon, and `simulate`), jobs go on arriving, and what counts is how
long each waits. Queues of rigid and moldable jobs and workflows are planned by `online`: nine
orders between shortest and smallest first, rolled forward by predicted run times, in which moldable
jobs and malleable tasks are no wider than what processors cost at the moment lets them be
(*Widths*), and a workflow is one job (`workflow.ranking`).

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

Notes
-----
*Widths.* A decoder gives what has a choice the allotment with which it ends first, which is nearly
always the widest: good for that job, and bad for all that wait or are still to come. So before the
orders of a round are tried, none keeps an allotment wider than that of the rolling form, by what a
processor-second costs at the moment (`moldable.rolling`). The load, unlike there, is that of
predicted run times: what users ask for is often several times what they need.

A task is priced like a job of its own with the weight of its workflow. That is more than it is
worth where others run beside it, and made users of workflows and others wait less than to share the
weight among those (docs/policies/auto.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from coalloc.model.jobs import MoldableJob
from coalloc.model.plan import Plan
from coalloc.policies.auto.online import offer_round, solve_round
from coalloc.policies.auto.overdue import Waits, overdue
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.incumbent import Incumbent
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.moldable.bicriteria.engine import BicriteriaEngine
from coalloc.policies.moldable.bicriteria.front import lay_front
from coalloc.policies.moldable.bicriteria.policy import searched
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.moldable.rolling import (
    Arrivals,
    arrived,
    by_price,
    price,
    ready_now,
    relative,
)
from coalloc.policies.oas.orders import BY_WEIGHT, try_orders
from coalloc.policies.one_pass import on_planner
from coalloc.policies.orders.run_times import ratios
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


def narrowed(planner: Planner, budget: Budget) -> tuple[Planner, Mapping[str, Any]]:
    """Take from what has a choice in a round the allotments that cost the others too much.

    The first overdue job keeps all of its own: no job goes before it. The planner is the same one
    where nothing has a choice; the notes are those of the arrivals, for the next round.
    """
    movable = np.array(
        [
            isinstance(item.job, MoldableJob) or (item.task is not None and len(item.modes) > 1)
            for item in planner.items
        ]
    )
    movable[planner.guarded[:1]] = False
    now = planner.snapshot.time + budget.origin
    arrivals = Arrivals.read(budget.notes, now)
    if not movable.any() and arrivals.last is None:
        return planner, {}
    queue = of_planner(planner)
    shares = ratios(budget.history, (item.job.id for item in planner.items))
    times = queue.times * np.repeat(shares, np.diff(queue.first))
    arrivals.take(arrived(planner, replace(queue, times=times)), now)
    if not movable.any():
        return planner, arrivals.write()
    load = arrivals.load(queue.width)
    cost = price(int(ready_now(planner, queue).sum()), load, queue.width)
    widths = queue.procs[by_price(queue, relative(queue.weight), cost)]
    most = np.where(movable, widths, np.inf)
    return planner.limited(np.zeros(most.size), most), arrivals.write()
