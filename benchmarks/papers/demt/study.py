"""One family of the bi-criteria paper under every algorithm, and what bounds it.

Notes
-----
For each number of jobs, instances are drawn anew; each is scheduled by both readings of `demt`, by
its comparators, and, on the first `OURS` of them, by `bicriteria`, which may place or price `WORK`
jobs. Its plan is the balanced point of its front.

The bound on the makespan is that of the dual approximation. On the weighted completion there are
three: the paper's linear program as printed, the same repaired, and that of prices, whose
certificate the checker adds up again; it is sought where `bicriteria` runs.

Every plan has passed the checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from benchmarks.papers.study import Run, Study
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.moldable.bicriteria.options import BicriteriaOptions
from coalloc.policies.moldable.bicriteria.policy import Bicriteria
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.published_lp import published_lp
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.two_shelf import two_shelf, two_shelf_schedule
from coalloc.policies.options import read_options
from coalloc.policies.published.demt import ShelfSearch, order_and_rows
from coalloc.policies.published.options import DemtOptions
from coalloc.simulation.reproduce.rows import Row
from coalloc.simulation.reproduce.solving import checked, solve

PROCS, RUNS, QUICK_RUNS = 200, 40, 2
OURS: Mapping[int, int] = {25: 40, 50: 40, 100: 20, 200: 10, 400: 10}
"""Instances that `bicriteria` and the priced bound see, by the number of jobs of each."""
QUICK_OURS: Mapping[int, int] = {25: 2, 50: 1}
WORK, QUICK_WORK = 200_000, 20_000

REACHED, ACCEPTED, UNSHUFFLED = "demt", "demt, accepted", "demt, not shuffled"
LISTS = ("sequential", "list-shelf", "list-lptf", "list-saf", "list-smith")
GANG, SHELVES, BALANCED = "gang", "two-shelf", "bicriteria"
ALGORITHMS = (REACHED, ACCEPTED, UNSHUFFLED, GANG, *LISTS, SHELVES, BALANCED)
PAPERS = (GANG, "sequential", "list-shelf", "list-lptf", "list-saf")
"""The comparators that the paper draws."""


Reached = Mapping[str, float]
"""Both criteria of a plan, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """Results of `bicriteria`."""

    balanced: Reached
    front: list[tuple[float, float]]
    """Makespan and weighted completion of its points, seconds."""
    priced: float
    """Bound on the weighted completion, seconds."""

    def dominates(self, other: Reached) -> bool:
        """Whether a point of the front is better in both criteria."""
        return any(
            cmax < other["makespan_s"] and total < other["completion"] for cmax, total in self.front
        )


class Instance:
    """A drawn instance, read into arrays once for all algorithms."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.planner = Planner(snapshot, {"objective": WEIGHTED})

    @cached_property
    def queue(self) -> MoldableQueue:
        """Its jobs as the algorithms see them."""
        return of_planner(self.planner)

    @cached_property
    def whole(self) -> MoldableQueue:
        """Its jobs as the bounds see them."""
        return of_planner(self.planner, for_bounds=True)

    def bounds(self) -> dict[str, float]:
        """Those of the paper."""
        guess = two_shelf(self.queue).guess
        return {
            "makespan_bound_s": cmax_bound(self.whole),
            "lp_printed": published_lp(self.whole, guess, is_repaired=False),
            "lp_repaired": self.program(guess),
        }

    def program(self, guess: float) -> float:
        """The paper's linear program, repaired."""
        return published_lp(self.whole, guess)

    def published(self) -> dict[str, Reached]:
        """Algorithms that the paper compares, and the two-shelf schedule."""
        layer, laid = Layer(self.planner, self.queue), two_shelf_schedule(self.queue)
        calls: dict[str, Callable[[], Schedule | None]] = {
            REACHED: lambda: demt(layer, "reached"),
            ACCEPTED: lambda: demt(layer, "accepted"),
            UNSHUFFLED: lambda: demt(layer, "reached", shuffles=0),
            **{
                name: lambda name=name: layer.lay(*order_and_rows(name, self.queue))  # type: ignore[misc]
                for name in LISTS
            },
            SHELVES: lambda: layer.measured(laid.rows, laid.start),
        }
        found = {name: self._reached(name, call) for name, call in calls.items()}
        found[GANG] = self._measured(solve(self.snapshot, GANG).plan)
        return {name: found[name] for name in ALGORITHMS if name in found}

    def ours(self, work: int) -> Ours:
        """The plan of `bicriteria`; the checker adds its bounds up."""
        plan = self.search(work)
        assert plan.objective.bound is not None
        return Ours(
            balanced=self._measured(plan),
            front=[(point.cmax, point.weighted_completion) for point in plan.front],
            priced=plan.objective.bound,
        )

    def search(self, work: int) -> Plan:
        """The plan of `bicriteria` with so much work, not checked."""
        options = read_options({"search": work, "certify": False}, BicriteriaOptions)
        return Bicriteria(self.planner, options, Budget(), None).run()

    def _reached(self, name: str, call: Callable[[], Schedule | None]) -> Reached:
        schedule = call()
        assert schedule is not None
        return self._measured(self.planner.plan(schedule, name))

    def _measured(self, plan: Plan) -> Reached:
        metrics = checked(self.snapshot, plan)
        makespan, completion = metrics["makespan"], metrics["weighted_completion"]
        assert makespan is not None
        assert completion is not None
        return {"makespan_s": makespan, "completion": completion}


def demt(
    layer: Layer, reading: str, selection: str = "knapsack", *, shuffles: int = 20
) -> Schedule:
    """The schedule of `demt`."""
    given = {"guess": reading, "selection": selection, "shuffles": shuffles}
    options = read_options(given, DemtOptions)
    return ShelfSearch(layer, options, Budget()).run().schedule


def _study(family: str, run: Run) -> Iterator[Row]:
    runs, counts = (QUICK_RUNS, QUICK_OURS) if run.quick else (RUNS, OURS)
    work = QUICK_WORK if run.quick else WORK
    first = run.seed * RUNS
    cases = [(jobs, number) for jobs in counts for number in range(first, first + runs)]
    for jobs, number in run.steps(f"demt, {family}", cases):
        instance = Instance(moldable_instance(family, jobs, PROCS, number))
        found, bounds = instance.published(), instance.bounds()
        ours = instance.ours(work) if number - first < counts[jobs] else None
        yield from rows_of(jobs, number, found, bounds, ours)


STUDIES = {
    family: Study(name=f"demt {family}", measure=partial(_study, family)) for family in FAMILIES
}
"""One row per instance and algorithm, for each family."""


def rows_of(
    jobs: int,
    number: int,
    found: Mapping[str, Reached],
    bounds: Mapping[str, float],
    ours: Ours | None,
) -> Iterator[Row]:
    """The rows of one instance."""
    every = dict(found) if ours is None else {**found, BALANCED: ours.balanced}
    for name, reached in every.items():
        yield {
            "jobs": jobs,
            "run": number,
            "algorithm": name,
            **reached,
            **bounds,
            "priced": None if ours is None else ours.priced,
            "dominated": None if ours is None else int(ours.dominates(reached)),
        }
