"""Distance of a plan from the bounds proved for the jobs that it places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from coalloc.model.jobs import MoldableJob, WorkflowJob
from coalloc.model.plan import Plan, gap_of
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import never
from coalloc.policies.bounds.lower import BOUNDS, Bound, lower_bound
from coalloc.policies.counted.bounds import bound_of
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.counted.planning import CountedQueue
from coalloc.policies.divisible.complete import divisible_bounds
from coalloc.policies.divisible.complete import values as values_of
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.priced_bound import priced_bound
from coalloc.policies.moldable.published_lp import published_lp
from coalloc.policies.moldable.queue import of_planner, why_not
from coalloc.policies.moldable.two_shelf import two_shelf
from coalloc.policies.relative_time import at_time, from_now
from coalloc.policies.workflow import bound as workflow_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """An objective of a plan beside its bound."""

    name: str
    value: float
    bound: Bound
    gap: float | None
    """(value - bound) / bound; None where nothing is proved."""


def proofs_of(
    snapshot: Snapshot,
    plan: Plan,
    stop: Callable[[], bool] = never,
    effort: str = "full",
) -> tuple[Proof, ...]:
    """Bound each objective for the jobs of a plan that have a start, under the plan's options.

    Jobs that the plan defers are taken to be absent, as in the plan's own value.
    """
    plan, snapshot = at_time(plan, -snapshot.time), from_now(snapshot)
    left = {entry.job for entry in plan.deferred}
    queue = tuple(job for job in snapshot.queue if job.id not in left)
    problem = replace(snapshot, queue=queue)
    values = values_of(problem, [one for one in plan.placements if one.job not in left])
    if needs_counting(problem):
        return tuple(_by_resources(CountedQueue(problem, plan.options), values))
    planner = Planner(problem, plan.options)
    more: Mapping[str, Mapping[str, float]] = {}
    if any(isinstance(job, MoldableJob) for job in queue):
        more = moldable_parts(planner, values["makespan"], stop)
    if any(isinstance(job, WorkflowJob) for job in queue):
        more = workflow_bound.workflow_parts(planner, stop, effort)
    pieces = divisible_bounds(snapshot, plan)
    out = []
    for name in BOUNDS:
        bound = lower_bound(planner, name, stop, effort).beside(more.get(name, {}))
        if pieces.makespan > 0.0:
            added = bound.value + pieces.weighted_completion
            bound = bound.beside({"divisible": pieces.makespan if name == "makespan" else added})
        gap = gap_of(values[name], bound.value)
        out.append(Proof(name=name, value=values[name], bound=bound, gap=gap))
    return tuple(out)


def _by_resources(queue: CountedQueue, values: Mapping[str, float]) -> Iterator[Proof]:
    """Each resource by itself: slots alone bound nothing where processes share them."""
    for name in BOUNDS:
        value = values[name]
        least = bound_of(queue, weighs=name == "weighted_completion")
        bound = Bound(value=0.0).beside({} if least is None else {"resources": least})
        yield Proof(name=name, value=value, bound=bound, gap=gap_of(value, bound.value))


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
