"""Bounds for moldable jobs, as they hold for any plan of a queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coalloc.policies.base import never
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.priced_bound import priced_bound
from coalloc.policies.moldable.published_lp import published_lp
from coalloc.policies.moldable.queue import of_planner, why_not
from coalloc.policies.moldable.two_shelf import two_shelf

LADDER = 30
"""Allotments of a job that prices are sought on; what they prove counts all of them."""
MOST = 2000
"""Jobs for which the published program is solved as well, for comparison."""


def moldable_parts(
    planner: Planner, horizon: float, stop: Callable[[], bool] = never
) -> Mapping[str, Mapping[str, float]]:
    """Bounds by objective and name; none where the queue holds other than rigid or moldable jobs.

    `horizon`: makespan of a good plan, seconds: as far as prices are sought.
    """
    if not planner.items or why_not(planner) is not None:
        return {}
    whole = of_planner(planner, for_bounds=True)
    search = of_planner(planner, limit=LADDER)
    priced = priced_bound(search, whole, horizon=horizon, stop=stop)
    completion = {"prices": priced.value}
    if whole.size <= MOST:
        completion["published_lp"] = published_lp(whole, two_shelf(search).guess)
    return {"makespan": {"guesses": cmax_bound(whole)}, "weighted_completion": completion}
