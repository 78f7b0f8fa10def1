"""`bicriteria`: a front of schedules for makespan and weighted completion, each with its gap.

The engine (`engine`) seeks schedules on one pool of equal processors. On one cluster of equal nodes
these are the plan. Elsewhere they take half of the work. Their orders and allotments go through the
kernel's decoders, so that powers, links, features, memory, dependencies, reservations and the guard
are what they are, and the front is of what comes out. From its end that is the best by the
objective, the search of `oas` or `workflow` goes on over placements.

What is proved
--------------
The bounds (`cmax_bound`, `priced_bound`) are those of the pool: every processor as fast as the
strongest that a job may use, no link, no job waiting for another. So they hold on any snapshot of
rigid and moldable jobs, and are near only where the pool is. Where a workflow or a dependency is in
the queue, the plan has no bound.

The front's gap is the Pareto gap (`pareto`): 0 for a schedule that nothing beats in both criteria.

References
----------
Dutot, Eyraud-Dubois, Mounie, Trystram, "Bi-criteria algorithm for scheduling jobs on cluster
platforms", SPAA 2004 (the problem).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from coalloc.model.plan import FrontPoint, Plan
from coalloc.model.values import replace
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction, at_most
from coalloc.policies.bounds import Bound
from coalloc.policies.incumbent import Incumbent
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.bicriteria.archive import Archive
from coalloc.policies.moldable.bicriteria.engine import LARGE, BicriteriaEngine
from coalloc.policies.moldable.bicriteria.front import Laid, lay_front, published
from coalloc.policies.moldable.bicriteria.options import cap_of
from coalloc.policies.moldable.bicriteria.pareto import FINE, BoundCurve, factor
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.priced_bound import PricedBound
from coalloc.policies.moldable.queue import MoldableQueue, of_planner, thinned, why_not
from coalloc.policies.moldable.rolling import roll
from coalloc.policies.one_pass import empty_plan, on_planner
from coalloc.policies.workflow.search.engine import make_search

LADDER, ROWS, COARSE = 60, 40_000, 14
"""Allotments of a job that are searched, or as many more as make so many of all jobs; of each of
very many jobs."""


class Bicriteria:
    """One call of the policy; the queue is not empty."""

    def __init__(
        self,
        planner: Planner,
        options: Mapping[str, Any],
        budget: Budget,
        on_incumbent: OnIncumbent | None,
    ) -> None:
        self.planner, self.options, self.budget = planner, options, budget
        self.weighted = options["objective"] == WEIGHTED
        self.queue = searched(planner)
        self.layer = Layer(planner, self.queue)
        self.front: Archive[Laid] = Archive()
        self.curve: BoundCurve | None = None
        self.least = cmax_bound(self.queue)
        if why_not(planner) is None:
            whole = of_planner(planner, for_bounds=True)
            self.curve = BoundCurve(thinned(self.queue, FINE), whole)
            self.least = self.curve.cmax
        self.published: list[Laid] = []
        if self.layer.is_exact and self.queue.size <= LARGE:
            self.published = published(planner, budget)
        work = options["search"] if budget.work is None else min(options["search"], budget.work)
        self.goes_on = not self.layer.is_exact and self.queue.size <= LARGE
        cap = cap_of(options["prefer"])
        self.engine = BicriteriaEngine(
            self.queue,
            self.least,
            work // 2 if self.goes_on else work,
            budget,
            on_better=self._tell,
            needed=(cap,) if cap else (),
            references=[(laid.cmax, laid.total) for laid in self.published],
        )
        self.incumbent: Incumbent[Laid] = Incumbent(
            "bicriteria",
            budget,
            on_incumbent,
            rank=lambda laid: (0.0, laid.total if self.weighted else laid.cmax),
            write=self._write,
        )
        self._told = 0

    def run(self) -> Plan:
        """Search, then prove."""
        chosen = self.search()
        self.incumbent.put(chosen, "")
        self.incumbent.report()
        self.prove(chosen)
        return self.incumbent.plan()

    def search(self) -> Laid:
        """Fill the front, and choose."""
        self.engine.run()
        self.front = lay_front(self.layer, self.engine.archive, self.budget.stop)
        for laid in self.published:
            self.front.add(laid)
        if self.goes_on and not self.engine.stopped:
            self._search_on()
        chosen: Laid = prefer(self.front, self.options["prefer"], self.published[:2])
        return chosen

    def _search_on(self) -> None:
        """Seek better placements than those of the front's end that the objective prefers."""
        search = make_search(self.planner, replace(self.budget, work=self.engine.limit), None)
        end = self.front.points[-1 if self.weighted else 0].schedule
        search.incumbent.offer(end)
        search.run((), ())
        best, self.incumbent.work = search.incumbent.best, search.incumbent.work
        self.engine.stopped = search.incumbent.stopped
        assert best is not None
        if best.unplaced < end.unplaced:
            self.front = Archive()
        self.front.add(Laid(schedule=best))

    def _tell(self) -> None:
        """Offer what is found so far, each time the work has doubled."""
        if self.incumbent.on_incumbent is None or self.engine.work < 2 * self._told:
            return
        self._told = self.engine.work
        point = prefer(self.engine.archive, self.options["prefer"])
        single: Archive[Any] = Archive()
        single.add(point)
        self.front = lay_front(self.layer, single)
        self.incumbent.put(self.front.points[0], "")
        self.incumbent.report()

    def prove(self, chosen: Laid) -> None:
        """Bounds at the prices found, then at ends T that prove more of the best points."""
        curve = self.curve
        if curve is None:
            return
        for ascent in reversed(self.engine.ascents):
            if self.budget.stop() and curve.bounds:
                break
            curve.take(ascent.bound(curve.whole))
        curve.at(inf, 1.05 * self.front.points[-1].cmax, self.budget.stop)
        if not self.options["certify"]:
            return
        shown = self.front.spread(self.options["points"], chosen)
        best = min(shown, key=lambda laid: curve.gap(laid.cmax, laid.total))
        for laid in (best, chosen):
            curve.refine(laid.cmax, laid.total, rounds=3, stop=self.budget.stop)

    def _write(self, found: Incumbent[Laid]) -> Plan:
        chosen = found.best
        assert chosen is not None
        shown = self.front.spread(self.options["points"], chosen)
        points = tuple(self._front_point(laid) for laid in shown)
        gaps = [point.pareto_gap for point in points if point.pareto_gap is not None]
        bound = self._bound(inf) if self.weighted else self._least()
        if bound is not None:
            found.raise_bound(Bound(value=bound))
        found.proved, found.stopped = found.met, self.engine.stopped
        stats = {
            "work": self.engine.work + found.work,
            "found": len(self.front),
            "caps": 0 if self.curve is None else len(self.curve.bounds),
        }
        plan = self.planner.plan(
            chosen.schedule,
            found.policy,
            self.budget.seed,
            stats,
            bound=bound,
            status=found.status,
        )
        return replace(
            plan,
            front=points,
            chosen=shown.index(chosen),
            pareto_gap=min(gaps, default=None),
            certificates=tuple(known.certificate() for known in self._needed(shown)),
        )

    def _needed(self, shown: list[Laid]) -> list[PricedBound]:
        """The bounds that what is said of these points rests on."""
        if self.curve is None:
            return []
        known = [bound for bound in self.curve.bounds if bound.value < inf]
        used = {id(bound) for bound in known if bound.cap == inf}
        for laid in shown:
            over = [bound for bound in known if bound.cap >= laid.cmax]
            used |= {id(max(over, key=lambda bound: bound.value))} if over else set()
            gap = [factor(laid.cmax, laid.total, bound.cap, bound.value) for bound in known]
            used |= {id(known[gap.index(min(gap))])} if known else set()
        return [bound for bound in known if id(bound) in used]

    def _front_point(self, laid: Laid) -> FrontPoint:
        gap = None if self.curve is None else self.curve.gap(laid.cmax, laid.total)
        return FrontPoint(
            cmax=laid.cmax,
            weighted_completion=laid.total,
            cmax_bound=at_most(self._least(), laid.cmax),
            weighted_completion_bound=at_most(self._bound(laid.cmax), laid.total),
            pareto_gap=gap,
            placements=self.planner.plan(laid.schedule, "bicriteria").placements,
        )

    def _least(self) -> float | None:
        return None if self.curve is None else self.curve.cmax

    def _bound(self, cap: float) -> float | None:
        """On the weighted completion of what ends by `cap`; None without one."""
        known = [] if self.curve is None else self.curve.bounds
        return max((bound.value for bound in known if bound.cap >= cap), default=None)


def searched(planner: Planner) -> MoldableQueue:
    """The queue with a ladder of allotments, none of them shorter than what a profile tells."""
    jobs = len(planner.items)
    limit = max(LADDER, ROWS // max(jobs, 1)) if jobs <= LARGE else COARSE
    queue = of_planner(planner, limit=limit)
    return dataclasses.replace(queue, times=np.maximum(queue.times, SHORTEST))


def prefer(archive: Archive[Any], text: str, references: Sequence[Laid] = ()) -> Any:
    """The point that is asked for; where none ends by T, the first to end."""
    cap = cap_of(text)
    if text == "balanced":
        return archive.balanced(references)
    if text == "minsum":
        return archive.points[-1]
    return (None if cap is None else archive.within(cap)) or archive.points[0]


def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan a snapshot; `Budget.work` counts jobs for which a place or a price was sought."""
    if planner.options["form"] == "rolling" or (planner.options["form"] == "auto" and budget.live):
        return roll(planner, budget, on_incumbent)
    if not planner.items:
        return empty_plan(planner, "bicriteria", budget)
    return Bicriteria(planner, planner.options, budget, on_incumbent).run()


SOLVERS: Mapping[str, SolveFunction] = {"bicriteria": on_planner(plan)}
