"""Widths of moldable jobs and malleable tasks that wait on line, under `auto`.

A decoder gives what has a choice the allotment with which it ends first, which is nearly always the
widest: good for that job, and bad for all that wait or are still to come. So before the orders of a
round are tried, none keeps an allotment wider than that of the rolling form, by what a
processor-second costs at the moment (`rolling_rule`). The load, unlike there, is that of predicted
run times: what users ask for is often several times what they need.

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
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.rolling import arrived, ready_now
from coalloc.policies.moldable.rolling_rule import Arrivals, by_price, price, relative
from coalloc.policies.orders.run_times import ratios


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
    arrivals.take(arrived(planner, by_prediction(planner, queue, budget)), now)
    if not movable.any():
        return planner, arrivals.write()
    load = arrivals.load(queue.width)
    cost = price(int(ready_now(planner, queue).sum()), load, queue.width)
    widths = queue.procs[by_price(queue, relative(queue.weight), cost)]
    most = np.where(movable, widths, np.inf)
    return planner.limited(np.zeros(most.size), most), arrivals.write()


def by_prediction(planner: Planner, queue: MoldableQueue, budget: Budget) -> MoldableQueue:
    """The same queue, whose jobs take as long as predicted."""
    shares = ratios(budget.history, (item.job.id for item in planner.items))
    return replace(queue, times=queue.times * np.repeat(shares, np.diff(queue.first)))
