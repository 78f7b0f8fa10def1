"""MBPC and PAS: the jobs that fit now, placed together so that the sum of run times is least.

The first plan takes job after job at the strongest level left (`strongest`); where that finds no
way for a job though there are slots enough, an exact engine decides whether there is one. Then the
engine minimises equation (8) from there: the search of `coalloc.policies.allocation.levels` where
counts tell all and their tables are small, else the published program
(`coalloc.policies.allocation.program`). What is too large, or not solved in time, leaves the best
plan so far, with the engine's bound if it has one. Ties go to the least load on the links
(`coalloc.policies.allocation.levels`), where the search serves.

`mbpc-published` is the same by the paper's program alone; with ``engine=search`` by the tables,
where they serve.

Notes
-----
The objective of the program is scaled so that the first plan is worth 1000: the solver's tolerances
are absolute.

Deviations
----------
With ``sc=clamped``, the default, SC is at least 1 and (10) forbids saturation
(`coalloc.policies.allocation.program`). With ``sc=printed`` SC_j is (7) over the links that j
loads, below 1 too, as (8) has it. What is proved then is the least sum of (8), not of run times:
the plan is *heuristic*, and its stats have ``printed_value`` and ``printed_bound``, seconds.

References
----------
Blanco, Castella, Lerida, Guirado, "Multiple Job Allocation in Multicluster System", equations (4)
to (10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import fsum
from typing import Any

from coalloc.model.plan import Plan, Status
from coalloc.policies.allocation.choosing import Selection, extend, select, strongest
from coalloc.policies.allocation.counts import Counts, can_count, states
from coalloc.policies.allocation.levels import CHECKS, Descent, axes_of, ease
from coalloc.policies.allocation.placing import (
    Allocation,
    in_order,
    is_allowed,
    least_execution,
    link_seconds,
    make_plan,
    total_execution,
)
from coalloc.policies.allocation.program import PublishedModel
from coalloc.policies.allocation.scene import Scene, on_scene
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.bounds import Bound
from coalloc.policies.incumbent import Incumbent
from coalloc.policies.mip.runner import End, SolverLimits, run

SCALE = 1000.0
LARGEST = 2**20
"""Bits of the largest table that is searched."""
FEW = 8
"""Jobs up to which there is a search: corners multiply with jobs, and to the program small ones are
easy."""


def searches(scene: Scene, jobs: Sequence[int]) -> bool:
    """Whether the tables of the search serve these jobs."""
    if len(jobs) > FEW or states(scene, jobs) > LARGEST:
        return False
    return can_count(scene, jobs)


def limits_of(options: Mapping[str, Any], budget: Budget, first: bool = False) -> SolverLimits:
    """Read the limits of a solver from a policy's options and budget."""
    return SolverLimits(
        seconds=options.get("solver_seconds"),
        nodes=budget.work,
        first=first,
        stop=budget.stop,
    )


class Prover:
    """Asks an exact engine whether one more job fits; counts the work it took."""

    def __init__(self, scene: Scene, budget: Budget) -> None:
        self.scene = scene
        self.limits = limits_of(scene.options, budget, first=True)
        self.nodes = 0

    def __call__(self, allocation: Allocation, number: int) -> Allocation | None:
        jobs = (*allocation.jobs, number)
        if searches(self.scene, jobs):
            return self._by_tables(jobs)
        model = PublishedModel(self.scene, jobs)
        if model.size > self.scene.options.get("largest_model", 0):
            return None
        outcome = run(model.build(), self.limits.less(self.nodes))
        self.nodes += outcome.nodes
        if outcome.values is None:
            return None
        found = model.allocation(outcome)
        return found if is_allowed(self.scene, found) else None

    def _by_tables(self, jobs: Sequence[int]) -> Allocation | None:
        if self.limits.stop() or self.limits.less(self.nodes).nodes == 0:
            return None
        counts = Counts(self.scene, jobs)
        weakest = [self.scene.levels(self.scene.candidates[j])[0] for j in jobs]
        self.nodes += 1
        return counts.allocation(weakest) if counts.fits(weakest) else None


def plan(name: str, scene: Scene, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan the jobs that start now, under a policy's name."""
    prover = Prover(scene, budget)
    selection = select(scene, strongest, prover)
    search = AllocationSearch(scene, selection, name, budget, on_incumbent)
    search.incumbent.work += prover.nodes
    if search.is_ideal:
        search.ease(budget)
        return search.proved()
    search.reorder()
    if searches(scene, search.best.jobs):
        return by_levels(search, budget)
    model = PublishedModel(scene, search.best.jobs)
    return by_program(search, model, budget)


def by_levels(search: AllocationSearch, budget: Budget, *, below: bool = False) -> Plan:
    """Search over the levels of power, and of SC; `below` 1 too, as printed, ties are left."""
    scene, jobs = search.scene, search.best.jobs
    counts = Counts(scene, jobs, below=below)

    def tell(found: Allocation) -> float:
        search.offer(found)
        return search.value

    descent = Descent(
        axes_of(counts),
        counts,
        tell,
        at_most=search.value,
        stop=budget.stop,
        work=None if budget.work is None else budget.work - search.incumbent.work,
    )
    found = descent.run()
    search.incumbent.work += found.checks
    if not below:
        search.ease(budget)
    if found.proved:
        return search.proved()
    return search.unproved(found.bound, stopped=found.stopped)


def by_program(search: AllocationSearch, model: PublishedModel, budget: Budget) -> Plan:
    """Solve a program that begins at the best allocation."""
    options = search.scene.options
    if model.size > options["largest_model"]:
        search.stats["model_too_large"] = model.size
        return search.incumbent.plan()
    model.build()
    scale = SCALE / max(search.value, 1e-300)
    model.minimise(model.run_times(scale))
    outcome = run(
        model.problem,
        limits_of(options, budget).less(search.incumbent.work),
        on_solution=lambda found: search.offer(model.allocation(found)),
    )
    search.incumbent.work += outcome.nodes
    exact = True
    if outcome.values is not None:
        found = model.allocation(outcome)
        search.offer(found)
        exact = is_allowed(search.scene, found)
    if outcome.end is End.OPTIMAL and exact:
        return search.proved()
    bound = None if outcome.bound is None else outcome.bound / scale + model.fixed_seconds()
    return search.unproved(bound, stopped=outcome.end is End.STOPPED)


class AllocationSearch:
    """Search that improves the first allocation of a selection."""

    def __init__(
        self,
        scene: Scene,
        selection: Selection,
        policy: str,
        budget: Budget,
        on_incumbent: OnIncumbent | None,
    ) -> None:
        self.scene, self.selection = scene, selection
        self.stats: dict[str, Any] = {"seed": budget.seed, "classes": len(scene.classes)}
        self.incumbent: Incumbent[Allocation] = Incumbent(
            policy,
            budget,
            on_incumbent,
            rank=lambda allocation: (0.0, self.measure(allocation)),
            write=lambda found: self.written(found.status, found.told_bound()),
        )
        self.incumbent.put(selection.allocation, "")
        self.incumbent.report()

    @property
    def best(self) -> Allocation:
        """The best allocation so far."""
        assert self.incumbent.best is not None
        return self.incumbent.best

    @property
    def value(self) -> float:
        """Its sum of run times, seconds."""
        return self.incumbent.value(self.best)

    def measure(self, allocation: Allocation) -> float:
        """The total run time of an allocation, seconds."""
        return total_execution(self.scene, allocation)

    @property
    def is_ideal(self) -> bool:
        """Whether no job could run faster with the platform to itself."""
        return self.value <= least_execution(self.scene, self.best) * (1.0 + 1e-12)

    @property
    def _may_hit_limits(self) -> bool:
        """Whether a job may run into its time limit: the engines' sums do not end there."""
        scene = self.scene
        jobs = [scene.candidates[j] for j in self.best.jobs]
        return any(job.exceeds(min(scene.levels(job)), scene.threshold) for job in jobs)

    def offer(self, allocation: Allocation) -> None:
        """Take an allocation if it is allowed and better, and tell the caller."""
        if is_allowed(self.scene, allocation) and self.incumbent.offer(allocation):
            self.incumbent.report()

    def reorder(self) -> None:
        """Try the quick step in other orders: jobs with much processing first, wide jobs first."""
        jobs, of = self.best.jobs, self.scene.candidates
        for key in (lambda n: -of[n].scaled, lambda n: -of[n].procs):
            allocation = Allocation()
            for number in sorted(jobs, key=key):
                allocation = extend(self.scene, allocation, number, strongest) or allocation
            if len(allocation.jobs) == len(jobs):
                self.offer(in_order(allocation, jobs))

    def ease(self, budget: Budget) -> None:
        """Of allocations that run as long as the best, take one that loads the links least."""
        if budget.stop() or not searches(self.scene, self.best.jobs):
            return
        left = CHECKS if budget.work is None else min(CHECKS, budget.work - self.incumbent.work)
        eased, checks = ease(self.scene, self.best, stop=budget.stop, work=left)
        self.incumbent.work += checks
        self.incumbent.put(eased, self.incumbent.origin)

    def proved(self) -> Plan:
        """The plan, which nothing betters."""
        self.incumbent.proved = not self._may_hit_limits or self.is_ideal
        return self.incumbent.plan()

    def unproved(self, bound: float | None, *, stopped: bool) -> Plan:
        """The plan of an engine that ended without a proof: by the clock, or by its work limit."""
        self.incumbent.stopped = stopped
        if bound is not None and not self._may_hit_limits:
            self.incumbent.raise_bound(Bound(value=bound))
        return self.incumbent.plan()

    def written(self, status: Status, bound: float | None) -> Plan:
        """The best allocation as a plan."""
        found = self.incumbent
        return make_plan(
            self.scene,
            self.best,
            self.selection.deferred,
            policy=found.policy,
            status=status,
            bound=bound,
            stats={**self.stats, "work": found.work},
        )


class PrintedSearch(AllocationSearch):
    """The best allocation so far by equation (8) as printed."""

    def measure(self, allocation: Allocation) -> float:
        """Equation (8) with (7) not clamped, seconds."""
        of = self.scene.candidates
        processing = fsum(
            of[j].scaled / min(self.scene.classes[c].power for c in uses)
            for j, uses in zip(allocation.jobs, allocation.uses, strict=True)
        )
        return processing + link_seconds(self.scene, allocation)

    @property
    def is_ideal(self) -> bool:
        """Whether no job is slowed down by anything."""
        jobs = [self.scene.candidates[j] for j in self.best.jobs]
        least = fsum(job.scaled / max(self.scene.levels(job)) for job in jobs)
        return self.value <= least * (1.0 + 1e-12)

    def written(self, status: Status, bound: float | None) -> Plan:
        """The best as a plan; what bounds (8) as printed is told in the stats alone."""
        self.stats |= {"printed_value": self.value, "printed_bound": bound}
        unproved = {Status.OPTIMAL, Status.FEASIBLE}
        return super().written(Status.HEURISTIC if status in unproved else status, None)


def published(scene: Scene, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan by the paper's program; the selection is that of `pas`."""
    prover = Prover(scene, budget)
    selection = select(scene, strongest, prover)
    printed = scene.options["sc"] == "printed"
    kind = PrintedSearch if printed else AllocationSearch
    search = kind(scene, selection, "mbpc-published", budget, on_incumbent)
    search.incumbent.work += prover.nodes
    if search.is_ideal:
        return search.proved()
    if scene.options["engine"] == "search" and searches(scene, search.best.jobs):
        return by_levels(search, budget, below=printed)
    model = PublishedModel(scene, selection.allocation.jobs, printed=printed)
    return by_program(search, model, budget)


SOLVERS: Mapping[str, SolveFunction] = {
    **{name: on_scene(partial(plan, name)) for name in ("mbpc", "pas")},
    "mbpc-published": on_scene(published),
}
